"""Fills a panel from memory: asks for flits ahead of need and places what comes back.

A walk is a sequence of panels, each up to L rows and K columns of an operand::

    repeat `outer` times: for each group of rows of the operand: repeat `inner` times: load it

An operand is read in one of two directions. *Along k* (row-major A, B stored n×k): for each flit
of depth, one flit of every row. *Direct* (B stored k×n): for each k, the one or two flits that hold
its rows. The walk is the same two nested steps in both, with the strides exchanged, and no flit is
asked for twice within a panel.

Flow control, all in totals modulo twice the panel's size:

* a chunk is written only when ``written − freed`` leaves room, and freed only after its last read;
* ``available`` counts columns that are complete in the panel, padded to whole chunks at the end of
  a panel. The reader's position may never pass it.

Responses cannot be refused: a flit is asked for only with room in the panel for its bytes and in
the list of what is in flight, which covers the memory's latency at full rate.

Timing: one request per cycle; a response in cycle t is in the panel and counted in t + 3.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..layouts import ADDRESS_BITS
from ..ports import MemoryReadSignature
from .panel import COLUMNS, placement_layout

__all__ = ["Loader", "TOTAL_BITS", "Walk", "chunk_total_bits"]

#: Width of the total of available columns.
TOTAL_BITS = (2 * COLUMNS - 1).bit_length()


def chunk_total_bits(lanes: int) -> int:
    """Width of the total of freed chunks of ``lanes`` columns."""
    return (2 * COLUMNS // lanes - 1).bit_length()


class Walk(data.Struct):
    """What to load. ``rows`` and ``k`` are at least 1; rows are ``pitch`` bytes apart along k, or
    columns are when ``direct``. ``whole`` groups rows by the panels' full height, else by the
    array's."""

    base: unsigned(ADDRESS_BITS)
    pitch: unsigned(32)
    rows: unsigned(32)
    k: unsigned(31)
    direct: unsigned(1)
    whole: unsigned(1)
    outer: unsigned(32)
    inner: unsigned(32)


