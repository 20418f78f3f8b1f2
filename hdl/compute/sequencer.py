"""The order of a GEMM: which column of which tile the array takes in each cycle.

Operands are held in panels of ``height`` rows, ``tiles`` × ``array`` of them::

    for i in rows of A by height:
        for j in columns of B by height:
            for each of the tiles of C in this block, row by row:
                for k in K: take column k of both panels
            the last tile frees the panels' chunks as it reads them

A panel of A stays for all j, and the panel of B stays if there is one only. So K up to the panels'
``COLUMNS`` costs, per block of tiles² × K array cycles, K flits per panel port for B (twice that if
B is k×n and not aligned to flits), and A almost nothing. A longer K does not fit: then blocks are
single tiles, and each reads both operands, one flit per cycle and port.

Each cycle goes ahead if both panels hold the column and, for the last column of a tile, the drain
registers are free. Positions are totals (``hdl/compute/loader.py``).
"""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..layouts import ADDRESS_BITS
from .array import Step
from .loader import TOTAL_BITS, chunk_total_bits
from .store import tile_layout

__all__ = ["Plan", "Sequencer"]


class Plan(data.Struct):
    """A GEMM with ``m`` and ``n`` at least 1; ``whole``: K fits the panels."""

    m: unsigned(32)
    n: unsigned(32)
    k: unsigned(31)
    c: unsigned(ADDRESS_BITS)
    pitch: unsigned(32)
    whole: unsigned(1)


class Sequencer(wiring.Component):
    """Walks over the tiles of C and over K.

    Parameters
    ----------
    lanes : int
        Bytes of a flit.
    array : int
    height : int
        Rows of all panels of a side.
    panels : int
        Panels per side.

    Members
    -------
    start : ``In(1)``
    plan : ``In(Plan)``
        Constant until the end.
    a_available, b_available : ``In(...).array(panels)``
    a_freed, b_freed : ``Out``
        Totals of chunks.
    a_position, b_position : ``Out(TOTAL_BITS)``
    a_tile, b_tile : ``Out``
        Tile within the block.
    go : ``Out(1)``
        Take these columns now.
    ready : ``Out(1)``
        The panels hold them.
    step : ``Out(Step)``
    tile, book, free : to the store
    busy : ``Out(1)``
        Columns are left to take.
    active : ``Out(1)``
    """

    def __init__(self, *, lanes: int, array: int, height: int, panels: int) -> None:
        self._lanes, self._array, self._height = lanes, array, height
        tiles = height // array
        chunks = chunk_total_bits(lanes)
        super().__init__({
            "start": In(1), "plan": In(Plan),
            "a_available": In(TOTAL_BITS).array(panels),
            "b_available": In(TOTAL_BITS).array(panels),
            "a_freed": Out(chunks), "b_freed": Out(chunks),
            "a_position": Out(TOTAL_BITS), "b_position": Out(TOTAL_BITS),
            "a_tile": Out(range(max(2, tiles))), "b_tile": Out(range(max(2, tiles))),
            "go": Out(1), "ready": Out(1), "step": Out(Step), "tile": Out(tile_layout(array)),
            "book": Out(1), "free": In(1), "busy": Out(1), "active": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        plan, array, lanes = self.plan, self._array, self._lanes
        tiles = self._height // array
        bits = (lanes - 1).bit_length()

        # Rows and columns of C from this tile on; the same where this block began.
        rows, columns = Signal(32), Signal(32)
        block_rows, block_columns = Signal(32), Signal(32)
        # Addresses: of this row of tiles at column 0, of this block's; byte offset of the columns.
        tile_row, block_row = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        across, block_across = Signal(34), Signal(34)
        k_left = Signal(31)
        first = Signal()
        a_start, b_start = Signal(TOTAL_BITS), Signal(TOTAL_BITS)

        void = ~plan.k.any()
        m.d.comb += self.ready.eq(void | (
            Cat(total != self.a_position for total in self.a_available).all()
            & Cat(total != self.b_position for total in self.b_available).all()))
        last = k_left <= 1
        m.d.comb += [
            self.go.eq(self.busy & self.ready & (~last | self.free)), self.book.eq(self.go & last),
            self.step.first.eq(first), self.step.last.eq(last), self.step.void.eq(void),
            self.tile.address.eq(tile_row + across),
            self.tile.rows.eq(Mux(rows > array, array, rows)),
            self.tile.columns.eq(Mux(columns > array, array, columns)),
            self.active.eq(self.go)]

        last_columns, last_rows = columns <= array, rows <= array
        column_end, row_end, block_end = Signal(), Signal(), Signal()
        m.d.comb += [
            column_end.eq(last_columns | ~plan.whole | (self.b_tile == tiles - 1)),
            row_end.eq(last_rows | ~plan.whole | (self.a_tile == tiles - 1)),
            block_end.eq(column_end & row_end)]
        # The only panel of B is kept while there are rows to come.
        one_panel = plan.whole & (plan.n <= self._height)
        frees_a = block_end & (~plan.whole | last_columns)
        frees_b = block_end & (~one_panel | last_rows)

        down = plan.pitch * array
        with m.If(self.start):
            m.d.sync += [
                self.busy.eq(1), first.eq(1), k_left.eq(plan.k),
                rows.eq(plan.m), block_rows.eq(plan.m), columns.eq(plan.n),
                block_columns.eq(plan.n), tile_row.eq(plan.c), block_row.eq(plan.c),
                across.eq(0), block_across.eq(0), self.a_tile.eq(0), self.b_tile.eq(0)]
        with m.Elif(self.go):
            m.d.sync += [first.eq(last), k_left.eq(k_left - 1)]
            for position, start, freed, frees in (
                    (self.a_position, a_start, self.a_freed, frees_a),
                    (self.b_position, b_start, self.b_freed, frees_b)):
                with m.If(~void):
                    # A panel begins with a chunk of its own.
                    onward = Mux(last, Cat(Signal(bits, name="none"), position[bits:] + 1),
                                 position + 1)
                    m.d.sync += position.eq(Mux(last & ~frees, start, onward))
                    with m.If(frees & (last | position[:bits].all())):
                        m.d.sync += freed.eq(freed + 1)
                    with m.If(frees & last):
                        m.d.sync += start.eq(onward)
            with m.If(last):
                m.d.sync += k_left.eq(plan.k)
                with m.If(~column_end):
                    m.d.sync += [columns.eq(columns - array), across.eq(across + 4 * array),
                                 self.b_tile.eq(self.b_tile + 1)]
                with m.Elif(~row_end):
                    m.d.sync += [columns.eq(block_columns), across.eq(block_across),
                                 self.b_tile.eq(0), rows.eq(rows - array),
                                 tile_row.eq(tile_row + down), self.a_tile.eq(self.a_tile + 1)]
                with m.Elif(~last_columns):
                    m.d.sync += [
                        columns.eq(columns - array), block_columns.eq(columns - array),
                        across.eq(across + 4 * array), block_across.eq(across + 4 * array),
                        rows.eq(block_rows), tile_row.eq(block_row),
                        self.a_tile.eq(0), self.b_tile.eq(0)]
                with m.Else():
                    m.d.sync += [
                        columns.eq(plan.n), block_columns.eq(plan.n), across.eq(0),
                        block_across.eq(0), rows.eq(rows - array), block_rows.eq(rows - array),
                        tile_row.eq(tile_row + down), block_row.eq(tile_row + down),
                        self.a_tile.eq(0), self.b_tile.eq(0)]
                    with m.If(last_rows):
                        m.d.sync += self.busy.eq(0)
        return m
