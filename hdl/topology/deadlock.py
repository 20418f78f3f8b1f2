"""The proof, before anything is built, that every pair of cards has a route and that routes cannot
deadlock.

A *channel* is a lane (virtual channel of one class) of a directed link. A packet that holds one
channel and wants another makes the second a dependency of the first; with credits and no dropping,
packets can wait for each other forever exactly if dependencies form a cycle (Dally and Seitz). One
class is checked: every class uses lanes of its own in the same way, and between classes requests
wait for responses only, which always sink. A switch is nothing but a place between channels: it
holds an output only while it waits for credit there.

Any routing function is judged by the routes of all pairs. The machine's own routes fall into two
parts that are searched apart, whatever the number of pairs (``docs/topology.md`` has the proofs):

* among cards, a few pairs on one line of each dimension show every dependency
  (``Topology.dependency_pairs``);
* above them, sets of destinations per link do (``flows``). Packets that come down from a switch are
  at their destination, so nothing above the cards waits for a channel among them.

Of adaptive routes it is the escape channels that are searched (``escape``): on small fabrics by all
pairs and ways, on large ones on one line of each dimension.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from hdl.params import LinkParams
from hdl.ports import DimKind

from .base import Topology
from .escape import AdaptiveHops, escape_dependencies
from .flows import Flows
from .routes import NextHop, Routes
from .tiered import Tiered

__all__ = ["Channel", "DeadlockError", "channel_dependencies", "check_deadlock_free",
           "dependencies_above", "escape_channels", "find_cycle"]

#: Cards up to which the escape channels of adaptive routes are searched by all pairs.
SEARCHED_CARDS = 64
#: Channels of a cycle that an error names; of a longer one it names the first ones.
NAMED_CHANNELS = 16


class Channel(NamedTuple):
    """A lane of the link that leaves a node by a port."""

    node: int
    port: int
    lane: int

    def name(self, topology: Topology) -> str:
        """The name of its link, and the lane."""
        link = topology.link_at[self.node, self.port]
        return f"{topology.link_name(link)} lane {self.lane}"


class DeadlockError(ValueError):
    """The fabric can deadlock; ``cycle`` holds the channels that wait for each other."""

    def __init__(self, topology: Topology, cycle: Sequence[Channel]) -> None:
        self.cycle = tuple(cycle)
        named = [channel.name(topology) for channel in self.cycle[:NAMED_CHANNELS]]
        if len(self.cycle) > NAMED_CHANNELS:
            named.append(f"... ({len(self.cycle)} channels)")
        super().__init__(f"{topology.spec} can deadlock: " + " -> ".join([*named, named[0]]))


Node = TypeVar("Node", bound=Hashable)


def channel_dependencies(topology: Topology, link: LinkParams, *, rails: int = 1,
                         next_hop: NextHop | None = None,
                         pairs: Iterable[tuple[int, int]] | None = None
                         ) -> dict[Channel, set[Channel]]:
    """Return which channels each channel's packets may wait for, by following routes.

    Parameters
    ----------
    topology, link, rails, next_hop
        As for :func:`check_deadlock_free`.
    pairs
        Pairs (source, destination) whose routes are followed, by every path that a header may ask
        for; all of them by default.

    Raises
    ------
    ValueError
        If a route leaves the fabric, misses its destination or takes a lane that is not there.
    """
    routes = Routes(topology, lanes=link.vcs_per_class, next_hop=next_hop)
    graph: dict[Channel, set[Channel]] = {}
    # Where a route has been with this destination, rail and path, another one need not follow.
    seen: set[tuple[int, int, int, int, int, int]] = set()
    paths = _paths(topology)
    for source, target in topology.all_pairs() if pairs is None else pairs:
        for rail in range(rails):
            for path in paths:
                stack: list[tuple[int, int, int, Channel | None]] = [
                    (source, routes.local + rail, 0, None)]
                while stack:
                    node, in_port, in_lane, held = stack.pop()
                    state = (node, in_port, in_lane, target, rail, path)
                    if state in seen:
                        continue
                    seen.add(state)
                    hop = routes.hop(node, target, in_port, in_lane, rail, path)
                    if hop is None:
                        if node != target:
                            raise ValueError(f"{topology.spec}: the route from card {source} to "
                                             f"{target} ends at {routes.describe(node)}")
                        continue
                    for lane in hop.lanes:
                        channel = Channel(hop.link.source, hop.link.source_port, lane)
                        graph.setdefault(channel, set())
                        if held is not None:
                            graph[held].add(channel)
                        stack.append((hop.link.target, hop.link.target_port, lane, channel))
    return graph


def _paths(topology: Topology) -> range:
    """Values of a header's ``path`` that routes may depend on."""
    nodes = [dim["size"] // (dim["mask"] & -dim["mask"])
             for dim in topology.dims(0, topology.dim_count) if dim["kind"] is DimKind.FULL]
    return range(max(nodes, default=0) + 1)


