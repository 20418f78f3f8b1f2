"""Escape channels of adaptive routes, over all ways; and what lacks them is refused."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from hdl.fabric.adaptive import adaptive_hops
from hdl.params import LinkParams
from hdl.topology import DeadlockError, Tiered, check_deadlock_free, parse
from hdl.topology.deadlock import Channel, escape_channels, find_cycle
from hdl.topology.routes import Routes

LINK = LinkParams(classes=1, vcs_per_class=4)
SPECS = ["ring:4", "ring:5", "ring:6", "mesh:3x3", "torus:3x3", "torus:4x3", "torus:3x2x3",
         "fullmesh:4", "fullmesh:4x3", "tiers:torus3,fullmesh3", "tiers:torus3,torus3,switch2"]


def cycle_of(topology: Tiered, hops) -> list[Channel]:
    """The cycle of escape channels with another adaptive routing function."""
    graph = escape_channels(topology, LINK, hops=hops)
    cycle = find_cycle(graph)
    assert cycle is not None
    assert all(b in graph[a] for a, b in pairwise([*cycle, cycle[0]]))
    return cycle


@pytest.mark.parametrize("rails", [1, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_escape_channels_do_not_wait_in_a_circle_on_any_way(spec, rails):
    topology = parse(spec)
    assert find_cycle(escape_channels(topology, LINK, rails=rails)) is None
    check_deadlock_free(topology, LINK, rails=rails, adaptive=True)


@pytest.mark.parametrize("spec", ["torus:4x3", "mesh:3x3", "torus:3x2x3", "tiers:torus5,fullmesh4"])
def test_indirect_dependencies_lead_to_later_dimensions_or_further_on_as_on_a_line_alone(spec):
    """What makes one line of each dimension enough for large fabrics."""
    topology = parse(spec)
    few = escape_channels(topology, LINK, rails=2, pairs=topology.line_pairs())
    for held, found in escape_channels(topology, LINK, rails=2).items():
        for wanted in found:
            dims = [topology.link_at[channel[:2]].tier for channel in (held, wanted)]
            assert dims[0] <= dims[1]
            if dims[0] == dims[1]:
                a, b = (channel._replace(node=topology.at(
                    [x if t == dims[0] else 0
                     for t, x in enumerate(topology.coordinates(channel.node))]))
                    for channel in (held, wanted))
                assert b in few[a]


@pytest.mark.parametrize("spec", ["torus:16x16", "torus:16x16x32", "ubmesh:8x8x4x4"])
def test_large_fabrics_are_judged_by_one_line_of_each_dimension(spec):
    check_deadlock_free(parse(spec), LINK, rails=2, adaptive=True)


def test_links_without_adaptive_lanes_are_refused():
    with pytest.raises(ValueError, match="at least 3 virtual channels per class"):
        check_deadlock_free(parse("ring:4"), LinkParams(), adaptive=True)


def test_adaptive_routes_without_escape_wait_in_a_square():
    topology = parse("mesh:3x3")

    def hops(node, dst, in_port, in_lane, rail, dims, **shape):
        ahead, (port, _) = adaptive_hops(node, dst, in_port, in_lane, rail, dims, **shape)
        # The last way that is open, instead of the first dimension's: no order.
        port = ahead[-1] if ahead and dst % 2 else port
        return ahead, (port, [0])

    cycle = cycle_of(topology, hops)
    assert {channel.port // 2 for channel in cycle} == {0, 1}


def test_escape_without_a_dateline_waits_around_a_ring():
    topology = parse("torus:5x3")

    def hops(*place, **shape):
        ahead, (port, _) = adaptive_hops(*place, **shape)
        return ahead, (port, [0])

    cycle = cycle_of(topology, hops)
    assert {channel.port for channel in cycle} in ({0}, {1})
    # Packets go on in another row after adaptive hops: each column is met, in its order.
    columns = [topology.coordinates(channel.node)[0] for channel in cycle]
    assert set(columns) == set(range(5))


def test_escape_that_returns_to_a_lane_before_the_dateline_is_refused():
    """Where packets keep their lane around a ring, whoever does not cross the wrap link may enter
    by any. Escape lanes follow from the place alone: a packet that has crossed would return."""
    topology = parse("ring:6")

    def hops(node, dst, in_port, in_lane, rail, dims, **shape):
        ahead, (port, lanes) = adaptive_hops(node, dst, in_port, in_lane, rail, dims, **shape)
        return ahead, (port, [0, 1] if list(lanes) == [1] else lanes)

    assert {channel.lane for channel in cycle_of(topology, hops)} >= {0}


def test_detours_over_adaptive_lanes_bring_packets_back_to_escape_channels_that_they_passed():
    """Without adaptive hops escape channels wait in no circle; who may go anywhere in between
    may want again what it holds."""
    topology = parse("mesh:3x3")

    def hops(node, dst, *place, **shape):
        _, escape = adaptive_hops(node, dst, *place, **shape)
        card = topology.rank(node)
        return [] if node == dst else [link.source_port for link in topology.links_of(card)], escape

    assert cycle_of(topology, hops)
    alone = escape_channels(topology, LINK,
                            hops=lambda *place, **shape: ([], hops(*place, **shape)[1]))
    assert find_cycle(alone) is None


def test_adaptive_ways_that_leave_the_fabric_or_end_early_are_refused():
    topology = parse("mesh:3")
    with pytest.raises(ValueError, match="leaves card 0 by port 1, which is open"):
        escape_channels(topology, LINK, hops=lambda *_, **__: ((1,), (0, [0])))
    with pytest.raises(ValueError, match="ends at card 0"):
        escape_channels(topology, LINK, hops=lambda *_, **__: ((), (2, [0])))


def test_a_refusal_names_the_cycle():
    topology = parse("ring:5")
    with pytest.raises(DeadlockError, match=r"ring:5 can deadlock: \d:\+x lane 0 -> "):
        raise DeadlockError(topology, cycle_of(topology, lambda *place, **shape: (
            (), (adaptive_hops(*place, **shape)[1][0], [0]))))


def test_a_full_mesh_has_a_way_over_every_other_card_and_they_do_not_deadlock():
    topology = parse("fullmesh:5")
    routes = Routes(topology, lanes=2)
    for a, b in permutations(range(5), 2):
        for path in range(8):
            way = [hop.link.target for hop in routes.way(a, b, path=path)]
            assert way == ([path - 1, b] if 0 <= path - 1 < 5 and path - 1 not in (a, b) else [b])
    check_deadlock_free(topology, LinkParams())


def test_ways_through_a_full_mesh_on_a_single_lane_would_wait_in_a_triangle():
    topology = parse("fullmesh:4")

    def over(node, dst, in_port, in_lane, rail, dims, *, path, **_):
        if node == dst:
            return 3 + rail, [0]
        via = path - 1 if in_port >= 3 and 0 < path <= 4 and path - 1 not in (node, dst) else dst
        return via - (via > node), [0]

    with pytest.raises(DeadlockError, match="fullmesh:4 can deadlock: ") as caught:
        check_deadlock_free(topology, LinkParams(), next_hop=over)
    cycle = caught.value.cycle
    assert len(cycle) >= 3
    assert all(topology.link_at[a[:2]].target == b.node for a, b in pairwise([*cycle, cycle[0]]))
