"""Escape channels of adaptive routing: what they wait for, over adaptive lanes too.

Adaptive lanes may form any cycle, as long as every packet in front can leave them for an escape
channel and these do not wait for each other in a circle (Duato). A packet that holds an escape
channel wants the escape channel of the next node (a *direct* dependency), but may also take some
adaptive hops first and want the one of a node further on (an *indirect* one). Both count here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from .base import Link, Topology

__all__ = ["AdaptiveHops", "escape_dependencies"]

#: ``adaptive_hops(node, dst, in_port, in_lane, rail, dims, dim_ports=…, lanes=…, path=…) ->
#: (ports, (escape_port, escape_lanes))``: the reference model of adaptive routers.
AdaptiveHops = Callable[..., tuple[Sequence[int], tuple[int, Sequence[int]]]]
#: (node, port, lane)
_Channel = tuple[int, int, int]


class _Ways:
    """What packets to one card, on one rail and path, may do."""

    def __init__(self, topology: Topology, hops: AdaptiveHops, target: int, rail: int, path: int,
                 lanes: int) -> None:
        count, ports = topology.dim_count, topology.dim_ports
        self._links = topology.link_at
        self.local = sum(ports)
        self._cards = topology.cards

        @cache
        def at(node: int, in_port: int) -> tuple[list[Link], list[_Channel]]:
            ahead, (port, escapes) = hops(
                topology.node_id(node), topology.node_id(target), in_port, 0, rail,
                topology.dims(node, count), dim_ports=ports, lanes=lanes, path=path)
            if port >= self.local:
                if node != target:
                    raise ValueError(f"{topology.spec}: a route to card {target} ends at card "
                                     f"{node}")
                return [], []
            wanted = [(node, each) for each in (*ahead, port)]
            if missing := [where for where in wanted if where not in self._links]:
                raise ValueError(f"{topology.spec}: a route to card {target} leaves card {node} by "
                                 f"port {missing[0][1]}, which is open")
            return ([self._links[where] for where in wanted[:-1]],
                    [(node, port, lane) for lane in escapes])
        self.at = at

    def onward(self, node: int, in_port: int) -> Iterator[tuple[int, int]]:
        """Where a packet may be after any number of adaptive hops, and by which port it came."""
        seen = {(node, in_port)}
        stack = [(node, in_port)]
        while stack:
            place = stack.pop()
            yield place
            for link in self.at(*place)[0]:
                after = link.target, link.target_port
                if link.target < self._cards and after not in seen:
                    seen.add(after)
                    stack.append(after)

    def dependencies(self, source: int) -> Iterator[tuple[_Channel, list[_Channel]]]:
        """Each escape channel that packets from a card may take, and the next one that they may
        want then."""
        seen = {(source, self.local)}
        stack = [(source, self.local)]
        while stack:
            place = stack.pop()
            ahead, escapes = self.at(*place)
            links = [*ahead, *(self._links[node, port] for node, port, _ in escapes)]
            for node, port, lane in escapes:
                link = self._links[node, port]
                wanted = [] if link.target >= self._cards else [
                    channel for after in self.onward(link.target, link.target_port)
                    for channel in self.at(*after)[1]]
                yield (node, port, lane), wanted
            for link in links:
                after = link.target, link.target_port
                if link.target < self._cards and after not in seen:
                    seen.add(after)
                    stack.append(after)


def escape_dependencies(topology: Topology, pairs: Iterable[tuple[int, int]], *, lanes: int,
                        rails: int, paths: Iterable[int], hops: AdaptiveHops
                        ) -> dict[_Channel, set[_Channel]]:
    """Return which escape channels each escape channel's packets may wait for, direct and indirect.

    Parameters
    ----------
    topology
        The fabric; uplinks end a way.
    pairs
        Pairs (source, destination) that packets go between.
    lanes : int
        Lanes per class.
    rails : int
        Rails per card.
    paths
        Values of the header's ``path``.
    hops
        The adaptive routing function.

    Raises
    ------
    ValueError
        If a way is broken.
    """
    graph: dict[_Channel, set[_Channel]] = {}
    ways: dict[tuple[int, int, int], _Ways] = {}
    for source, target in pairs:
        for rail in range(rails):
            for path in paths:
                key = target, rail, path
                if key not in ways:
                    ways[key] = _Ways(topology, hops, target, rail, path, lanes)
                for held, wanted in ways[key].dependencies(source):
                    graph.setdefault(held, set()).update(wanted)
                    for channel in wanted:
                        graph.setdefault(channel, set())
    return graph
