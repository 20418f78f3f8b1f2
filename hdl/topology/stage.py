"""Stages: the cards, and the switches of each switch tier, with their ports and links.

A stage is what a packet climbs to: stage 0 are the cards, stage *m* the switches of the *m*-th
switch tier. Direct tiers between two switch tiers join the nodes of the stage below them.

Node *q* of a stage is ``p + planes · (x + places · rest)``: ``p`` counts the attach points of the
groups that its switch tier joins (0 for cards), ``x`` its coordinates in the stage's direct tiers,
``rest`` the coordinates in all tiers above, the innermost fastest in each. So a card's number is
its rank.

Ports of a switch: first down, ``width`` for each group; then the stage's direct tiers in their
order, as a router has them, each link ``uplinks · width`` times; then up, ``width`` for each of its
``uplinks`` attach points. Ports of a card: its dimensions, the last of them the uplink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

from .base import Link
from .tier import Tier

__all__ = ["Stage", "stages_of"]


@dataclass(frozen=True)
class Stage:
    """All nodes that are alike but for their place."""

    tiers: tuple[Tier, ...]
    #: Index of its switch tier, -1 for cards.
    own: int
    #: First tier above its direct tiers: a switch tier, or the number of tiers.
    up: int
    #: Number of its first node.
    first: int
    #: Attach points of a group below its switch tier: switches that join the same groups.
    planes: int
    below: Stage | None

    @property
    def level(self) -> int:
        """Switch tiers from the cards to here."""
        return 0 if self.below is None else self.below.level + 1

    @cached_property
    def inner(self) -> range:
        """Indices of the direct tiers that join its nodes."""
        return range(self.own + 1, self.up)

    @cached_property
    def strides(self) -> dict[int, int]:
        """Distance in ``x`` of coordinates of direct tiers."""
        sizes = [self.tiers[t].size for t in self.inner]
        return dict(zip(self.inner, accumulate(sizes, int.__mul__, initial=1), strict=False))

    @cached_property
    def places(self) -> int:
        """Places in its direct tiers."""
        return prod(self.tiers[t].size for t in self.inner)

    @cached_property
    def uplinks(self) -> int:
        """Attach points of a node."""
        return 1 if self.own < 0 else self.tiers[self.own].uplinks

    @cached_property
    def count(self) -> int:
        """Number of its nodes."""
        return self.planes * prod(tier.size for tier in self.tiers[self.own + 1:])

    @cached_property
    def bases(self) -> dict[int, int]:
        """First port of each of its tiers: its own, direct ones, and the one above."""
        tiers, bases, port = self.tiers, {}, 0
        if self.own >= 0:
            bases[self.own] = 0
            port = tiers[self.own].size * tiers[self.own].width
        for t in self.inner:
            bases[t] = port
            port += tiers[t].ports * self.uplinks * tiers[t].width
        if self.up < len(tiers):
            bases[self.up] = port
        return bases

    @cached_property
    def ports(self) -> int:
        """Number of link ports of a node."""
        if self.up < len(self.tiers):
            return self.bases[self.up] + self.uplinks * self.tiers[self.up].width
        if not self.inner:
            return self.tiers[self.own].size * self.tiers[self.own].width
        last = self.tiers[self.inner[-1]]
        return self.bases[self.inner[-1]] + last.ports * self.uplinks * last.width

    def coordinates(self, q: int) -> list[int | None]:
        """Coordinate of a node in each tier; ``None`` in switch tiers up to its own."""
        p, rest = q % self.planes, q // self.planes
        found: list[int | None] = [None] * (self.own + 1)
        for tier in self.tiers[self.own + 1:]:
            found.append(rest % tier.size)
            rest //= tier.size
        stage = self.below
        while stage is not None:
            place = p // stage.planes % stage.places
            for t, stride in stage.strides.items():
                found[t] = place // stride % self.tiers[t].size
            p, stage = p % stage.planes, stage.below
        return found

    def links(self, q: int) -> Iterator[Link]:
        """Links that leave a node, in the order of its ports."""
        node = self.first + q
        if self.below is not None:
            yield from self._down(node, q)
        p, rest = q % self.planes, q // self.planes
        place, rest = rest % self.places, rest // self.places
        for t, stride in self.strides.items():
            tier = self.tiers[t]
            x, many = place // stride % tier.size, self.uplinks * tier.width
            for port, y, back in tier.neighbours(x):
                for k in range(many):
                    yield Link(node, self.bases[t] + port * many + k,
                               node + (y - x) * stride * self.planes,
                               self.bases[t] + back * many + k, t)
        if self.up < len(self.tiers):
            yield from self._up(node, p + self.planes * place, rest)

    def _up(self, node: int, attach: int, rest: int) -> Iterator[Link]:
        tier = self.tiers[self.up]
        number, group = rest % tier.size, rest // tier.size
        attaches = self.planes * self.places
        first = self.first + self.count + attaches * self.uplinks * group
        for k in range(self.uplinks * tier.width):
            uplink, parallel = divmod(k, tier.width)
            yield Link(node, self.bases[self.up] + k, first + attach + attaches * uplink,
                       number * tier.width + parallel, self.up)

    def _down(self, node: int, q: int) -> Iterator[Link]:
        below, tier = self.below, self.tiers[self.own]
        assert below is not None
        plane, group = q % self.planes, q // self.planes
        attaches = below.planes * below.places
        uplink, attach = divmod(plane, attaches)
        for number in range(tier.size):
            target = below.first + attach + attaches * (number + tier.size * group)
            for parallel in range(tier.width):
                yield Link(node, number * tier.width + parallel, target,
                           below.bases[self.own] + uplink * tier.width + parallel, self.own)


def stages_of(tiers: Sequence[Tier]) -> tuple[Stage, ...]:
    """The stages of a machine, cards first."""
    tiers = tuple(tiers)
    switches = [t for t, tier in enumerate(tiers) if not tier.direct]
    stages: list[Stage] = []
    for own, up in zip([-1, *switches], [*switches, len(tiers)], strict=True):
        below = stages[-1] if stages else None
        stages.append(Stage(
            tiers, own, up, below.first + below.count if below else 0,
            below.planes * below.places * below.uplinks if below else 1, below))
    return tuple(stages)
