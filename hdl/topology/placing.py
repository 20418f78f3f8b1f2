"""Where a drawing puts nodes, and which way it leads its lines.

*Cards alone.* One dimension is a circle, or a row if it is a line. Two dimensions are a grid; a
third one sets planes back, one behind the other, each a little aside of the one before: two cards
share an abscissa only within a column of one plane and an ordinate only within a row of one plane,
so no line passes over a card that it does not join. Full meshes bow over the cards between. Where a
full mesh has three or four dimensions, the third and fourth lay blocks side by side instead, and
their lines do pass over other cards.

*With switches.* Each stage is a row, cards at the bottom; what joins nodes of a row bows over it.

A link that closes a line of a grid is dashed: two stubs that point away from each other, or, where
a dimension has two cards, a bow beside the link that it runs parallel to.
"""

from __future__ import annotations

from math import cos, hypot, pi, sin

from .base import Link
from .tier import TierKind
from .tiered import Tiered

__all__ = ["Placing", "RADIUS"]

RADIUS = 11
#: Room between cards that are neighbours in a row or column, beyond the planes' depth.
_PITCH = 60
#: One plane further back: further than a disc or a stub reaches.
_DEPTH = (34, -28)
#: From the middle of a card to the end of a stub.
_STUB = 25
_BOW = 18
#: Between nodes of a row, between parallel lines.
_STEP, _PARALLEL = 28, 4
_ROW = 150
#: Room that a bow leaves to the cards that it passes.
_CLEARANCE = RADIUS + 4

Point = tuple[float, float]


class Placing:
    """The places of the nodes of one topology."""

    def __init__(self, topology: Tiered) -> None:
        self._topology = topology
        self._sizes, self._kinds = topology.sizes, [tier.kind for tier in topology.tiers]
        self._meshed = TierKind.FULL in self._kinds
        self._circle = not topology.switches and len(self._sizes) == 1 and (
            topology.cards > 2 and self._kinds[0] is not TierKind.LINE)
        longest = max((size for size, kind in zip(self._sizes, self._kinds, strict=True)
                       if kind is TierKind.FULL), default=0)
        self._pitch = max(_PITCH, _bulge(longest - 1) + _CLEARANCE + 2 * RADIUS)
        if topology.switches:
            self.points = self._rows()
        elif self._circle:
            self.points = [self._on_circle(rank) for rank in range(topology.cards)]
        else:
            self.points = [self._on_grid(topology.coordinates(rank))
                           for rank in range(topology.cards)]

    def _on_circle(self, rank: int) -> Point:
        cards = self._topology.cards
        radius = max(60.0, cards * 3.2 * RADIUS / (2 * pi))
        angle = 2 * pi * rank / cards - pi / 2
        return radius * cos(angle), radius * sin(angle)

    def _on_grid(self, place: tuple[int, ...]) -> Point:
        x, y, z, w = (*place, 0, 0, 0)[:4]
        sizes = (*self._sizes, 1, 1, 1)
        if self._meshed and len(place) > 2:
            return ((x + z * (sizes[0] + 1)) * self._pitch, (y + w * (sizes[1] + 1)) * self._pitch)
        planes = sizes[2]
        return (x * (self._pitch + (planes - 1) * _DEPTH[0]) + z * _DEPTH[0],
                y * (self._pitch - (planes - 1) * _DEPTH[1]) + z * _DEPTH[1])

    def _rows(self) -> list[Point]:
        """A row per stage, nodes in the order of their numbers, spread over the same width."""
        stages = self._topology.stages
        width = _STEP * max(stage.count for stage in stages)
        height, points = 0.0, []
        for stage in stages:
            step = width / stage.count
            points += [((q + 0.5) * step, height) for q in range(stage.count)]
            arcs = max((self._arc(stage.first, stage.first + stage.count - 1, step),)
                       if any(self._sizes[t] > 1 for t in stage.inner) else (0.0,))
            height -= _ROW + arcs
        return points

    @staticmethod
    def _arc(a: int, b: int, step: float) -> float:
        """Height of a bow in a row."""
        return min(200.0, 12 + abs(b - a) * step / 4)

    def shown(self, link: Link) -> bool:
        """Of the two links between two ports, one is drawn: the one upwards, or to the higher
        number."""
        if self._kinds[link.tier] in (TierKind.LINE, TierKind.RING):
            return self._topology.upward(link)
        return link.source < link.target

    def closing(self, link: Link) -> bool:
        """It closes a line of a grid."""
        return not self._circle and not self._topology.switches and (
            self._kinds[link.tier] is TierKind.RING and link.target < link.source)

    def way(self, link: Link, parallel: int) -> str:
        """The line of a link; ``parallel`` counts those between the same two nodes."""
        a, b = self.points[link.source], self.points[link.target]
        if self.closing(link):
            return _beside(a, b) if self._sizes[link.tier] == 2 else _stubs(a, b)
        if self._topology.switches and a[1] == b[1]:
            step = abs(b[0] - a[0]) / abs(link.target - link.source)
            height = self._arc(link.source, link.target, step) + _PARALLEL * parallel
            return _bow(a, b, 2 * height if a[0] < b[0] else -2 * height)
        if self._kinds[link.tier] is TierKind.FULL and not self._circle:
            x, y = (self._topology.place(node)[link.tier] for node in (link.source, link.target))
            if (between := abs((x or 0) - (y or 0))) > 1:
                return _bow(a, b, 2 * _bulge(between))
        aside = _PARALLEL * parallel
        return _line((a[0] + aside, a[1]), (b[0] + aside, b[1]))


def _bulge(between: int) -> float:
    """Height of a bow over cards that keeps clear of the one next to its ends."""
    return _CLEARANCE * between ** 2 / (4 * (between - 1)) if between > 1 else 0.0


def _line(a: Point, b: Point) -> str:
    return f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"


def _bow(a: Point, b: Point, reach: float) -> str:
    """A curve whose control point is ``reach`` to the left of the middle, seen from ``a``."""
    ux, uy = _direction(a, b)
    x, y = (a[0] + b[0]) / 2 + reach * uy, (a[1] + b[1]) / 2 - reach * ux
    return f"M{a[0]:.1f} {a[1]:.1f}Q{x:.1f} {y:.1f} {b[0]:.1f} {b[1]:.1f}"


def _beside(a: Point, b: Point) -> str:
    return _bow(a, b, -_BOW)


def _stubs(last: Point, first: Point) -> str:
    ux, uy = _direction(first, last)
    return (_line(last, (last[0] + _STUB * ux, last[1] + _STUB * uy))
            + _line(first, (first[0] - _STUB * ux, first[1] - _STUB * uy)))


def _direction(a: Point, b: Point) -> Point:
    x, y = b[0] - a[0], b[1] - a[1]
    return x / hypot(x, y), y / hypot(x, y)
