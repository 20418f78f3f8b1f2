"""Properties of the routing functions' reference models, on every pair of small fabrics."""

import graphlib
from collections.abc import Iterator
from itertools import pairwise

import pytest

from hdl.fabric.adaptive import adaptive_hops
from hdl.fabric.lanes import ESCAPE, lane_groups, spread
from hdl.fabric.lookup import table_route
from hdl.fabric.route import next_hop, route
from hdl.ports import DimKind
from tests.hdl.fabric.fabrics import FABRICS, MIXED, Fabric, grid

each_fabric = pytest.mark.parametrize("fabric", FABRICS + MIXED, ids=lambda fabric: fabric.name)
few_fabrics = pytest.mark.parametrize(
    "fabric", [f for f in FABRICS + MIXED if len(f.nodes) <= 30], ids=lambda fabric: fabric.name)


def paths(fabric: Fabric) -> range:
    """Values of ``path`` that can make a difference, and one that cannot."""
    wide = [size for (kind, size), ports in zip(fabric.dimensions, fabric.dim_ports, strict=False)
            if kind is DimKind.FULL and ports > 2]
    return range(max(wide) + 2 if wide else 1)


def channels(fabric: Fabric, node: int, port: int, lane: int, dst: int) -> list[tuple]:
    """The channels of a hop: an uplink is one to the switch and one from there."""
    there, in_port = fabric.neighbour(node, port, dst)
    if fabric.dimensions[fabric.dim_of(port)[0]][0] is DimKind.UP:
        return [(node, port, lane), ("switch", there, in_port, lane)]
    return [(node, port, lane)]


def dependencies(fabric: Fabric, lanes: int) -> dict[tuple, set[tuple]]:
    """Channels that each channel's packets may wait for in dimension order."""
    graph: dict[tuple, set[tuple]] = {}
    local = fabric.links
    states = [(src, dst, rail, path, local, 0, None) for src, dst in fabric.pairs()
              for rail in range(2) for path in paths(fabric)]
    seen = set()
    while states:
        state = states.pop()
        if state in seen:
            continue
        seen.add(state)
        node, dst, rail, path, in_port, in_lane, held = state
        port, allowed = next_hop(node, dst, in_port, in_lane, rail, fabric.dims,
                                 dim_ports=fabric.dim_ports, lanes=lanes, path=path)
        assert set(allowed) <= set(range(lanes))
        if port >= local:
            continue
        for lane in allowed:
            last = held
            for channel in channels(fabric, node, port, lane, dst):
                graph.setdefault(channel, set())
                if last is not None:
                    graph[last].add(channel)
                last = channel
            states.append((*fabric.neighbour(node, port, dst)[:1], dst, rail, path,
                           fabric.neighbour(node, port, dst)[1], lane, last))
    return graph


@few_fabrics
@pytest.mark.parametrize("lanes", [2, 3])
def test_channels_never_wait_for_each_other_in_a_cycle(fabric: Fabric, lanes: int) -> None:
    graphlib.TopologicalSorter(dependencies(fabric, lanes)).prepare()


def test_a_ring_of_one_lane_has_a_cycle() -> None:
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(dependencies(grid((5,), True), 1)).prepare()


@each_fabric
def test_routes_are_minimal_and_end_at_the_rail(fabric: Fabric) -> None:
    local = fabric.links
    for src, dst in fabric.pairs():
        for rail in range(3):
            node, in_port, lane, hops, dims = src, local, 0, 0, []
            while True:
                port, lane = route(node, dst, src, in_port, lane, rail, fabric.dims,
                                   dim_ports=fabric.dim_ports, rails=2)
                if port >= local:
                    break
                dims.append(fabric.dim_of(port)[0])
                node, in_port = fabric.neighbour(node, port, dst)
                hops += 1
            assert node == dst
            assert hops == fabric.hops(src, dst)
            assert dims == sorted(dims)
            assert (port, lane) == (local + (rail if rail < 2 else 0), 0)


