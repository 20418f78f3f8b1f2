"""Rings, meshes and tori of one to three dimensions.

Ranks count dimension 0 fastest. A node id gives dimension ``d`` a bit field of ⌈log2 size⌉ bits,
dimension 0 at the least significant ones; with sizes that are powers of two, id and rank agree.

Port ``2*d`` leads one up in dimension ``d``, port ``2*d + 1`` one down; what leaves by one arrives
at the neighbour's other. A closed dimension of size 2 has two links in parallel in each direction;
a dimension of size 1 has none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

from hdl.layouts import NODE_BITS

from .base import DimValues, Link, Topology
from .cycles import Walk, product

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid(Topology):
    """A mesh (``wrap`` false) or torus (``wrap`` true) of ``sizes`` cards per dimension."""

    sizes: tuple[int, ...]
    wrap: bool

    def __post_init__(self) -> None:
        if not 1 <= len(self.sizes) <= 3:
            raise ValueError(f"{self.spec}: a grid has 1 to 3 dimensions, not {len(self.sizes)}")
        for size in self.sizes:
            if size < 1:
                raise ValueError(f"{self.spec}: a dimension has at least 1 card, not {size}")
        if sum(self._widths) > NODE_BITS:
            raise ValueError(f"{self.spec}: node ids need {sum(self._widths)} bits, and have "
                             f"{NODE_BITS}")

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        return tuple((size - 1).bit_length() for size in self.sizes)

    @cached_property
    def _shifts(self) -> tuple[int, ...]:
        return tuple(sum(self._widths[:d]) for d in range(len(self.sizes)))

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return tuple(prod(self.sizes[:d]) for d in range(len(self.sizes)))

    @property
    def cards(self) -> int:
        return prod(self.sizes)

    @property
    def dim_count(self) -> int:
        return len(self.sizes)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        self.check_rank(rank)
        return tuple(rank // stride % size
                     for stride, size in zip(self._strides, self.sizes, strict=True))

    def at(self, coordinates: Sequence[int]) -> int:
        """Rank of the card at ``coordinates``."""
        return sum(stride * x for stride, x in zip(self._strides, coordinates, strict=True))

    def node_id(self, rank: int) -> int:
        return sum(x << shift
                   for x, shift in zip(self.coordinates(rank), self._shifts, strict=True))

    def rank(self, node_id: int) -> int:
        coordinates = [node_id >> shift & (1 << width) - 1
                       for shift, width in zip(self._shifts, self._widths, strict=True)]
        if (any(x >= size for x, size in zip(coordinates, self.sizes, strict=True))
                or not 0 <= node_id < 1 << sum(self._widths)):
            raise ValueError(f"{self.spec} has no node {node_id:#x}")
        return self.at(coordinates)

    def dims(self, rank: int, count: int) -> list[DimValues]:
        self.check_rank(rank)
        if count < len(self.sizes):
            raise ValueError(f"{self.spec} needs routers of {len(self.sizes)} dimensions, not "
                             f"{count}")
        there = [{"mask": (1 << width) - 1 << shift, "size": size << shift, "wrap": int(self.wrap)}
                 if size > 1 else {"mask": 0, "size": 0, "wrap": 0}
                 for width, shift, size in zip(self._widths, self._shifts, self.sizes, strict=True)]
        return there + [{"mask": 0, "size": 0, "wrap": 0}] * (count - len(there))

    def neighbour(self, rank: int, port: int) -> int | None:
        """Card that a link port leads to, or ``None`` if the port is open."""
        dim, down = divmod(port, 2)
        if dim >= len(self.sizes) or self.sizes[dim] == 1:
            return None
        place = list(self.coordinates(rank))
        place[dim] += -1 if down else 1
        if not 0 <= place[dim] < self.sizes[dim]:
            if not self.wrap:
                return None
            place[dim] %= self.sizes[dim]
        return self.at(place)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        return tuple(Link(rank, port, target, port ^ 1)
                     for rank in range(self.cards) for port in range(2 * len(self.sizes))
                     if (target := self.neighbour(rank, port)) is not None)

    def hops(self, a: int, b: int) -> int:
        return sum(self._distance(x, y, size) for x, y, size in zip(
            self.coordinates(a), self.coordinates(b), self.sizes, strict=True))

    def _distance(self, x: int, y: int, size: int) -> int:
        straight = abs(x - y)
        return min(straight, size - straight) if self.wrap else straight

    @cached_property
    def diameter(self) -> int:
        return sum(size // 2 if self.wrap else size - 1 for size in self.sizes)

    @cached_property
    def hops_mean(self) -> float:
        # Distances from one card of a ring add up to ⌊n²/4⌋; all distances of a line to (n³ − n)/3.
        return float(sum(Fraction(size * size // 4, size) if self.wrap
                         else Fraction(size * size - 1, 3 * size) for size in self.sizes))

    @cached_property
    def bisection(self) -> int:
        return (2 if self.wrap else 1) * _array_bisection(
            tuple(size for size in self.sizes if size > 1))

    def farthest(self, ranks: Sequence[int]) -> int:
        axes = None if len(ranks) == self.cards else self._axes(ranks)
        if axes is None:
            return super().farthest(ranks)
        return sum(_span(axis, size, self.wrap)
                   for axis, size in zip(axes, self.sizes, strict=True))

    def _axes(self, ranks: Sequence[int]) -> list[list[int]] | None:
        """Coordinates of a group per dimension if it is a box (their product), else ``None``."""
        places = [self.coordinates(rank) for rank in ranks]
        axes = [sorted(set(axis)) for axis in zip(*places, strict=True)]
        return axes if prod(map(len, axes)) == len(ranks) else None

    def ring_order(self, ranks: Sequence[int] | None = None) -> list[int]:
        if ranks is None:
            return list(self._ring)
        group = self.check_group(ranks)
        axes = self._axes(group)
        if axes is None:  # keep the machine's own order
            members = set(group)
            return [rank for rank in self._ring if rank in members]
        return self._walk(axes)

    @cached_property
    def _ring(self) -> tuple[int, ...]:
        return tuple(self._walk([range(size) for size in self.sizes]))

    def _walk(self, axes: Sequence[Sequence[int]]) -> list[int]:
        walk = Walk(((),), closed=True)
        for axis, size in zip(axes, self.sizes, strict=True):
            # An axis is a closed walk if it is a ring, or so short that there and back is one.
            closed = len(axis) <= 2 or (self.wrap and len(axis) == size)
            walk = product(walk, Walk(tuple((x,) for x in axis), closed=closed))
        order = [self.at(place) for place in walk.places]
        first = order.index(min(order))
        return order[first:] + order[:first]

    def dependency_pairs(self) -> Iterator[tuple[int, int]]:
        """Two pairs per card of the lines through card 0.

        They are enough for ``hdl.fabric.route.next_hop``. Here is the proof; tests compare its
        result with all pairs on small fabrics.

        *Routes arrive*: a hop is one on a shortest way.

        *One line per dimension.* The router looks at the first dimension in which its node and the
        destination differ. Port and lanes follow from the two coordinates in it, from the rail
        and, if the packet came by a link of that dimension, from its lane; from nothing else. A
        link changes no coordinate but that of its dimension. So a packet crosses the dimensions in
        their order, enters each as if it were injected there, and moves in it as on any other line
        of that dimension. Dependencies between dimensions lead from a lower to a higher one: every
        cycle lies within a line, and one line of each dimension stands for all.

        *The first two hops of routes show every dependency of a line.* Take a packet to ``t`` that
        goes from card ``x`` to ``y`` by lane ``a`` and on by lane ``b``, and another one to ``t``
        that enters the line at ``x``. Direction follows from card, ``t`` and rail: they go the same
        way. The other packet may take ``a`` too: on the wrap link lanes depend on nothing else;
        ahead of it either both will cross it or neither will; behind it, ``t`` does not lie across
        it any more, so that any lane will do. At ``y`` they are in the same place and lane.

        *A target two hops off shows what a farther one does.* It lies in the same direction, being
        nearer. If the wrap link is one of the first two hops, both packets cross it, in the same
        lanes. If not, the nearer target lies ahead of the wrap link: its packet may enter by any
        lane, and both keep theirs on the second hop.
        """
        for size, stride in zip(self.sizes, self._strides, strict=True):
            for x in range(size):
                for y in (x - 2, x + 2):
                    if self.wrap:
                        y %= size
                    if x != y and 0 <= y < size:
                        yield x * stride, y * stride


def _span(axis: Sequence[int], size: int, wrap: bool) -> int:
    """Most hops between two coordinates of a line, given in rising order."""
    if not wrap:
        return axis[-1] - axis[0]
    # Distances grow up to half a turn. Of two cards, one is at most half a turn up from the other.
    return max((axis[bisect_right(axis, (x + size // 2) % size) - 1] - x) % size for x in axis)


def _array_bisection(sizes: tuple[int, ...]) -> int:
    """Fewest links between two halves of an array without wrap.

    An even dimension is cut in its middle. An odd one is cut around its middle layer, which is
    then halved itself: each column loses one link. Closing every dimension doubles the figure.
    """
    return min((prod(rest) + (0 if size % 2 == 0 else _array_bisection(rest))
                for d, size in enumerate(sizes)
                for rest in [sizes[:d] + sizes[d + 1:]]), default=0)
