"""A panel: up to L rows of an operand, L bytes (a flit) of depth per chunk, readable by column.

The array wants, every cycle, byte ``k`` of each of its rows; memory delivers either many ``k`` of
one row (row-major A, B stored n×k) or one ``k`` of many rows (B stored k×n). Both are full-rate
with one trick: L byte-wide RAM banks, and byte ``k`` of row ``r`` kept in bank ``(r + k) mod L`` at
address ``{chunk(k), r}``. The L bytes of a flit then always fall into L different banks, whichever
way it runs, and so do the L bytes of a column.

Placing a flit is one rotation, which also undoes any misalignment in memory; reading a column is
another. No transposing registers, no merging of flits.

The RAM is a ring of chunks (a chunk is L columns): the loader fills them in order, the sequencer
reads and frees them in order. This block knows nothing of that; it writes and reads where told.

Timing: ``write`` in cycle t is seen by ``read`` from cycle t + 1; ``column`` is there 2 cycles
after ``read``.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["COLUMNS", "Panel", "placement_layout"]

#: Columns that a panel holds.
COLUMNS = 1024


def placement_layout(lanes: int) -> data.StructLayout:
    """Where the bytes of a flit belong.

    ``direct``: the flit runs across rows at one ``k``, else along ``k`` in one row; ``index``:
    that ``k`` modulo L, or that row; ``enable`` and ``earlier``, one bit per bank: write it, and
    into the chunk before ``chunk``.
    """
    return data.StructLayout({
        "data": unsigned(8 * lanes), "enable": unsigned(lanes), "earlier": unsigned(lanes),
        "index": unsigned((lanes - 1).bit_length()),
        "chunk": unsigned((COLUMNS // lanes - 1).bit_length()), "direct": unsigned(1)})


class Panel(wiring.Component):
    """L byte-wide banks and the rotation that makes a column of them.

    Parameters
    ----------
    lanes : int
        Bytes of a flit, L.
    rows : int
        Rows of a column that are read at once; at most ``lanes``.

    Members
    -------
    place : ``In(placement_layout(lanes))``
        A flit, already rotated to its banks.
    write : ``In(1)``
    read : ``In(1)``
    position : ``In``
        Column in the ring.
    first_row : ``In``
        Rows to read, in units of ``rows``.
    column : ``Out(8 * rows)``
    """

    def __init__(self, *, lanes: int, rows: int) -> None:
        self._lanes, self._rows = lanes, rows
        super().__init__({
            "place": In(placement_layout(lanes)), "write": In(1), "read": In(1),
            "position": In(range(COLUMNS)), "first_row": In(range(max(2, lanes // rows))),
            "column": Out(8 * rows)})

    @property
    def lanes(self) -> int:
        return self._lanes

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, rows, place = self._lanes, self._rows, self.place
        bits = (lanes - 1).bit_length()
        k = self.position[:bits]
        read_chunk = self.position[bits:]
        before = Signal(place.chunk.shape())
        m.d.comb += before.eq(place.chunk - 1)
        banks = []
        for bank in range(lanes):
            m.submodules[f"bank_{bank}"] = ram = memory.Memory(shape=8, depth=COLUMNS, init=[])
            write, read = ram.write_port(), ram.read_port()
            m.d.comb += [
                write.addr.eq(Cat(
                    Mux(place.direct, (bank - place.index)[:bits], place.index),
                    Mux(place.earlier[bank], before, place.chunk))),
                write.data.eq(place.data.word_select(bank, 8)),
                write.en.eq(self.write & place.enable[bank]),
                read.addr.eq(Cat((bank - k)[:bits], read_chunk)), read.en.eq(self.read)]
            banks.append(read.data)

        turn, ready = Signal(bits), Signal()
        m.d.sync += ready.eq(self.read)
        with m.If(self.read):
            m.d.sync += turn.eq(k + self.first_row * rows)
        # Row r of the column is in bank (r + turn) mod L. Only bytes that still matter are moved.
        word, width = Cat(banks), lanes
        for level in reversed(range(bits)):
            step = 1 << level
            kept = min(lanes, rows + step - 1)
            source = Cat(word, word) if width == lanes else word
            turned = Signal(8 * kept, name=f"turned_{step}")
            m.d.comb += turned.eq(Mux(turn[level], source[8 * step:8 * (step + kept)],
                                      source[:8 * kept]))
            word, width = turned, kept
        with m.If(ready):
            m.d.sync += self.column.eq(word)
        return m
