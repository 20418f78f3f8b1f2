"""Histogram of latencies, in a RAM.

Latency law: a latency added in cycle ``t`` is in its bin from ``t + 2``; latencies of one bin may
follow one per cycle. A bin read in ``t`` is on ``count`` in ``t + 1``. ``busy`` tells that a bin is
about to be written.
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.ports import ValidSignature

from .packet import AGE_BITS

__all__ = ["COUNT_BITS", "Histogram"]

COUNT_BITS = 32


class Histogram(wiring.Component):
    """Bins of latencies.

    Parameters
    ----------
    bins : int

    Members
    -------
    shift : ``In(4)``
        A bin is 2^shift cycles wide.
    add : ``In(ValidSignature(24))``
        A latency. What is beyond the last bin counts in the last bin.
    read : ``In(ValidSignature(range(bins)))``
    count : ``Out(32)``
        Count of the bin that was read in the cycle before.
    busy : ``Out(1)``
    """

    def __init__(self, bins: int) -> None:
        self._bins = bins
        super().__init__({
            "shift": In(4),
            "add": In(ValidSignature(unsigned(AGE_BITS))),
            "read": In(ValidSignature(unsigned((bins - 1).bit_length()))),
            "count": Out(COUNT_BITS),
            "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counts = counts = memory.Memory(
            shape=unsigned(COUNT_BITS), depth=self._bins, init=[])
        write = counts.write_port()
        # Transparent: two latencies of one bin may come one after the other.
        old, asked = counts.read_port(transparent_for=(write,)), counts.read_port()
        place, adding = Signal(AGE_BITS), Signal()
        m.d.sync += adding.eq(self.add.valid)
        m.d.comb += [
            old.en.eq(self.add.valid),
            write.en.eq(adding),
            asked.en.eq(self.read.valid),
            asked.addr.eq(self.read.payload),
            self.count.eq(asked.data),
            self.busy.eq(adding),
        ]
        with m.If(self.add.valid):
            m.d.comb += [
                place.eq(self.add.payload >> self.shift),
                old.addr.eq(Mux(place < self._bins, place, self._bins - 1)),
            ]
            m.d.sync += write.addr.eq(old.addr)
        with m.If(adding):
            m.d.comb += write.data.eq(old.data + 1)
        return m
