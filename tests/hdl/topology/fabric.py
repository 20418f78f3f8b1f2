"""Facts about a topology from its links alone: the oracle of the closed forms."""

from __future__ import annotations

from collections import deque
from itertools import combinations

from hdl.topology import Topology

#: Small machines of every shape.
SHAPES = [
    "ring:5", "mesh:3x2", "torus:2x3", "fullmesh:2", "fullmesh:5", "fullmesh:3x4", "fullmesh:2x3x2",
    "ubmesh:2x3x2x2", "clos:4x2", "clos:6x2", "clos:4x3", "tiers:crossbar5",
    "tiers:crossbar4,fullmesh3", "tiers:fullmesh3,switch3", "tiers:crossbar3,fullmesh3,switch2",
    "tiers:mesh3,torus3", "tiers:torus3,fullmesh2", "tiers:fullmesh2,torus3,switch2,mesh3*2",
    "tiers:switch2^2,switch3", "tiers:switch3^2,switch2*2,fullmesh3", "tiers:crossbar4,mesh4",
    "tiers:switch2^2,fullmesh2*2,mesh3,switch2", "tiers:crossbar3,switch2*3,switch2*2",
    "tiers:crossbar4,ring2",
]


def distances(topology: Topology, source: int) -> list[int]:
    """Links from a card to each card, by breadth-first search."""
    neighbours: dict[int, list[int]] = {}
    for link in topology.links:
        neighbours.setdefault(link.source, []).append(link.target)
    found = {source: 0}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for target in neighbours.get(node, []):
            if target not in found:
                found[target] = found[node] + 1
                queue.append(target)
    return [found[card] for card in range(topology.cards)]


def max_flow(topology: Topology, sources: set[int], sinks: set[int]) -> int:
    """Links that disjoint ways from some cards to others take at most: the narrowest cut between
    them, switches on whichever side is better (Ford and Fulkerson)."""
    room: dict[int, dict[int, int]] = {node: {} for node in range(topology.nodes)}
    for link in topology.links:
        room[link.source][link.target] = room[link.source].get(link.target, 0) + 1
    flow = 0
    while True:
        came = {node: node for node in sources}
        queue = deque(sources)
        while queue and not sinks & came.keys():
            node = queue.popleft()
            for target, left in room[node].items():
                if left and target not in came:
                    came[target] = node
                    queue.append(target)
        reached = sinks & came.keys()
        if not reached:
            return flow
        node = reached.pop()
        while came[node] != node:
            room[came[node]][node] -= 1
            room[node][came[node]] = room[node].get(came[node], 0) + 1
            node = came[node]
        flow += 1


def narrowest_bisection(topology: Topology) -> int:
    """The narrowest cut into halves, over all halves."""
    cards = set(range(topology.cards))
    return min(max_flow(topology, set(half), cards - set(half))
               for half in combinations(cards, topology.cards // 2))
