"""Synchronisation counters: 32-bit totals that packets and completions add to.

Every source (each rail, and local completion) has a bank of its own, a small memory that it alone
writes, and a counter's total is the sum over the banks. So increments of all sources in one cycle,
to the same counter or not, need no arbitration and none can be lost.

Latency law: an increment in cycle t is in the totals read from cycle t + 1 on. Reads are
combinational.

Flow-control invariant: every source may add to any counter in every cycle.

The banks are memories: they start at 0 and, as totals, are not reset.
"""

from amaranth.hdl import Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.ports import ValidSignature

__all__ = ["CounterRead", "Counters"]


class CounterRead(wiring.Signature):
    """A look at one counter, as its reader sees it: ``index`` out, ``total`` back in the same
    cycle."""

    def __init__(self) -> None:
        super().__init__({"index": Out(8), "total": In(32)})


class Counters(wiring.Component):
    """``counters`` totals with ``sources`` that add and ``reads`` that look.

    Members
    -------
    increments : ``In(ValidSignature(unsigned(8))).array(sources)``
        Counters to add 1 to. An index beyond the counters does nothing.
    reads : ``In(CounterRead()).array(reads)``
        An index beyond the counters reads some counter.
    """

    def __init__(self, *, counters: int, sources: int, reads: int) -> None:
        self._counters = counters
        super().__init__({
            "increments": In(ValidSignature(unsigned(8))).array(sources),
            "reads": In(CounterRead()).array(reads),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = max(2, self._counters)
        totals = [0] * len(self.reads)
        for source, increment in enumerate(self.increments):
            m.submodules[f"bank_{source}"] = bank = Memory(
                shape=unsigned(32), depth=depth, init=[])
            old = bank.read_port(domain="comb")
            new = bank.write_port()
            m.d.comb += [old.addr.eq(increment.payload), new.addr.eq(increment.payload),
                         new.data.eq(old.data + 1),
                         new.en.eq(increment.valid & (increment.payload < self._counters))]
            for index, read in enumerate(self.reads):
                port = bank.read_port(domain="comb")
                m.d.comb += port.addr.eq(read.index)
                totals[index] = totals[index] + port.data
        for read, total in zip(self.reads, totals, strict=True):
            m.d.comb += read.total.eq(total)
        return m
