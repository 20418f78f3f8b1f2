"""Properties of the routing function's reference model, on every pair of small fabrics."""

import graphlib

import pytest

from hdl.fabric.route import lane_groups, next_hop, route, spread
from tests.hdl.fabric.fabrics import FABRICS, Fabric

each_fabric = pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
#: Port by which a packet comes in that left by the other port of its dimension.
OPPOSITE = (1, 0, 3, 2, 5, 4)
LOCAL = 6


def dependencies(fabric: Fabric, lanes: int) -> dict[tuple, set[tuple]]:
    """Channels (node, port, lane) that each channel's packets may wait for."""
    graph: dict[tuple, set[tuple]] = {}
    states = [(src, dst, rail, LOCAL, 0, None)
              for src in fabric.nodes for dst in fabric.nodes for rail in range(2)]
    seen = set()
    while states:
        node, dst, rail, in_port, in_lane, held = state = states.pop()
        if state in seen:
            continue
        seen.add(state)
        port, allowed = next_hop(node, dst, in_port, in_lane, rail, fabric.dims, lanes=lanes)
        assert set(allowed) <= set(range(lanes))
        if port >= LOCAL:
            continue
        for lane in allowed:
            channel = (node, port, lane)
            graph.setdefault(channel, set())
            if held is not None:
                graph[held].add(channel)
            states.append((fabric.neighbour(node, port), dst, rail, OPPOSITE[port], lane, channel))
    return graph


@each_fabric
@pytest.mark.parametrize("lanes", [2, 3, 4, 8])
def test_channels_never_wait_for_each_other_in_a_cycle(fabric: Fabric, lanes: int) -> None:
    graphlib.TopologicalSorter(dependencies(fabric, lanes)).prepare()


def test_a_ring_of_one_lane_has_a_cycle() -> None:
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(dependencies(Fabric((5,), True), 1)).prepare()


@each_fabric
def test_routes_are_minimal_and_end_at_the_rail(fabric: Fabric) -> None:
    for src in fabric.nodes:
        for dst in fabric.nodes:
            for rail in range(3):
                node, in_port, lane, hops, dims = src, LOCAL, 0, 0, []
                while True:
                    port, lane = route(node, dst, src, in_port, lane, rail, fabric.dims, rails=2)
                    if port >= LOCAL:
                        break
                    node, in_port, hops = fabric.neighbour(node, port), OPPOSITE[port], hops + 1
                    dims.append(port // 2)
                assert node == dst
                assert hops == fabric.hops(src, dst)
                assert dims == sorted(dims)
                assert (port, lane) == (LOCAL + (rail if rail < 2 else 0), 0)


def test_ties_go_up_if_coordinate_plus_rail_is_even() -> None:
    for fabric in (Fabric((2,), True), Fabric((8,), True)):
        half = fabric.sizes[0] // 2
        for node in fabric.nodes:
            for rail in range(2):
                port, _ = next_hop(node, (node + half) % fabric.sizes[0], LOCAL, 0, rail,
                                   fabric.dims)
                assert port == (node + rail) % 2


def test_a_packet_takes_an_after_lane_on_the_wrap_link_and_keeps_it() -> None:
    fabric = Fabric((7,), True)
    before, after = lane_groups(2)
    assert next_hop(5, 1, LOCAL, 0, 0, fabric.dims) == (0, tuple(before))
    assert next_hop(6, 1, 1, 0, 0, fabric.dims) == (0, tuple(after))
    assert next_hop(0, 1, 1, 1, 0, fabric.dims) == (0, (1,))
    assert next_hop(0, 5, LOCAL, 0, 0, fabric.dims) == (1, tuple(after))


@pytest.mark.parametrize("count", range(1, 9))
def test_spread_uses_every_lane(count: int) -> None:
    assert {spread(src, dst, count) for src in range(32) for dst in range(32)} == set(range(count))