def test_ties_go_up_if_coordinate_plus_rail_is_even() -> None:
    for fabric in (grid((2,), True), grid((8,), True)):
        half = fabric.sizes[0] // 2
        for node in fabric.nodes:
            for rail in range(2):
                port, _ = next_hop(node, (node + half) % fabric.sizes[0], fabric.links, 0, rail,
                                   fabric.dims)
                assert port == (node + rail) % 2


def test_a_packet_takes_an_after_lane_on_the_wrap_link_and_keeps_it() -> None:
    fabric = grid((7,), True)
    before, after = lane_groups(2)
    assert next_hop(5, 1, fabric.links, 0, 0, fabric.dims) == (0, tuple(before))
    assert next_hop(6, 1, 1, 0, 0, fabric.dims) == (0, tuple(after))
    assert next_hop(0, 1, 1, 1, 0, fabric.dims) == (0, (1,))
    assert next_hop(0, 5, fabric.links, 0, 0, fabric.dims) == (1, tuple(after))


def test_all_paths_of_a_full_mesh_are_named_by_the_node_between() -> None:
    fabric = Fabric(((DimKind.FULL, 5),), (4,))
    for src, dst in fabric.pairs():
        ways = set()
        for path in range(8):
            node, in_port, way, lanes = src, fabric.links, [], []
            while (hop := next_hop(node, dst, in_port, 0, 0, fabric.dims, dim_ports=(4,), lanes=4,
                                   path=path))[0] < fabric.links:
                node, in_port = fabric.neighbour(node, hop[0], dst)
                way.append(node)
                lanes.append(hop[1])
            if src != dst:
                between = 0 < path <= 5 and path - 1 not in (src, dst)
                assert way == ([path - 1, dst] if between else [dst])
                assert lanes == ([(0, 1), (2, 3)] if between else [(0, 1, 2, 3)])
                ways.add(tuple(way))
        assert len(ways) == (4 if src != dst else 0)


def test_a_port_that_a_dimension_lacks_is_refused() -> None:
    fabric = Fabric(((DimKind.FULL, 4),), (2,))
    with pytest.raises(ValueError, match="dimension 0 has 2 ports"):
        next_hop(0, 3, 2, 0, 0, fabric.dims, dim_ports=(2,))


@pytest.mark.parametrize("count", range(1, 9))
def test_spread_uses_every_lane(count: int) -> None:
    assert {spread(src, dst, count) for src in range(32) for dst in range(32)} == set(range(count))


def test_a_table_decides_by_destination_and_keeps_lanes_it_does_not_fix() -> None:
    levels = [{"mask": 0xF0, "value": 0x10, "shift": 0}, {"mask": 0, "value": 0, "shift": 4}]
    entries = {(0, 3): {"port": 2, "lane": 1, "fixed": 1},
               (1, 2): {"port": 1, "lane": 0, "fixed": 0}}

    def hop(dst: int, in_port: int, in_lane: int):
        return table_route(0x12, dst, in_port, in_lane, 1, levels, entries, table_bits=4, links=4)

    assert hop(0x13, 0, 0) == (2, (1,))
    assert hop(0x25, 0, 1) == (1, (1,)) and hop(0x25, 4, 0) == (1, (0, 1))
    assert hop(0x12, 0, 1) == (5, (0,))
    with pytest.raises(ValueError, match="no entry 4 in level 0"):
        hop(0x14, 0, 0)
    assert table_route(0x12, 0x25, 0, 0, 0, levels[:1], entries, table_bits=4, links=4) is None


def escapes(fabric: Fabric, node: int, dst: int, in_port: int, rail: int, path: int
            ) -> tuple[list[int], int, tuple[int, ...]]:
    ahead, (port, lanes) = adaptive_hops(node, dst, in_port, 0, rail, fabric.dims,
                                         dim_ports=fabric.dim_ports, lanes=4, path=path)
    return list(ahead), port, lanes


