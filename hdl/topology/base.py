"""What every topology offers: cards, links, node ids and the figures that bounds are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

__all__ = ["DimValues", "Link", "Topology"]

#: Values of one ``DimConfig`` of :mod:`hdl.ports`.
DimValues = dict[str, int]


@dataclass(frozen=True)
class Link:
    """One directed link: port ``source_port`` of card ``source`` feeds ``target_port`` of
    ``target``. Cards are ranks; ports are numbered as in ``RouterParams``."""

    source: int
    source_port: int
    target: int
    target_port: int


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
    @abstractmethod
    def dim_count(self) -> int:
        """Dimensions that routers must have to serve this topology."""

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
        """Node id of a card."""

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
    def ring_order(self, ranks: Sequence[int] | None = None) -> list[int]:
        """A cyclic order of a group (all cards by default) in which consecutive members, the last
        and the first included, are neighbours where the topology allows it."""

    def farthest(self, ranks: Sequence[int]) -> int:
        """Most hops between two cards of a group."""
        if len(ranks) == self.cards:
            return self.diameter
        return max((self.hops(a, b) for a in ranks for b in ranks), default=0)

    def all_pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs (source, destination) of two cards."""
        return permutations(range(self.cards), 2)

    def dependency_pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs (source, destination) that are enough to judge the router's own routes: these lead
        all pairs to their destinations and close no cycle of dependencies if they do so for the
        pairs given here. All pairs, unless a topology has a proof that fewer do."""
        return self.all_pairs()

    @cached_property
    def link_at(self) -> dict[tuple[int, int], Link]:
        """Link that leaves (rank, port)."""
        return {(link.source, link.source_port): link for link in self.links}

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