def dependencies_above(topology: Tiered, link: LinkParams) -> dict[int, list[int]]:
    """Return which links above the cards, uplinks included, packets on each of them wait for, by
    places in ``topology.links``; switches use one lane.

    Raises
    ------
    ValueError
        If a route table sends a packet nowhere, or to a card that it is not for.
    """
    return Flows(topology, Routes(topology, lanes=link.vcs_per_class)).wanted


def find_cycle(graph: Mapping[Node, Iterable[Node]]) -> list[Node] | None:
    """Return the members of a cycle in their order, or ``None`` if there is none."""
    done: set[Node] = set()
    for root in graph:
        path: dict[Node, None] = {}
        stack = [(root, iter(graph[root]))] if root not in done else []
        path[root] = None
        while stack:
            channel, successors = stack[-1]
            for successor in successors:
                if successor in path:
                    cycle = list(path)
                    return cycle[cycle.index(successor):]
                if successor not in done:
                    path[successor] = None
                    stack.append((successor, iter(graph.get(successor, ()))))
                    break
            else:
                stack.pop()
                done.add(channel)
                del path[channel]
    return None


def escape_channels(topology: Topology, link: LinkParams, *, rails: int = 1,
                    hops: AdaptiveHops | None = None,
                    pairs: Iterable[tuple[int, int]] | None = None
                    ) -> dict[Channel, set[Channel]]:
    """Return which escape channels of adaptive routers each of them waits for, direct or indirect.

    Parameters
    ----------
    topology, link, rails
        As for :func:`check_deadlock_free`.
    hops
        Another adaptive routing function than ``hdl.fabric.adaptive.adaptive_hops``.
    pairs
        Pairs (source, destination), all of them by default.

    Raises
    ------
    ValueError
        If a way is broken, or links have no adaptive lanes.
    """
    if hops is None:
        from hdl.fabric.adaptive import adaptive_hops
        hops = adaptive_hops
    found = escape_dependencies(topology, topology.all_pairs() if pairs is None else pairs,
                                lanes=link.vcs_per_class, rails=rails, paths=_paths(topology),
                                hops=hops)
    return {Channel(*held): {Channel(*channel) for channel in wanted}
            for held, wanted in found.items()}


def check_deadlock_free(topology: Topology, link: LinkParams, *, rails: int = 1,
                        adaptive: bool = False, next_hop: NextHop | None = None) -> None:
    """Refuse a fabric that has a pair without a route, or whose channel dependencies form a cycle.

    Parameters
    ----------
    topology
        The fabric.
    link
        Its links: lanes per class decide.
    rails : int
        Rails per card; routes may depend on the rail.
    adaptive : bool
        The routers of cards are adaptive.
    next_hop
        Another routing function of the cards than ``hdl.fabric.route.next_hop``.

    Raises
    ------
    DeadlockError
        With the cycle of channels named.
    ValueError
        If a route is broken.
    """
    apart = next_hop is None and isinstance(topology, Tiered)
    if not apart and not adaptive:
        graph = channel_dependencies(topology, link, rails=rails, next_hop=next_hop)
    elif adaptive:
        few = topology.cards > SEARCHED_CARDS
        graph = escape_channels(topology, link, rails=rails,
                                pairs=topology.line_pairs() if few else None)
    else:
        graph = channel_dependencies(topology, link, rails=rails,
                                     pairs=topology.dependency_pairs())
    if cycle := find_cycle(graph):
        raise DeadlockError(topology, cycle)
    if topology.switches and next_hop is None and isinstance(topology, Tiered):
        if numbers := find_cycle(dependencies_above(topology, link)):
            links = [topology.links[number] for number in numbers]
            raise DeadlockError(topology, [Channel(each.source, each.source_port, 0)
                                           for each in links])
