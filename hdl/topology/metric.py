"""Distances between cards, counted in hops or in cycles.

A route crosses each direct tier in which its ends differ, on a shortest way, and climbs to the
stage of the outermost such tier and down again. In what order is left to the routes: the length is
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import prod

from .stage import Stage
from .tier import Tier

__all__ = ["Metric"]


@dataclass(frozen=True)
class Metric:
    """Lengths of routes, if a link has a length by the stage that it leaves and by its tier."""

    tiers: tuple[Tier, ...]
    #: Stage to which packets climb that are for another group, per tier.
    levels: tuple[int, ...]
    #: Length of a link, per tier; 0 for switch tiers.
    direct: tuple[int, ...]
    #: Length of the way up to each stage and down again.
    climbs: tuple[int, ...]

    @classmethod
    def of(cls, stages: Sequence[Stage], length: Callable[[Stage, int], int]) -> Metric:
        """The metric of a machine with these stages."""
        tiers = stages[0].tiers
        levels = tuple(max(stage.level for stage in stages if stage.own <= t)
                       for t in range(len(tiers)))
        return cls(
            tiers, levels,
            tuple(length(stages[level], t) if tier.direct else 0
                  for t, (tier, level) in enumerate(zip(tiers, levels, strict=True))),
            tuple(accumulate((length(stage.below, stage.own) + length(stage, stage.own)
                              for stage in stages if stage.below), initial=0)))

    def between(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Length of the route between two cards, given by their coordinates."""
        total = top = 0
        for x, y, tier, length, level in zip(a, b, self.tiers, self.direct, self.levels,
                                             strict=True):
            if x != y:
                top = level
                if length:
                    total += tier.distance(x, y) * length
        return total + self.climbs[top]

    def across(self, axes: Sequence[Sequence[int]]) -> int:
        """Longest route within a box of cards: all those with coordinates on these axes."""
        top = max((level for level, axis in zip(self.levels, axes, strict=True) if len(axis) > 1),
                  default=0)
        return self.climbs[top] + sum(
            tier.span(axis) * length
            for tier, axis, length in zip(self.tiers, axes, self.direct, strict=True) if length)

    @property
    def mean(self) -> Fraction:
        """Mean over all ordered pairs of cards, a card with itself included."""
        sizes = [tier.size for tier in self.tiers]
        total = sum((tier.distance_mean * length
                     for tier, length in zip(self.tiers, self.direct, strict=True) if length),
                    start=Fraction(0))
        for level in range(1, len(self.climbs)):
            # A packet climbs to a stage unless all coordinates from its tier on agree.
            agree = prod(sizes[self.levels.index(level):])
            total += (self.climbs[level] - self.climbs[level - 1]) * (1 - Fraction(1, agree))
        return total
