"""Arbiter: which of several requesters goes first.

Latency law: the grant is a function of this cycle's requests and of a register.

Round robin is a fixed-priority choice made twice: among the requesters after the last one served,
and, only if there is none, among all of them. Both choices isolate the lowest set bit, ``x & -x``,
so an arbiter is a handful of operations on one word however many requesters it has.

Fairness: a requester that persists is served within as many accepted grants as there are
requesters. The pointer moves only when a grant is accepted, so an arbiter without requests, or
whose grants are not used, does not change.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.params import Policy

__all__ = ["Arbiter", "ArbiterModel", "behind", "first_of", "lowest_bit", "one_hot_index"]


def lowest_bit(mask: Value) -> Value:
    """The lowest set bit of ``mask`` alone, or 0."""
    return (mask & -mask)[:len(mask)]


def one_hot_index(mask: Value) -> Value:
    """Index of the only set bit of ``mask``; 0 if there is none."""
    bits = max(1, (len(mask) - 1).bit_length())
    return Cat(Cat(mask[index] for index in range(len(mask)) if index >> bit & 1).any()
               for bit in range(bits))


def first_of(request: Value, after: Value) -> Value:
    """The first of ``request`` among those in ``after``, or among all if there is none."""
    first = request & after
    return lowest_bit(Mux(first.any(), first, request))


def behind(grant: Value) -> Value:
    """All bits above the only one that is set in ``grant``."""
    # -(2g) has all bits above g set.
    return -(grant << 1)


class Arbiter(wiring.Component):
    """Choose one of ``n`` requesters.

    Parameters
    ----------
    n : int
        Number of requesters.
    policy : Policy

    Members
    -------
    request : ``In(n)``
        Who wants to be served.
    grant : ``Out(n)``
        One of them, one-hot; 0 without requests.
    accept : ``In(1)``
        The grant is used in this cycle.
    """

    def __init__(self, n: int, *, policy: Policy = Policy.ROUND_ROBIN) -> None:
        if not isinstance(n, int) or n < 1:
            raise ValueError(f"n must be an integer of at least 1, not {n!r}")
        if not isinstance(policy, Policy):
            raise ValueError(f"policy must be one of {', '.join(map(str, Policy))}, not {policy!r}")
        self._n, self._policy = n, policy
        super().__init__({"request": In(n), "grant": Out(n), "accept": In(1)})

    @property
    def n(self) -> int:
        return self._n

    @property
    def policy(self) -> Policy:
        return self._policy

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._policy is Policy.FIXED or self._n == 1:
            m.d.comb += self.grant.eq(lowest_bit(self.request))
            return m
        after = Signal(self._n)  # requesters behind the one served last
        first = Signal(self._n)
        m.d.comb += [
            first.eq(self.request & after),
            self.grant.eq(lowest_bit(Mux(first.any(), first, self.request))),
        ]
        with m.If(self.accept):
            # -(2g) has all bits above g set.
            m.d.sync += after.eq(-(self.grant << 1))
        return m


class ArbiterModel:
    """Reference model of :class:`Arbiter`, written from its definition."""

    def __init__(self, n: int, *, policy: Policy = Policy.ROUND_ROBIN) -> None:
        self.n, self.policy = n, policy
        self._last = n - 1

    def grant(self, request: int) -> int:
        """The grant mask for a request mask."""
        start = 0 if self.policy is Policy.FIXED else self._last + 1
        for step in range(self.n):
            index = (start + step) % self.n
            if request >> index & 1:
                return 1 << index
        return 0

    def accept(self, request: int) -> None:
        """The grant for ``request`` is used."""
        grant = self.grant(request)
        if grant:
            self._last = grant.bit_length() - 1
