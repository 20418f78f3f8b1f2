"""Cuts of a machine: how few links hold two parts of it together.

Every figure here is a cut that exists, so what has to cross it bounds any run from below. Whether
no narrower one exists is another question: ``proof`` says why, where there is a reason.

A tier is cut in the middle of all its columns, a switch going with the larger part of its groups.
An odd tier is cut around its middle groups, which are then halved themselves. Tiers below lie
within a part; so do those above, since attach points of equal index are joined.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, prod

from .tier import Tier, TierKind

__all__ = ["Cuts"]

#: Where all tiers are direct and of one kind, halving in order of size is best.
_THEOREMS = {
    TierKind.LINE: "array: Azizoglu and Egecioglu",
    TierKind.RING: "torus: Arjona Aroca and Fernandez Anta",
    TierKind.FULL: "product of complete graphs: Lindsey",
}


class Cuts:
    """The cuts of a stack of tiers."""

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._tiers = tuple(tiers)
        self._sizes = tuple(tier.size for tier in tiers)

    def _attaches(self, sizes: Sequence[int], count: int) -> int:
        """Attach points of a group of the innermost ``count`` tiers."""
        return prod(size if tier.direct else tier.uplinks
                    for tier, size in zip(self._tiers[:count], sizes, strict=False))

    def _columns(self, sizes: Sequence[int], t: int) -> int:
        return self._attaches(sizes, t) * prod(sizes[t + 1:])

    @cached_property
    def bisection(self) -> int:
        """Links in one direction of the narrowest known cut into halves."""
        @cache
        def narrowest(sizes: tuple[int, ...]) -> int:
            return min((
                self._columns(sizes, t) * tier.cut * tier.width
                + (narrowest((*sizes[:t], 1, *sizes[t + 1:])) if size % 2 else 0)
                for t, (tier, size) in enumerate(zip(self._tiers, sizes, strict=True))
                if size > 1), default=0)
        return narrowest(self._sizes)

    @cached_property
    def proof(self) -> str | None:
        """Why no cut into halves is narrower; ``None`` if that is not known."""
        cards = prod(self._sizes)
        kinds = {tier.kind for tier in self._tiers if tier.size > 1}
        if not kinds:
            return "a single card"
        if len(kinds) == 1 and (theorem := _THEOREMS.get(next(iter(kinds)))):
            return theorem
        if kinds == {TierKind.SWITCH} and self.bisection == cards // 2 and all(
                tier.uplinks * above.width >= tier.size * tier.width
                for tier, above in zip(self._tiers, self._tiers[1:], strict=False)):
            return "rearrangeable: any half can send to the other at full rate"
        if self.bisection == ceil(Fraction((cards // 2) * (cards - cards // 2)) / self._load):
            return "uniform traffic loads no link more"
        return None

    @property
    def _load(self) -> Fraction:
        """Routes over the busiest link if every card sends to every other one, spread evenly."""
        cards = prod(self._sizes)

        def load(t: int, tier: Tier) -> Fraction:
            if tier.direct:
                return (Fraction(cards, tier.size) ** 2 * tier.load
                        / (self._columns(self._sizes, t) * tier.width))
            inside = prod(self._sizes[:t])
            return Fraction(inside * (cards - inside),
                            self._attaches(self._sizes, t) * tier.width)
        return max(load(t, tier) for t, tier in enumerate(self._tiers) if tier.size > 1)

    def narrowest(self, axes: Sequence[Collection[int]]) -> int | None:
        """Fewest links, in one direction, between a group of some tiers that has members among
        cards with these coordinates, and all other cards, with members among them too; ``None`` if
        no group divides them."""
        several = [len(set(axis)) > 1 for axis in axes]
        return min((self._leaving(count, axes) for count in range(1, len(axes))
                    if any(several[count:])), default=None)

    def _leaving(self, count: int, axes: Sequence[Collection[int]]) -> int:
        """Links that leave a group of the innermost ``count`` tiers."""
        links = 0
        for tier, axis in zip(self._tiers[count:], axes[count:], strict=True):
            degree = max(len(tier.neighbours(x)) for x in axis) if tier.direct else 1
            links += degree * tier.width
            if not tier.direct:
                break
        return self._attaches(self._sizes, count) * links
