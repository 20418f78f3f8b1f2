"""What every topology offers: cards, links, node ids and the figures that bounds are made of."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any

from hdl.params import CardParams, RouterParams, SwitchParams
from hdl.ports import DimKind

__all__ = ["ABSENT", "ROUTER_CYCLES", "SWITCH_CYCLES", "DimValues", "Link", "TableEntry",
           "Topology"]

#: Fewest cycles from a router's link input register to its link output register.
ROUTER_CYCLES = 3
#: The same of a switch.
SWITCH_CYCLES = 4

#: Values of one ``DimConfig`` of :mod:`hdl.ports`.
DimValues = dict[str, Any]

#: A dimension that is not there.
ABSENT: DimValues = {"mask": 0, "size": 0, "kind": DimKind.LINE}


@dataclass(frozen=True)
class Link:
    """One directed link: port ``source_port`` of node ``source`` feeds ``target_port`` of
    ``target``. Nodes are the cards by rank, then the switches; ports of cards are numbered as in
    ``RouterParams``."""

    source: int
    source_port: int
    target: int
    target_port: int
    #: Which of the topology's ``tier_latency`` it has.
    tier: int = 0


@dataclass(frozen=True)
class TableEntry:
    """Where a node sends destinations of table level ``level`` with field value ``index``."""

    level: int
    index: int
    port: int
    #: Lane there; without one a packet keeps the lane on which it came. Switches know none.
    lane: int | None = None
    #: Input port at which it holds; at all of them without one.
    input: int | None = None


@dataclass(frozen=True)
class Topology(ABC):
    """Cards and the links between them. Immutable; equal specs are equal topologies.

    Cards are named by *rank* (0 … cards − 1). On the wire a card has a *node id*, which packs what
    routing needs.
    """

    #: The text that :func:`hdl.topology.parse` made this from.
    spec: str

    @property
    @abstractmethod
    def cards(self) -> int:
        """Number of cards."""

    @property
    def switches(self) -> int:
        """Number of switches: nodes without a card."""
        return 0

    @property
    def nodes(self) -> int:
        """Number of nodes: cards, then switches."""
        return self.cards + self.switches

    @property
    @abstractmethod
    def dim_ports(self) -> tuple[int, ...]:
        """Ports per dimension that the routers of cards must have to serve this topology."""

    @property
    def dim_count(self) -> int:
        """Dimensions that routers must have to serve this topology."""
        return len(self.dim_ports)

    def router(self, params: RouterParams) -> RouterParams:
        """``params`` if such a router serves this topology, else with ports that do."""
        has, needs = params.dim_ports[:self.dim_count], self.dim_ports
        # Ports are counted through the dimensions: only the last one may have some to spare.
        if len(has) == len(needs) and has[:-1] == needs[:-1] and has[-1] >= needs[-1]:
            return params
        return replace(params, dim_ports=needs)

    def card(self, params: CardParams) -> CardParams:
        """``params`` with a router that serves this topology."""
        router = self.router(params.router)
        return params if router == params.router else replace(params, router=router)

    @property
    def tier_latency(self) -> tuple[int | None, ...]:
        """Latency of the links of each tier in cycles; ``None`` is that of ``LinkParams``."""
        return (None,)

    def switch(self, params: CardParams) -> SwitchParams:
        """Parameters that serve all switches of this topology.

        Raises
        ------
        ValueError
            If it has none, or one would have more than 64 ports.
        """
        raise ValueError(f"{self.spec} has no switches")

    def switch_levels(self, node: int) -> Sequence[dict[str, int]]:
        """Levels (``mask``, ``value``, ``shift``) of a switch's route table, see
        ``hdl/fabric/table``."""
        raise ValueError(f"{self.spec} has no switches")

    def switch_table(self, node: int) -> Iterable[TableEntry]:
        """Entries of a switch's route table."""
        raise ValueError(f"{self.spec} has no switches")

    @property
    def table_bits(self) -> int:
        """Bits of the destination that index the route tables of switches."""
        raise ValueError(f"{self.spec} has no switches")

    @property
    def fields(self) -> tuple[tuple[int, int], ...] | None:
        """(position in a card's node id, number of values) of each coordinate, if the ids of cards
        are all combinations of these values."""
        return None

    @property
    @abstractmethod
    def links(self) -> tuple[Link, ...]:
        """All directed links, ordered by source and port."""

    @property
    @abstractmethod
    def bisection(self) -> int:
        """Links in one direction across the narrowest cut into two halves (of equal size, or one
        card apart)."""

    @property
    def bisection_proof(self) -> str | None:
        """Why there is no narrower cut; ``None`` if :attr:`bisection` is just the narrowest one
        known."""
        return None

    def narrowest_cut(self, ranks: Sequence[int]) -> int | None:
        """Links in one direction across a narrow cut that divides a group of cards; ``None`` if
        there is none to tell but around single cards and through the middle."""
        return None

    @property
    @abstractmethod
    def diameter(self) -> int:
        """Most hops between two cards."""

    @property
    @abstractmethod
    def hops_mean(self) -> float:
        """Mean hops of uniform traffic: over all ordered pairs, a card with itself included."""

    @abstractmethod
    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Position of a card, one coordinate per dimension."""

    @abstractmethod
    def node_id(self, rank: int) -> int:
        """Node id of a card or, from 0xFFFF downwards, of a switch."""

    @abstractmethod
    def rank(self, node_id: int) -> int:
        """Card with this node id.

        Raises
        ------
        ValueError
            If no card has it.
        """

    @abstractmethod
    def dims(self, rank: int, count: int) -> list[DimValues]:
        """``DimConfig`` values for the router of a card that is built with ``count`` dimensions.

        Raises
        ------
        ValueError
            If ``count`` is too small for this topology.
        """

    @abstractmethod
    def hops(self, a: int, b: int) -> int:
        """Links on the route from card ``a`` to card ``b``."""

    @abstractmethod
    def flight(self, a: int, b: int, latency: int) -> int:
        """Cycles from the router of card ``a`` to that of ``b``: links, and the nodes that they
        leave, at their fastest. Links without a latency of their own have ``latency``."""

    @abstractmethod
    def longest_flight(self, ranks: Sequence[int], latency: int) -> int:
        """Most cycles between two cards of a group."""

    @abstractmethod
    def farthest(self, ranks: Sequence[int]) -> int:
        """Most hops between two cards of a group."""

    @abstractmethod
    def ring_order(self, ranks: Sequence[int] | None = None) -> list[int]:
        """A cyclic order of a group (all cards by default) in which consecutive members, the last
        and the first included, are neighbours where the topology allows it."""

    def all_pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs (source, destination) of two cards."""
        return permutations(range(self.cards), 2)

    def dependency_pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs (source, destination) that are enough to judge the router's own routes: these lead
        all pairs to their destinations and close no cycle of dependencies if they do so for the
        pairs given here. All pairs, unless a topology has a proof that fewer do."""
        return self.all_pairs()

    def line_pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs of cards on one line of each dimension, or of the whole machine unless a
        topology has a proof that lines decide."""
        return self.all_pairs()

    @cached_property
    def link_at(self) -> dict[tuple[int, int], Link]:
        """Link that leaves (node, port)."""
        return {(link.source, link.source_port): link for link in self.links}

    # Names of ports and links, as messages give them and as find_link takes them.

    def node_name(self, node: int) -> str:
        """A card by its rank; a switch by its number after an ``s``."""
        return str(node) if node < self.cards else f"s{node - self.cards}"

    def port_name(self, node: int, port: int) -> str:
        """A port by its number or, where a dimension is a line or a ring, by direction and
        axis: ``+x``, ``-x``, ``+y`` …"""
        return self._directions.get(port, str(port)) if node < self.cards else str(port)

    def link_name(self, link: Link) -> str:
        """``NODE:PORT`` of the end that feeds the link."""
        return (f"{self.node_name(link.source)}:"
                f"{self.port_name(link.source, link.source_port)}")

    @cached_property
    def _directions(self) -> dict[int, str]:
        names: dict[int, str] = {}
        base = 0
        for axis, ports, dim in zip("xyzw", self.dim_ports, self.dims(0, self.dim_count),
                                    strict=False):
            if dim["kind"] in (DimKind.LINE, DimKind.RING):
                names |= {base: f"+{axis}", base + 1: f"-{axis}"}
            base += ports
        return names

    def find_link(self, text: str) -> Link:
        """Return the link that ``text`` names: ``NODE:PORT``, with a card's rank or ``s`` and a
        switch's number for the node, and for the port its number or, where a dimension is a line or
        ring, ``+x``, ``-x``, ``+y`` …

        Raises
        ------
        ValueError
            If there is no such link, with what is accepted.
        """
        accepted = (f"accepted is NODE:PORT, e.g. "
                    f"{self.link_name(self.links[0]) if self.links else '0:0'}")
        match = re.fullmatch(r"(s?)([0-9]+):([0-9]+|[+-][a-z])", text)
        if match is None:
            raise ValueError(f"{text!r} is no link: {accepted}")
        node = int(match[2]) + (self.cards if match[1] else 0)
        if node >= self.nodes:
            kinds = f"cards 0 to {self.cards - 1}" + (
                f" and switches s0 to s{self.switches - 1}" if self.switches else "")
            raise ValueError(f"{self.spec} has no node {match[1]}{match[2]}: accepted are {kinds}")
        ports = {link.source_port: link for link in self.links_of(node)}
        names = {self.port_name(node, port): link for port, link in ports.items()}
        link = ports.get(int(match[3])) if match[3].isdigit() else names.get(match[3])
        if link is None:
            raise ValueError(f"node {match[1]}{match[2]} of {self.spec} has no link at port "
                             f"{match[3]}: accepted are {', '.join(names) or 'none'}")
        return link

    def links_of(self, node: int) -> list[Link]:
        """Links that leave a node, in the order of its ports."""
        first, last = (bisect_left(self.links, each, key=lambda link: link.source)
                       for each in (node, node + 1))
        return list(self.links[first:last])

    def check_rank(self, rank: int) -> int:
        """Return ``rank``.

        Raises
        ------
        ValueError
            If there is no such card.
        """
        if not 0 <= rank < self.cards:
            raise ValueError(f"{self.spec} has no card {rank}: cards are 0 to {self.cards - 1}")
        return rank

    def check_group(self, ranks: Sequence[int] | None) -> list[int]:
        """Return the group as a list, all cards for ``None``.

        Raises
        ------
        ValueError
            If a rank does not exist or comes twice.
        """
        group = list(range(self.cards)) if ranks is None else [self.check_rank(r) for r in ranks]
        if len(set(group)) != len(group):
            raise ValueError(f"a group names each card once, not {group}")
        return group