class Loader(wiring.Component):
    """Loads one panel, the ``number``-th of its side.

    Parameters
    ----------
    lanes : int
        Bytes of a flit, L.
    array : int
        Rows that the array works on at once.
    height : int
        Rows of all panels of a side together.
    number : int
        This panel holds rows ``number * lanes`` and up of each group. With no row left for it, it
        loads one row that nobody needs, so that all panels of a side stay in step.
    in_flight : int
        Requests without response, at the most; a power of 2.

    Members
    -------
    start : ``In(1)``
        Begin the walk; the loader is at rest.
    walk : ``In(Walk)``
        Constant from ``start`` until the walk is over.
    freed : ``In``
        Total of chunks that the reader is done with.
    available : ``Out``
        Total of columns that it may read.
    read : ``Out(MemoryReadSignature)``
    place, write : to the panel
    active : ``Out(1)``
        Something will change even if no input comes.
    """

    def __init__(self, *, lanes: int, array: int, height: int, number: int,
                 in_flight: int) -> None:
        if in_flight < 4 or in_flight & in_flight - 1:
            raise ValueError(f"in_flight must be a power of 2 from 4 up, not {in_flight}")
        self._lanes, self._array, self._height = lanes, array, height
        self._number, self._in_flight = number, in_flight
        super().__init__({
            "start": In(1), "walk": In(Walk), "freed": In(chunk_total_bits(lanes)),
            "available": Out(TOTAL_BITS), "read": Out(MemoryReadSignature(lanes)),
            "place": Out(placement_layout(lanes)), "write": Out(1), "active": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, walk, request = self._lanes, self.walk, self.read.request
        bits = (lanes - 1).bit_length()
        chunk_bits = chunk_total_bits(lanes)

        # What the walk will ask for next.
        panel_base = Signal(ADDRESS_BITS)
        rows_left, inner_left, outer_left = Signal(32), Signal(32), Signal(32)
        rows = Signal(range(lanes + 1))
        skewed = Signal()
        outer_address, address = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        k_left = Signal(signed(33))
        first_outer = Signal()
        index = Signal(bits)
        second = Signal()
        written = Signal(chunk_bits)
        flying = Signal(range(self._in_flight + 1))

        # This step: which lanes of the flit count, and what is complete when it has come.
        offset = address[:bits]
        end = Signal(signed(34))
        first, inner_last, outer_last = Signal(), Signal(), Signal()
        high = Signal(range(lanes + 1))
        columns = Signal(range(2 * lanes + 1))
        m.d.comb += [
            end.eq(offset + Mux(walk.direct, rows - Mux(second, lanes, 0), k_left)),
            high.eq(Mux(end >= lanes, lanes, Mux(end < 0, 0, end))),
            first.eq(Mux(walk.direct, ~second, first_outer)),
            inner_last.eq(Mux(walk.direct, end <= lanes, index == rows - 1)),
            outer_last.eq(k_left <= Mux(walk.direct | skewed, 1, lanes))]
        with m.If(inner_last):
            with m.If(walk.direct):
                m.d.comb += columns.eq(Mux(outer_last, lanes - index, 1))
            with m.Elif(skewed & first_outer & ~outer_last):
                m.d.comb += columns.eq(0)
            with m.Elif(skewed & ~first_outer & outer_last & (k_left > 0)):
                m.d.comb += columns.eq(2 * lanes)
            with m.Else():
                m.d.comb += columns.eq(lanes)

        note = Signal(data.StructLayout({
            "turn": unsigned(bits), "low": unsigned(bits), "high": unsigned(bits + 1),
            "split": unsigned(bits), "index": unsigned(bits), "chunk": unsigned(chunk_bits - 1),
            "columns": unsigned(bits + 2)}))
        m.d.comb += [
            note.turn.eq(index - offset), note.low.eq(Mux(first, offset, 0)), note.high.eq(high),
            note.split.eq(Mux(first | walk.direct, 0, offset)), note.index.eq(index),
            note.chunk.eq(written), note.columns.eq(columns)]

        room = Signal()
        m.d.comb += room.eq(
            (((written - self.freed)[:chunk_bits] != COLUMNS // lanes) | (k_left <= 0))
            & (flying != self._in_flight))
        issue = Signal()
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)

        at_work = Signal()
        with m.FSM(name="walk"):
            with m.State("REST"):
                with m.If(self.start):
                    m.d.sync += [panel_base.eq(walk.base), rows_left.eq(walk.rows),
                                 inner_left.eq(walk.inner), outer_left.eq(walk.outer)]
                    m.next = "PANEL"
            with m.State("PANEL"):
                m.d.comb += at_work.eq(1)
                group = Mux(walk.whole, self._height, self._array)
                mine = Signal(signed(34))
                start = Signal(ADDRESS_BITS)
                m.d.comb += mine.eq(Mux(rows_left > group, group, rows_left)
                                    - self._number * lanes)
                if self._number:
                    m.d.comb += start.eq(panel_base + Mux(mine > 0, Mux(
                        walk.direct, self._number * lanes, walk.pitch * (self._number * lanes)), 0))
                else:
                    m.d.comb += start.eq(panel_base)
                m.d.sync += [
                    rows.eq(Mux(mine >= lanes, lanes, Mux(mine > 0, mine, 1))),
                    outer_address.eq(start), address.eq(start), k_left.eq(walk.k),
                    skewed.eq(~walk.direct & (start[:bits].any() | walk.pitch[:bits].any())),
                    first_outer.eq(1), index.eq(0), second.eq(0)]
                m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += [issue.eq(room & (~request.valid | request.ready)), at_work.eq(room)]
                with m.If(issue):
                    # A row may end one flit before the others: then its last one comes again,
                    # for nothing.
                    m.d.sync += [request.valid.eq(1),
                                 request.payload.index.eq(address[bits:] - (end <= 0))]
                    with m.If(~inner_last):
                        m.d.sync += [second.eq(1),
                                     address.eq(address + Mux(walk.direct, lanes, walk.pitch))]
                        with m.If(~walk.direct):
                            m.d.sync += index.eq(index + 1)
                    with m.Else():
                        outer_next = outer_address + Mux(walk.direct, walk.pitch, lanes)
                        m.d.sync += [
                            outer_address.eq(outer_next), address.eq(outer_next),
                            k_left.eq(k_left - Mux(walk.direct, 1, lanes)), first_outer.eq(0),
                            second.eq(0), index.eq(Mux(walk.direct, index + 1, 0))]
                        with m.If(Mux(walk.direct, index.all() | outer_last, k_left > 0)):
                            m.d.sync += written.eq(written + 1)
                        with m.If(outer_last):
                            m.next = "NEXT"
            with m.State("NEXT"):
                m.d.comb += at_work.eq(1)
                m.next = "PANEL"
                with m.If(inner_left != 1):
                    m.d.sync += inner_left.eq(inner_left - 1)
                with m.Else():
                    m.d.sync += inner_left.eq(walk.inner)
                    with m.If(rows_left > group):
                        m.d.sync += [
                            rows_left.eq(rows_left - group),
                            panel_base.eq(panel_base + Mux(walk.direct, group, Mux(
                                walk.whole, walk.pitch * self._height,
                                walk.pitch * self._array)))]
                    with m.Else():
                        m.d.sync += [rows_left.eq(walk.rows), panel_base.eq(walk.base),
                                     outer_left.eq(outer_left - 1)]
                        with m.If(outer_left == 1):
                            m.next = "REST"

        # What is in flight, in order.
        m.submodules.notes = notes = memory.Memory(
            shape=note.shape(), depth=self._in_flight, init=[])
        write, read = notes.write_port(), notes.read_port()
        head = Signal(range(self._in_flight))
        tail = Signal(range(self._in_flight))
        answer = self.read.response
        m.d.comb += [write.addr.eq(tail), write.data.eq(note), write.en.eq(issue),
                     read.addr.eq(head), read.en.eq(answer.valid)]
        m.d.sync += flying.eq(flying + issue - answer.valid)
        with m.If(issue):
            m.d.sync += tail.eq(tail + 1)

        # A response is taken, turned to its banks, placed.
        taken, held = Signal(), Signal(8 * lanes, reset_less=True)
        m.d.sync += taken.eq(answer.valid)
        with m.If(answer.valid):
            m.d.sync += [head.eq(head + 1), held.eq(answer.payload.data)]
        what = read.data
        ones = (1 << lanes) - 1
        m.d.sync += self.write.eq(taken)
        finished = Signal(range(2 * lanes + 1))
        with m.If(taken):
            word = held
            for level in range(bits):
                turned = Signal(8 * lanes, name=f"turned_{1 << level}")
                m.d.comb += turned.eq(Mux(what.turn[level], word.rotate_left(8 << level), word))
                word = turned
            wanted = ((1 << what.high) - 1)[:lanes] & ~((1 << what.low) - 1)[:lanes]
            split = ((1 << what.split) - 1)[:lanes]
            m.d.sync += [
                self.place.data.eq(word), self.place.enable.eq(_turn(m, wanted, what.turn, lanes,
                                                                    "enable")),
                self.place.earlier.eq(_turn(m, split & ones, what.turn, lanes, "earlier")),
                self.place.index.eq(what.index), self.place.chunk.eq(what.chunk),
                self.place.direct.eq(walk.direct), finished.eq(what.columns)]
        with m.If(self.write):
            m.d.sync += self.available.eq(self.available + finished)

        m.d.comb += self.active.eq(at_work | request.valid | taken | self.write)
        return m


def _turn(m: Module, mask, turn, lanes: int, name: str):
    """Rotate a mask of ``lanes`` bits to the left."""
    plain, result = Signal(lanes, name=name), Signal(lanes, name=f"{name}_turned")
    m.d.comb += [plain.eq(mask), result.eq((Cat(plain, plain) << turn)[lanes:2 * lanes])]
    return result
