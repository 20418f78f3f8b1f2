"""Watchdog: ends commands that have waited, or been under way, for longer than the deadline.

One comparison with ``now`` is all that runs all the time: with the earliest deadline of what is
under way, or an earlier one that has meanwhile no command. When it has passed, everything under way
is looked at in turn, one a cycle: what is older than the deadline expires, and of the rest the
earliest deadline is kept.

Latency law: what is ``live`` with stamp s expires, while it lives, in a cycle from ``s + deadline``
to ``s + deadline + 2 * items + 3``.

A new value of ``deadline`` counts for commands that start when nothing else is under way.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS

__all__ = ["Watchdog"]


class Watchdog(wiring.Component):
    """Watches ``items`` things that may be under way.

    Members
    -------
    now : ``In(48)``
    deadline : ``In(48)``
        Cycles; 0 watches nothing and costs a simulator nothing.
    live : ``In(items)``
        Those under way, a register.
    looks, index : ``Out(1)``, ``Out(range(items))``
        One is looked at, and which.
    stamp : ``In(48)``
        Cycle at which it began.
    expire : ``Out(items)``
        One-hot or 0: it is live and has been for too long.
    wake : ``Out(48)``
    active : ``Out(1)``
        Something changes before ``wake``.
    """

    def __init__(self, items: int) -> None:
        self._items = items
        super().__init__({
            "now": In(CYCLE_BITS), "deadline": In(CYCLE_BITS), "live": In(items),
            "looks": Out(1), "index": Out(range(items)), "stamp": In(CYCLE_BITS),
            "expire": Out(items), "wake": Out(CYCLE_BITS), "active": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        armed, looking, until = Signal(), self.looks, Signal(CYCLE_BITS)
        #: Evaluated only where they count.
        watching, begins, passed = Signal(), Signal(), Signal()
        m.d.comb += [self.wake.eq(Mux(armed, until, (1 << CYCLE_BITS) - 1)),
                     watching.eq(self.deadline != 0)]
        with m.If(armed):
            m.d.comb += passed.eq(self.now >= until)
        with m.If(watching):
            m.d.comb += [begins.eq(self.live.any() & ~armed),
                         self.active.eq(looking | begins)]
            with m.If(looking):
                self._look(m, armed, looking, until)
            with m.Elif(armed):
                with m.If(passed):
                    m.d.sync += [armed.eq(0), looking.eq(1), self.index.eq(0)]
            with m.Elif(begins):
                m.d.sync += [armed.eq(1), until.eq(self.now + self.deadline)]
        with m.Elif(armed | looking):
            m.d.comb += self.active.eq(1)
            m.d.sync += [armed.eq(0), looking.eq(0)]
        return m

    def _look(self, m: Module, armed: Signal, looking: Signal, until: Signal) -> None:
        due, item = Signal(CYCLE_BITS), Signal(self._items)
        found, late, sooner = Signal(), Signal(), Signal()
        m.d.comb += [
            due.eq(self.stamp + self.deadline), item.eq(1 << self.index),
            found.eq((self.live & item).any()), late.eq(due <= self.now),
            sooner.eq(found & ~late & (~armed | (due < until)))]
        with m.If(found & late):
            m.d.comb += self.expire.eq(item)
        with m.If(sooner):
            m.d.sync += [armed.eq(1), until.eq(due)]
        m.d.sync += self.index.eq(self.index + 1)
        with m.If(self.index == self._items - 1):
            m.d.sync += looking.eq(0)
