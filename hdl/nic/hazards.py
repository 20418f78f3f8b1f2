"""Ranges of the packets whose writes memory has not all accepted: what a reduction must wait for.

A reduction reads its addend, most often the bytes that it will write. A read sees only writes
accepted in earlier cycles, so it must not be asked for while an older packet still has writes to
these bytes on the way. The table holds one entry per packet in flight, in order of arrival, with
its exact byte range: adjacent packets of one stream, even if they share a flit, do not wait for
each other, because each writes only its own bytes of that flit.

Writes leave in order of arrival, so a packet that only writes never waits.

Latency law: ``overlaps`` compares in the cycle of the question; an entry opened or closed in cycle
``t`` counts, or no longer counts, from ``t + 1``. The question is asked once per packet, and its
answer stays good: entries that open later are younger, and those that close drop out by ``live``.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import ADDRESS_BITS

__all__ = ["Hazards"]


class Hazards(wiring.Component):
    """The table.

    Members
    -------
    start, end : ``In(49)``
        Byte range that the arriving packet writes, ``end`` excluded.
    read_start, read_end : ``In(49)``
        Byte range that it reads.
    overlaps : ``Out(packets)``
        Live entries whose range has a byte in common with what it reads.
    open : ``In(1)``
        Enter the packet; there is a free entry.
    matters : ``In(1)``
        The packet will write its range.
    close : ``In(1)``
        The oldest packet has no writes left.
    live : ``Out(packets)``
        Entries with writes on the way, a function of registers.
    """

    def __init__(self, *, packets: int) -> None:
        self.packets = packets
        super().__init__({
            "start": In(ADDRESS_BITS + 1), "end": In(ADDRESS_BITS + 1),
            "read_start": In(ADDRESS_BITS + 1), "read_end": In(ADDRESS_BITS + 1),
            "overlaps": Out(packets), "open": In(1), "matters": In(1), "close": In(1),
            "live": Out(packets),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        live = Signal(self.packets)
        newest, oldest = Signal(self.packets, init=1), Signal(self.packets, init=1)
        overlaps = []
        for entry in range(self.packets):
            start = Signal(ADDRESS_BITS + 1, name=f"start{entry}")
            end = Signal(ADDRESS_BITS + 1, name=f"end{entry}")
            with m.If(self.open & newest[entry]):
                m.d.sync += [start.eq(self.start), end.eq(self.end)]
            overlaps.append((start < self.read_end) & (self.read_start < end))
        opened, closed = Signal(self.packets), Signal(self.packets)
        m.d.comb += [
            self.overlaps.eq(Cat(overlaps) & live),
            self.live.eq(live),
            opened.eq(Mux(self.open & self.matters, newest, 0)),
            closed.eq(Mux(self.close, oldest, 0)),
        ]
        m.d.sync += live.eq(live & ~closed | opened)
        with m.If(self.open):
            m.d.sync += newest.eq(newest.rotate_left(1))
        with m.If(self.close):
            m.d.sync += oldest.eq(oldest.rotate_left(1))
        return m
