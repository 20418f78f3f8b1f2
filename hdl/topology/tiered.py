"""Machines: every topology is a stack of tiers.

Ranks count the innermost tier fastest. A node id gives each tier a bit field of ⌈log2 size⌉ bits,
the innermost at the least significant ones; with sizes that are powers of two, id and rank agree.
Switches have ids from 0xFFFF downwards.

Routers of cards serve the direct tiers below the first switch tier, one dimension each, and reach
everything else by an uplink, their last dimension. So packets correct the innermost coordinates
first, on the way up, and routes are shortest (see ``tables`` for the switches).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, permutations
from math import prod

from hdl.layouts import NODE_BITS
from hdl.params import CardParams, SwitchParams
from hdl.ports import DimKind

from .base import ABSENT, ROUTER_CYCLES, SWITCH_CYCLES, DimValues, Link, TableEntry, Topology
from .cuts import Cuts
from .limits import problems
from .metric import Metric
from .orders import ring_walk
from .stage import Stage, stages_of
from .tables import Level, levels_of, table_bits, table_of
from .tier import Tier, TierKind

__all__ = ["Tiered"]


@dataclass(frozen=True)
class Tiered(Topology):
    """A machine of ``tiers``, innermost first."""

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        for problem in problems(self.tiers, self.stages):
            raise ValueError(f"{self.spec}: {problem}")

    # What there is.

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Cards, then the switches of each switch tier."""
        return stages_of(self.tiers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Groups that each tier joins."""
        return tuple(tier.size for tier in self.tiers)

    @cached_property
    def cards(self) -> int:
        return prod(self.sizes)

    @cached_property
    def switches(self) -> int:
        return sum(stage.count for stage in self.stages[1:])

    def stage(self, node: int) -> Stage:
        """The stage that a node belongs to.

        Raises
        ------
        ValueError
            If there is no such node.
        """
        if not 0 <= node < self.nodes:
            raise ValueError(f"{self.spec} has no node {node}: nodes are 0 to {self.nodes - 1}")
        return next(stage for stage in reversed(self.stages) if stage.first <= node)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        return tuple(link for stage in self.stages for q in range(stage.count)
                     for link in stage.links(q))

    def upward(self, link: Link) -> bool:
        """It leads up along a line or around a ring, rather than down."""
        stage, tier = self.stage(link.source), self.tiers[link.tier]
        return link.source_port - stage.bases[link.tier] < stage.uplinks * tier.width

    @property
    def tier_latency(self) -> tuple[int | None, ...]:
        return tuple(tier.latency for tier in self.tiers)

    # Names on the wire.

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        return tuple(tier.bits for tier in self.tiers)

    @cached_property
    def _shifts(self) -> tuple[int, ...]:
        return tuple(accumulate(self._widths, initial=0))[:-1]

    @property
    def fields(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._shifts, self.sizes, strict=True))

    @property
    def group(self) -> int:
        """Cards that are joined directly."""
        return self.stages[0].places

    @cached_property
    def _masks(self) -> tuple[int, ...]:
        return tuple((1 << width) - 1 << shift
                     for width, shift in zip(self._widths, self._shifts, strict=True))

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return tuple(accumulate(self.sizes, int.__mul__, initial=1))[:-1]

    def coordinates(self, rank: int) -> tuple[int, ...]:
        self.check_rank(rank)
        return tuple(rank // stride % size
                     for stride, size in zip(self._strides, self.sizes, strict=True))

    def place(self, node: int) -> tuple[int | None, ...]:
        """Coordinates of a node; a switch has none in its own tier and in switch tiers below."""
        stage = self.stage(node)
        return tuple(stage.coordinates(node - stage.first))

    def at(self, coordinates: Sequence[int]) -> int:
        """Rank of the card at ``coordinates``."""
        return sum(stride * x for stride, x in zip(self._strides, coordinates, strict=True))

    def node_id(self, rank: int) -> int:
        if self.cards <= rank < self.nodes:
            return (1 << NODE_BITS) - 1 - (rank - self.cards)
        return sum(x << shift
                   for x, shift in zip(self.coordinates(rank), self._shifts, strict=True))

    def rank(self, node_id: int) -> int:
        coordinates = [node_id >> shift & (1 << width) - 1
                       for shift, width in zip(self._shifts, self._widths, strict=True)]
        if (any(x >= size for x, size in zip(coordinates, self.sizes, strict=True))
                or not 0 <= node_id < 1 << sum(self._widths)):
            raise ValueError(f"{self.spec} has no node {node_id:#x}")
        return self.at(coordinates)

    # What routes: routers of cards, tables of switches.

    @cached_property
    def dim_ports(self) -> tuple[int, ...]:
        cards = self.stages[0]
        return (*(self.tiers[t].ports for t in cards.inner), *([1] if self.switches else []))

    def dims(self, rank: int, count: int) -> list[DimValues]:
        self.check_rank(rank)
        if count < self.dim_count:
            raise ValueError(f"{self.spec} needs routers of {self.dim_count} dimensions, not "
                             f"{count}")
        cards = self.stages[0]
        there: list[DimValues] = [
            {"mask": self._masks[t], "size": self.tiers[t].size << self._shifts[t],
             "kind": self.tiers[t].dim_kind} if self.tiers[t].size > 1 else ABSENT
            for t in cards.inner]
        if self.switches:
            there.append({"mask": sum(self._masks[cards.up:]), "size": 0, "kind": DimKind.UP})
        return there + [ABSENT] * (count - len(there))

    @cached_property
    def table_bits(self) -> int:
        return max(map(table_bits, self.stages[1:])) if self.switches else super().table_bits

    def switch(self, params: CardParams) -> SwitchParams:
        if not self.switches:
            return super().switch(params)
        radix = max(2, *(stage.ports for stage in self.stages[1:]))
        return SwitchParams(link=params.link, radix=radix, table_bits=self.table_bits)

    def _switch(self, node: int) -> Stage:
        stage = self.stage(node)
        if stage.below is None:
            raise ValueError(f"{self.spec}: node {node} is a card, which has no route table")
        return stage

    def switch_levels(self, node: int) -> list[dict[str, int]]:
        stage = self._switch(node)
        place = stage.coordinates(node - stage.first)

        def values(level: Level) -> dict[str, int]:
            return {"mask": sum(self._masks[t] for t in level.agree),
                    "value": sum((place[t] or 0) << self._shifts[t] for t in level.agree),
                    "shift": self._shifts[level.tier] - level.spread}
        return [values(level) for level in levels_of(stage)]

    def switch_table(self, node: int) -> list[TableEntry]:
        stage = self._switch(node)
        return list(table_of(stage, node - stage.first, self.table_bits))

    # Distances.

    @cached_property
    def _in_hops(self) -> Metric:
        return Metric.of(self.stages, lambda stage, t: 1)

    def _in_cycles(self, latency: int) -> Metric:
        def cycles(stage: Stage, t: int) -> int:
            own = self.tiers[t].latency
            return (SWITCH_CYCLES if stage.below else ROUTER_CYCLES) + (
                latency if own is None else own)
        return Metric.of(self.stages, cycles)

    def link_cycles(self, link: Link, latency: int) -> int:
        """Cycles of a link and of the node that it leaves, at its fastest; links without a latency
        of their own have ``latency``."""
        own = self.tiers[link.tier].latency
        node = ROUTER_CYCLES if link.source < self.cards else SWITCH_CYCLES
        return node + (latency if own is None else own)

    def _longest(self, ranks: Sequence[int], metric: Metric) -> int:
        axes = self._axes(ranks)
        if axes is not None:
            return metric.across(axes)
        places = [self.coordinates(rank) for rank in ranks]
        return max((metric.between(a, b) for a in places for b in places), default=0)

    def _axes(self, ranks: Sequence[int]) -> list[Sequence[int]] | None:
        """Coordinates of a group per tier if it is a box (their product), else ``None``."""
        if len(ranks) == self.cards:
            return [range(size) for size in self.sizes]
        places = [self.coordinates(rank) for rank in ranks]
        axes: list[Sequence[int]] = [sorted(set(axis)) for axis in zip(*places, strict=True)]
        return axes if axes and prod(map(len, axes)) == len(ranks) else None

    def hops(self, a: int, b: int) -> int:
        return self._in_hops.between(self.coordinates(a), self.coordinates(b))

    def flight(self, a: int, b: int, latency: int) -> int:
        return self._in_cycles(latency).between(self.coordinates(a), self.coordinates(b))

    def farthest(self, ranks: Sequence[int]) -> int:
        return self._longest(ranks, self._in_hops)

    def longest_flight(self, ranks: Sequence[int], latency: int) -> int:
        return self._longest(ranks, self._in_cycles(latency))

    @cached_property
    def diameter(self) -> int:
        return self.farthest(range(self.cards))

    @cached_property
    def hops_mean(self) -> float:
        return float(self._in_hops.mean)

    # Cuts.

    @cached_property
    def _cuts(self) -> Cuts:
        return Cuts(self.tiers)

    @property
    def bisection(self) -> int:
        return self._cuts.bisection

    @property
    def bisection_proof(self) -> str | None:
        return self._cuts.proof

    def narrowest_cut(self, ranks: Sequence[int]) -> int | None:
        axes = self._axes(ranks) or list(zip(*map(self.coordinates, ranks), strict=True))
        return self._cuts.narrowest(axes)

    # Orders.

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
        order = [self.at(place) for place in ring_walk(self.tiers, self.stages[0].up, axes)]
        first = order.index(min(order))
        return order[first:] + order[:first]

    def dependency_pairs(self) -> Iterator[tuple[int, int]]:
        for t, stride in self.stages[0].strides.items():
            tier = self.tiers[t]
            for x in range(tier.size):
                if tier.kind is TierKind.FULL:
                    ends = set(range(tier.size))
                elif tier.kind is TierKind.RING:
                    ends = {(x - 2) % tier.size, (x + 2) % tier.size}
                else:
                    ends = {x - 2, x + 2} & set(range(tier.size))
                for y in sorted(ends - {x}):
                    yield x * stride, y * stride

    def line_pairs(self) -> Iterator[tuple[int, int]]:
        for t, stride in self.stages[0].strides.items():
            for x, y in permutations(range(self.tiers[t].size), 2):
                yield x * stride, y * stride
