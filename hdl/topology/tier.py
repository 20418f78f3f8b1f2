"""One tier of a machine: how groups of the tier below are joined, and what is known about that.

A tier joins ``size`` groups. Each group has *attach points*, and the attach points of equal index
are joined with each other, as a column:

=======  ==============================================================  ====================
kind     column                                                          attach points above
=======  ==============================================================  ====================
LINE     neighbours in a row have a link                                 those of all groups
RING     the row closed; two members have two links                      those of all groups
FULL     every two have a link                                           those of all groups
SWITCH   all are at one switch                                           ``uplinks`` per switch
=======  ==============================================================  ====================

The closed forms below are those of one column; ``docs/topology.md`` has their proofs.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hdl.ports import DimKind

__all__ = ["Tier", "TierKind"]


class TierKind(enum.Enum):
    """How the members of a column are joined; the value is the name in a specification."""

    LINE = "mesh"
    RING = "torus"
    FULL = "fullmesh"
    SWITCH = "switch"


_DIM_KINDS = {TierKind.LINE: DimKind.LINE, TierKind.RING: DimKind.RING,
              TierKind.FULL: DimKind.FULL}


@dataclass(frozen=True)
class Tier:
    """A tier of a machine."""

    kind: TierKind
    #: Groups that it joins.
    size: int
    #: Parallel links in place of each link.
    width: int = 1
    #: Attach points of a switch of this tier.
    uplinks: int = 1
    #: Cycles of its links; ``None`` is that of ``LinkParams``.
    latency: int | None = None

    @property
    def direct(self) -> bool:
        """Members are joined by links, not by a switch."""
        return self.kind is not TierKind.SWITCH

    @property
    def bits(self) -> int:
        """Width of the coordinate's field in a node id."""
        return (self.size - 1).bit_length()

    @property
    def dim_kind(self) -> DimKind:
        """What a router calls a direct tier."""
        return _DIM_KINDS[self.kind]

    @property
    def ports(self) -> int:
        """Ports of a member of a direct column."""
        return max(1, self.size - 1) if self.kind is TierKind.FULL else 2

    def neighbours(self, x: int) -> list[tuple[int, int, int]]:
        """(port, neighbour, its port) of member ``x`` of a direct column, in the order of ports."""
        if self.kind is TierKind.FULL:
            return [(y - (y > x), y, x - (x > y)) for y in range(self.size) if y != x]
        ends = [(0, x + 1, 1), (1, x - 1, 0)]
        if self.kind is TierKind.RING and self.size > 1:
            return [(port, y % self.size, back) for port, y, back in ends]
        return [end for end in ends if 0 <= end[1] < self.size]

    def port_to(self, x: int, y: int) -> int:
        """Port by which a direct column leads from ``x`` to another member ``y`` on a shortest way;
        where both ways around are equal, up from even members."""
        if self.kind is TierKind.FULL:
            return y - (y > x)
        if self.kind is TierKind.LINE:
            return int(y < x)
        up = 2 * ((y - x) % self.size)
        return int(up > self.size or (up == self.size and x % 2 == 1))

    def distance(self, x: int, y: int) -> int:
        """Links between two members of a direct column."""
        straight = abs(x - y)
        if self.kind is TierKind.FULL:
            return min(straight, 1)
        return min(straight, self.size - straight) if self.kind is TierKind.RING else straight

    @property
    def diameter(self) -> int:
        """Most links between two members of a direct column."""
        return self.span(range(self.size))

    def span(self, members: Sequence[int]) -> int:
        """Most links between two of some members of a direct column, given in rising order."""
        if self.kind is TierKind.FULL:
            return int(len(members) > 1)
        if self.kind is TierKind.LINE:
            return members[-1] - members[0]
        # Distances grow up to half a turn. Of two members one is at most half a turn up.
        half = self.size // 2
        return max((members[bisect_right(members, (x + half) % self.size) - 1] - x) % self.size
                   for x in members)

    @property
    def distance_mean(self) -> Fraction:
        """Mean links between two members of a direct column, a member with itself included."""
        n = self.size
        if self.kind is TierKind.FULL:
            return Fraction(n - 1, n)
        # Distances from one member of a ring add up to ⌊n²/4⌋; all of a line to (n³ − n)/3.
        return Fraction(n * n // 4, n) if self.kind is TierKind.RING else Fraction(n * n - 1, 3 * n)

    @property
    def cut(self) -> int:
        """Links in one direction between two halves of a column, the switch on the better side.
        Of an odd number, the member in the middle belongs to either half: the figure is the same.
        """
        low, high = self.size // 2, self.size - self.size // 2
        return {TierKind.LINE: min(low, 1), TierKind.RING: 2 * min(low, 1),
                TierKind.FULL: low * high, TierKind.SWITCH: low}[self.kind]

    @property
    def load(self) -> Fraction:
        """Paths over the busiest link of a direct column if every member sends to each other one,
        divided as evenly as symmetry allows."""
        n = self.size
        return {TierKind.LINE: Fraction(n * n // 4), TierKind.FULL: Fraction(1),
                TierKind.RING: Fraction(n * n // 4, 2)}[self.kind]
