"""A memory of 32-bit totals that all read 0 after reset.

A memory has no reset, so one bit per total, in registers, remembers whether it has been written
since; a total that was not counts as 0, whatever the memory holds.

Latency law: an addition in cycle t is in the totals read from cycle t + 1 on. Reads are
combinational.
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["TotalRead", "Totals"]


class TotalRead(wiring.Signature):
    """A look at one total, as its reader sees it: ``index`` out, ``total`` back in the same
    cycle."""

    def __init__(self) -> None:
        super().__init__({"index": Out(8), "total": In(32)})


class Totals(wiring.Component):
    """``depth`` totals with one port that adds and ``reads`` that look.

    Members
    -------
    add : ``In(1)``
        Add ``amount`` to total ``index``, which exists.
    index : ``In(8)``
    amount : ``In(32)``
    sum : ``Out(32)``
        Total ``index`` plus ``amount``, added or not.
    reads : ``In(TotalRead()).array(reads)``
        An index beyond the totals reads some value.
    """

    def __init__(self, *, depth: int, reads: int) -> None:
        if not 1 <= depth <= 256:
            raise ValueError(f"depth must be from 1 to 256, not {depth!r}")
        self._depth = depth
        super().__init__({
            "add": In(1), "index": In(8), "amount": In(32), "sum": Out(32),
            "reads": In(TotalRead()).array(reads),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=unsigned(32), depth=max(2, self._depth), init=[])
        written = Signal(self._depth)

        def look(index):
            port = memory.read_port(domain="comb")
            m.d.comb += port.addr.eq(index)
            return Mux(written.bit_select(index, 1), port.data, 0)

        write = memory.write_port()
        m.d.comb += [
            self.sum.eq(look(self.index) + self.amount),
            write.addr.eq(self.index), write.data.eq(self.sum), write.en.eq(self.add),
        ]
        with m.If(self.add):
            m.d.sync += written.bit_select(self.index, 1).eq(1)
        for read in self.reads:
            m.d.comb += read.total.eq(look(read.index))
        return m
