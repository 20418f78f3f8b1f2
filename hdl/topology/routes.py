"""Where packets go: the reference models of router and switch, on the finished fabric.

The same functions that RTL is tested against: ``fabric.route.next_hop`` for the cards' routers and
``fabric.table.table_index`` for the switches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hdl.fabric.table import table_index

from .base import DimValues, Link, Topology

__all__ = ["Hop", "NextHop", "Routes"]

#: ``next_hop(node, dst, in_port, in_lane, rail, dims, dim_ports=…, lanes=…, path=…) ->
#: (out_port, out_lanes)``: the router's reference model. Ports of the rails follow the link ports;
#: ``out_lanes`` are the lanes that a packet may take there.
NextHop = Callable[..., tuple[int, Sequence[int]]]


#: Lanes of a class that switches know.
_SWITCH_LANES: tuple[int, ...] = (0,)


class Hop(NamedTuple):
    """A link that a packet takes next, and the lanes that it may take there."""

    link: Link
    lanes: tuple[int, ...]


class Routes:
    """The routes of a topology.

    Parameters
    ----------
    topology : Topology
    lanes : int
        Lanes (virtual channels) per class.
    next_hop : callable, optional
        Another routing function of the cards.
    """

    def __init__(self, topology: Topology, *, lanes: int, next_hop: NextHop | None = None) -> None:
        if next_hop is None:
            from hdl.fabric.route import next_hop as router
            next_hop = router
        self._topology, self._lanes, self._next_hop = topology, lanes, next_hop
        self._dim_ports = topology.dim_ports
        self._count = len(self._dim_ports)
        #: First port of the rails.
        self.local = sum(self._dim_ports)
        self._id = cache(topology.node_id)
        self._dims: Callable[[int], list[DimValues]] = cache(
            lambda rank: topology.dims(rank, self._count))
        self.table = cache(self._table)

    def hop(self, node: int, target: int, in_port: int, in_lane: int, rail: int = 0,
            path: int = 0) -> Hop | None:
        """Next hop of a packet to card ``target``, ``None`` where it leaves the network.

        Raises
        ------
        ValueError
            If it goes by an open port, or by a lane that links do not have.
        """
        if node >= self._topology.cards:
            port, lanes = self.table(node).port(self._id(target)), _SWITCH_LANES
        else:
            port, found = self._next_hop(
                self._id(node), self._id(target), in_port, in_lane, rail, self._dims(node),
                dim_ports=self._dim_ports, lanes=self._lanes, path=path)
            lanes = tuple(found)
            if port >= self.local:
                return None
        link = self._topology.link_at.get((node, port))
        if link is None:
            raise ValueError(f"{self._topology.spec}: the route to card {target} leaves "
                             f"{self.describe(node)} by port {port}, which is open")
        if max(lanes) >= self._lanes:
            raise ValueError(f"{self._topology.spec} needs more than {self._lanes} virtual "
                             "channels per class")
        if link.target >= self._topology.cards and lanes != _SWITCH_LANES:
            raise ValueError(f"{self._topology.spec}: the route to card {target} leaves "
                             f"{self.describe(node)} on lanes {lanes}: switches know lane 0 alone")
        return Hop(link, lanes)

    def way(self, source: int, target: int, rail: int = 0, path: int = 0) -> list[Hop]:
        """The hops from one card to another; where several lanes are allowed, by the first.

        Raises
        ------
        ValueError
            If the route is broken.
        """
        hops: list[Hop] = []
        node, port, lane = source, self.local + rail, 0
        while (hop := self.hop(node, target, port, lane, rail, path)) is not None:
            hops.append(hop)
            node, port, lane = hop.link.target, hop.link.target_port, hop.lanes[0]
            if len(hops) > 2 * self._topology.nodes:
                raise ValueError(f"{self._topology.spec}: the route from card {source} to "
                                 f"{target} does not end")
        if node != target:
            raise ValueError(f"{self._topology.spec}: the route from card {source} to {target} "
                             f"ends at {self.describe(node)}")
        return hops

    def describe(self, node: int) -> str:
        """A node for a message."""
        name = self._topology.node_name(node)
        return f"card {name}" if node < self._topology.cards else f"switch {name}"

    def _table(self, node: int) -> Table:
        topology = self._topology
        return Table(f"{topology.spec}: switch {topology.node_name(node)}", topology.table_bits,
                     topology.switch_levels(node),
                     {(entry.level, entry.index): entry.port
                      for entry in topology.switch_table(node)})


class Table(NamedTuple):
    """A switch's route table."""

    name: str
    bits: int
    levels: Sequence[Mapping[str, int]]
    entries: Mapping[tuple[int, int], int]

    def port(self, dst: int) -> int:
        """Port towards a node id.

        Raises
        ------
        ValueError
            If the table does not say.
        """
        found = table_index(dst, self.levels, self.bits)
        if found is None or found not in self.entries:
            raise ValueError(f"{self.name} has no entry in its route table for node {dst:#x}")
        return self.entries[found]