@each_fabric
def test_adaptive_hops_lead_ahead_and_escape_is_dimension_order(fabric: Fabric) -> None:
    for node, dst in fabric.pairs():
        for rail in range(2):
            ahead, port, lanes = escapes(fabric, node, dst, fabric.links, rail, 0)
            assert port == next_hop(node, dst, fabric.links, 0, rail, fabric.dims,
                                    dim_ports=fabric.dim_ports)[0]
            assert set(lanes) <= set(range(ESCAPE)) and lanes
            dims = [fabric.dim_of(port)[0] for port in ahead]
            differ = [dim for dim, (x, y) in enumerate(zip(
                fabric.place(node), fabric.place(dst), strict=True)) if x != y]
            assert dims == [d for d in differ if fabric.dimensions[d][0] is not DimKind.UP]
            for port in ahead:
                there, _ = fabric.neighbour(node, port, dst)
                assert fabric.hops(there, dst) == fabric.hops(node, dst) - 1


def walks(fabric: Fabric, src: int, dst: int, rail: int) -> Iterator[tuple[int, int]]:
    """(node, port it came in by) of every place on any shortest way."""
    states, seen = [(src, fabric.links)], set()
    while states:
        if (state := states.pop()) in seen:
            continue
        seen.add(state)
        yield state
        ahead, port, _ = escapes(fabric, state[0], dst, state[1], rail, 0)
        states += [fabric.neighbour(state[0], out, dst)
                   for out in {*ahead, port} if out < fabric.links]


@few_fabrics
def test_escape_channels_never_wait_for_each_other_even_over_adaptive_ones(fabric: Fabric) -> None:
    """Direct and indirect dependencies: from an escape channel to every one that the same packet
    may ask for later, whatever it does between; packets that name a way have no choice."""
    graph: dict[tuple, set[tuple]] = {}
    for dst in fabric.nodes:
        for rail in range(2):
            wants: dict[tuple[int, int], list[list[tuple]]] = {}
            for src in fabric.nodes:
                for node, in_port in walks(fabric, src, dst, rail):
                    _, port, lanes = escapes(fabric, node, dst, in_port, rail, 0)
                    if port < fabric.links:
                        wants[node, in_port] = [channels(fabric, node, port, lane, dst)
                                                for lane in lanes]
            for (node, _), held in wants.items():
                for hop in held:
                    for first, second in pairwise(hop):
                        graph.setdefault(first, set()).add(second)
                    port = hop[0][1]
                    there, back = fabric.neighbour(node, port, dst)
                    for place in walks_from(fabric, there, back, dst, rail):
                        for later in wants.get(place, []):
                            graph.setdefault(hop[-1], set()).add(later[0])
    for channel, later in named_ways(fabric).items():
        graph.setdefault(channel, set()).update(later)
    graphlib.TopologicalSorter(graph).prepare()


def walks_from(fabric: Fabric, node: int, in_port: int, dst: int, rail: int
               ) -> Iterator[tuple[int, int]]:
    """As :func:`walks`, of a packet that is under way."""
    yield node, in_port
    for place in walks(fabric, node, dst, rail):
        if place[1] < fabric.links:
            yield place


def named_ways(fabric: Fabric) -> dict[tuple, set[tuple]]:
    """Dependencies of packets that name their way: escape channels in a row."""
    graph: dict[tuple, set[tuple]] = {}
    for src, dst in fabric.pairs():
        for path in paths(fabric)[1:]:
            states = [(src, fabric.links, None)]
            while states:
                node, in_port, held = states.pop()
                ahead, port, lanes = escapes(fabric, node, dst, in_port, 0, path)
                assert not ahead
                for lane in lanes if port < fabric.links else ():
                    last = held
                    for channel in channels(fabric, node, port, lane, dst):
                        if last is not None:
                            graph.setdefault(last, set()).add(channel)
                        last = channel
                    states.append((*fabric.neighbour(node, port, dst), last))
    return graph


def test_adaptive_routing_needs_three_lanes() -> None:
    fabric = grid((4, 4), True)
    with pytest.raises(ValueError, match="at least 3 virtual channels per class"):
        adaptive_hops(0, 1, 6, 0, 0, fabric.dims, lanes=2)
