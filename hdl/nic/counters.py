"""Synchronisation counters: 32-bit totals that packets and completions add to.

Every source (each rail, and local completion) has a bank of its own, a small memory that it alone
writes, and a counter's total is the sum over the banks. So increments of all sources in one cycle,
to the same counter or not, need no arbitration and none can be lost.

Latency law: an increment in cycle t is in the totals read from cycle t + 1 on. Reads are
combinational.

Flow-control invariant: every source may add to any counter in every cycle.

All are 0 after reset, and only then.
"""

from amaranth.hdl import Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hdl.nic.totals import TotalRead, Totals
from hdl.ports import ValidSignature

__all__ = ["Counters"]


class Counters(wiring.Component):
    """``counters`` totals with ``sources`` that add and ``reads`` that look.

    Members
    -------
    increments : ``In(ValidSignature(unsigned(8))).array(sources)``
        Counters to add 1 to. An index beyond the counters does nothing.
    reads : ``In(TotalRead()).array(reads)``
        An index beyond the counters reads some counter.
    """

    def __init__(self, *, counters: int, sources: int, reads: int) -> None:
        self._counters = counters
        super().__init__({
            "increments": In(ValidSignature(unsigned(8))).array(sources),
            "reads": In(TotalRead()).array(reads),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        totals = [0] * len(self.reads)
        for source, increment in enumerate(self.increments):
            m.submodules[f"bank_{source}"] = bank = Totals(
                depth=self._counters, reads=len(self.reads))
            m.d.comb += [bank.index.eq(increment.payload), bank.amount.eq(1),
                         bank.add.eq(increment.valid & (increment.payload < self._counters))]
            for index, read in enumerate(self.reads):
                m.d.comb += bank.reads[index].index.eq(read.index)
                totals[index] = totals[index] + bank.reads[index].total
        for read, total in zip(self.reads, totals, strict=True):
            m.d.comb += read.total.eq(total)
        return m
