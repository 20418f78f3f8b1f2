"""The lines of a group: where its members lie along each dimension, and what a step along one
costs.

A group is a *box* if it is all combinations of some coordinates per dimension: a whole machine, or
a part of it. Its dimensions are the topology's tiers with more than one such coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hdl.topology import Tiered, Topology
from hdl.topology.tier import Tier, TierKind

__all__ = ["Line", "lines_of"]


@dataclass(frozen=True)
class Line:
    """One dimension of a box.

    Attributes
    ----------
    tier : Tier
    places : tuple of int
        The coordinates, rising.
    stride : int
        Difference in rank of neighbouring coordinates.
    share : int
        Cards whose paths begin at one attach point of this tier: 1 where cards have links of it.
    """

    tier: Tier
    places: tuple[int, ...]
    stride: int
    share: int

    @property
    def size(self) -> int:
        return len(self.places)

    def rings(self, size: int) -> tuple[int, ...]:
        """The coordinates, as rings of ``size`` neighbours one after the other, each in an order in
        which every step is as short as the tier allows, the one from its end to its start too."""
        if self.tier.kind in (TierKind.FULL, TierKind.SWITCH) or (
                self.tier.kind is TierKind.RING and size == self.tier.size):
            return self.places
        rings = [self.places[first:first + size] for first in range(0, self.size, size)]
        # There, and back over those left out.
        return tuple(place for ring in rings for place in ring[::2] + ring[1::2][::-1])

    def load(self, order: Sequence[int], stride: int, factor: int) -> int:
        """Paths over the busiest link when every member sends to the one whose digit, of a stage of
        ``factor`` members ``stride`` apart in ``order``, is one above its own."""
        source, target = self._pairs(order, stride, factor)
        if not self.tier.direct or self.tier.kind is TierKind.FULL:
            return -(-self.share // self.tier.width)
        up = np.array([self.tier.port_to(int(x), int(y)) == 0
                       for x, y in zip(source, target, strict=True)])
        busiest = 0
        for first, last in ((source[up], target[up]), (target[~up], source[~up])):
            # Each path takes the links from first up to last, around the end if last is lower.
            steps = np.zeros(self.tier.size + 1, np.int64)
            np.add.at(steps, first, 1)
            np.add.at(steps, last, -1)
            steps[0] += (last < first).sum()
            busiest = max(busiest, int(np.cumsum(steps).max()))
        return -(-busiest * self.share // self.tier.width)

    def flight(self, topology: Topology, order: Sequence[int], stride: int, factor: int,
               base: int, latency: int) -> int:
        """Cycles of the longest of these paths; ``base`` is the rank of the line's member at
        coordinate 0."""
        source, target = self._pairs(order, stride, factor)
        pairs = list(zip(source.tolist(), target.tolist(), strict=True))
        x, y = max(pairs, key=lambda pair: self.tier.distance(*pair)) if self.tier.direct else (
            pairs[0])
        return topology.flight(base + x * self.stride, base + y * self.stride, latency)

    def _pairs(self, order: Sequence[int], stride: int,
               factor: int) -> tuple[np.ndarray, np.ndarray]:
        places = np.arange(self.size)
        digit = places // stride % factor
        peers = places + stride * ((digit + 1) % factor - digit)
        along = np.array(order)
        return along[places], along[peers]


def lines_of(topology: Topology, ranks: Sequence[int]) -> list[Line] | None:
    """The dimensions of a group in which it has more than one coordinate, innermost first; ``None``
    if the group is no box."""
    if not isinstance(topology, Tiered):
        return None
    places = np.array(ranks)
    axes, lines = [], []
    stride = cards = points = 1
    for tier in topology.tiers:
        axis = tuple(np.unique(places // stride % tier.size).tolist())
        axes.append(axis)
        if len(axis) > 1:
            lines.append(Line(tier, axis, stride, max(1, cards // points)))
        stride *= tier.size
        cards *= tier.size
        points *= tier.size if tier.direct else tier.uplinks
    return lines if prod(map(len, axes)) == len(ranks) else None
