"""The proof, before anything is built, that routes cannot deadlock.

A *channel* is a lane (virtual channel of one class) of a directed link. A packet that holds one
channel and wants another makes the second a dependency of the first; with credits and no dropping,
packets can wait for each other forever exactly if dependencies form a cycle (Dally and Seitz). One
class is checked: every class uses lanes of its own in the same way, and between classes requests
wait for responses only, which always sink.

Any routing function is judged by the routes of all pairs. For the router's own, a topology may
have a proof that fewer pairs decide (``dependency_pairs``): thousands of cards then cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from hdl.params import LinkParams

from .base import Topology

__all__ = ["Channel", "DeadlockError", "channel_dependencies", "check_deadlock_free", "find_cycle"]

#: ``next_hop(node, dst, in_port, in_lane, rail, dims, lanes=…) -> (out_port, out_lanes)``: the
#: router's reference model. Ports of the rails follow the link ports; ``out_lanes`` are the lanes
#: that a packet may take there.
NextHop = Callable[..., tuple[int, Sequence[int]]]


#: Channels of a cycle that an error names; of a longer one it names the first ones.
NAMED_CHANNELS = 16


class Channel(NamedTuple):
    """A lane of the link that leaves a card by a port."""

    card: int
    port: int
    lane: int

    def __str__(self) -> str:
        sign = "-" if self.port % 2 else "+"
        return f"card {self.card} {sign}{'xyz'[self.port // 2]} lane {self.lane}"


class DeadlockError(ValueError):
    """The fabric can deadlock; ``cycle`` holds the channels that wait for each other."""

    def __init__(self, spec: str, cycle: Sequence[Channel]) -> None:
        self.cycle = tuple(cycle)
        named = list(map(str, self.cycle[:NAMED_CHANNELS]))
        if len(self.cycle) > NAMED_CHANNELS:
            named.append(f"... ({len(self.cycle)} channels)")
        super().__init__(f"{spec} can deadlock: " + " -> ".join([*named, str(self.cycle[0])]))


def _router() -> NextHop:
    from hdl.fabric.route import next_hop

    return next_hop


def channel_dependencies(topology: Topology, link: LinkParams, *, rails: int = 1,
                         next_hop: NextHop | None = None,
                         pairs: Iterable[tuple[int, int]] | None = None
                         ) -> dict[Channel, set[Channel]]:
    """Return which channels each channel's packets may wait for.

    Parameters
    ----------
    topology, link, rails, next_hop
        As for :func:`check_deadlock_free`.
    pairs
        Pairs (source, destination) whose routes are followed, all of them by default.

    Raises
    ------
    ValueError
        If a route leaves the fabric, misses its destination or takes a lane that is not there.
    """
    next_hop = next_hop or _router()
    count = topology.dim_count
    # Few cards are on the routes of few pairs.
    ids = cache(topology.node_id)
    dims = cache(lambda rank: topology.dims(rank, count))
    graph: dict[Channel, set[Channel]] = {}
    # Where a route has been with this destination and rail, another one need not follow.
    seen: set[tuple[int, int, int, int, int]] = set()
    for source, target in topology.all_pairs() if pairs is None else pairs:
        for rail in range(rails):
            stack = [(source, 2 * count + rail, 0)]
            while stack:
                card, in_port, in_lane = stack.pop()
                state = (card, in_port, in_lane, target, rail)
                if state in seen:
                    continue
                seen.add(state)
                port, lanes = next_hop(ids(card), ids(target), in_port, in_lane, rail, dims(card),
                                       lanes=link.vcs_per_class)
                if port >= 2 * count:
                    if card != target:
                        raise ValueError(f"{topology.spec}: the route from card {source} to "
                                         f"{target} ends at card {card}")
                    continue
                hop = topology.link_at.get((card, port))
                if hop is None:
                    raise ValueError(f"{topology.spec}: the route from card {source} to {target} "
                                     f"leaves card {card} by port {port}, which is open")
                if max(lanes) >= link.vcs_per_class:
                    raise ValueError(f"{topology.spec} needs more than {link.vcs_per_class} "
                                     f"virtual channels per class")
                for lane in lanes:
                    channel = Channel(card, port, lane)
                    graph.setdefault(channel, set())
                    if in_port < 2 * count:
                        back = topology.link_at[card, in_port]
                        # Links come in pairs: the one that leaves by in_port returns to where
                        # the packet came from.
                        graph.setdefault(Channel(back.target, back.target_port, in_lane),
                                         set()).add(channel)
                    stack.append((hop.target, hop.target_port, lane))
    return graph


def find_cycle(graph: Mapping[Channel, set[Channel]]) -> list[Channel] | None:
    """Return the channels of a cycle in their order, or ``None`` if there is none."""
    done: set[Channel] = set()
    for root in graph:
        path: dict[Channel, None] = {}
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


def check_deadlock_free(topology: Topology, link: LinkParams, *, rails: int = 1,
                        next_hop: NextHop | None = None) -> None:
    """Refuse a fabric whose channel dependencies form a cycle.

    Parameters
    ----------
    topology
        The fabric.
    link
        Its links: lanes per class decide.
    rails : int
        Rails per card; routes may depend on the rail.
    next_hop
        The router's reference model, ``hdl.fabric.route.next_hop`` by default.

    Raises
    ------
    DeadlockError
        With the cycle of channels named.
    ValueError
        If a route is broken.
    """
    router = _router()
    own = next_hop is None or next_hop is router
    graph = channel_dependencies(topology, link, rails=rails, next_hop=next_hop or router,
                                 pairs=topology.dependency_pairs() if own else None)
    if cycle := find_cycle(graph):
        raise DeadlockError(topology.spec, cycle)
