"""The deadlock check accepts dateline routing and names the cycle of what it refuses."""

from __future__ import annotations

import pytest

from hdl.fabric.route import next_hop
from hdl.params import LinkParams
from hdl.topology import DeadlockError, check_deadlock_free, parse
from hdl.topology.deadlock import channel_dependencies

from .model import next_hop_of

LINK = LinkParams()
SPECS = ["ring:1", "ring:2", "ring:3", "ring:8", "mesh:4x4", "torus:2x2x2", "torus:4x4",
         "torus:3x5", "torus:4x3x2"]


@pytest.mark.parametrize("rails", [1, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_dateline_routing_is_deadlock_free(spec, rails):
    topology = parse(spec)
    check_deadlock_free(topology, LINK, rails=rails, next_hop=next_hop_of(topology))


@pytest.mark.parametrize("spec", ["ring:5", "torus:5x4", "torus:2x5"])
def test_a_torus_without_dateline_is_refused_and_the_cycle_is_real(spec):
    topology = parse(spec)
    route = next_hop_of(topology, dateline=False)
    with pytest.raises(DeadlockError, match=f"{spec} can deadlock: .* lane 0 -> ") as caught:
        check_deadlock_free(topology, LINK, next_hop=route)
    graph = channel_dependencies(topology, LINK, next_hop=route)
    cycle = caught.value.cycle
    assert all(b in graph[a] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True))


@pytest.mark.parametrize("spec", ["ring:3", "mesh:3x3", "torus:2x2x2"])
def test_short_rings_and_meshes_need_no_dateline(spec):
    topology = parse(spec)
    check_deadlock_free(topology, LINK, next_hop=next_hop_of(topology, dateline=False))


def test_a_torus_of_links_with_one_lane_is_refused():
    topology = parse("ring:6")
    with pytest.raises(ValueError, match="ring:6 needs more than 1 virtual channels per class"):
        check_deadlock_free(topology, LinkParams(vcs_per_class=1), next_hop=next_hop_of(topology))


def test_a_route_that_leaves_the_fabric_or_ends_early_is_refused():
    topology = parse("mesh:3")
    with pytest.raises(ValueError, match="leaves card 2 by port 0, which is open"):
        check_deadlock_free(topology, LINK, next_hop=lambda *_, **__: (0, [0]))
    with pytest.raises(ValueError, match="ends at card 0"):
        check_deadlock_free(topology, LINK, next_hop=lambda *_, **__: (2, [0]))


def test_ties_of_both_rails_close_the_cycle_of_a_ring_of_four():
    topology = parse("ring:4")
    route = next_hop_of(topology, dateline=False)
    check_deadlock_free(topology, LINK, next_hop=route)
    with pytest.raises(DeadlockError, match=r"\d:[+-]x lane 0"):
        check_deadlock_free(topology, LINK, rails=2, next_hop=route)


@pytest.mark.parametrize("lanes", [2, 3, 4])
@pytest.mark.parametrize("spec", SPECS)
def test_the_router_is_deadlock_free_with_any_number_of_lanes_above_one(spec, lanes):
    check_deadlock_free(parse(spec), LinkParams(vcs_per_class=lanes), rails=2)


def test_the_router_is_refused_on_rings_with_a_single_lane():
    check_deadlock_free(parse("mesh:5x5"), LinkParams(vcs_per_class=1))
    check_deadlock_free(parse("torus:2x2x2"), LinkParams(vcs_per_class=1))
    with pytest.raises(DeadlockError, match="ring:5 can deadlock"):
        check_deadlock_free(parse("ring:5"), LinkParams(vcs_per_class=1))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rail", [0, 1])
def test_the_router_takes_the_same_ports_as_an_independent_model(spec, rail):
    topology = parse(spec)
    model, count = next_hop_of(topology), topology.dim_count
    for source in range(topology.cards):
        for target in range(topology.cards):
            node, port = topology.node_id(source), 2 * count + rail
            lane = 0
            for _ in range(topology.hops(source, target) + 1):
                arguments = (node, topology.node_id(target), port, lane, rail,
                             topology.dims(topology.rank(node), count))
                out, allowed = next_hop(*arguments)
                assert out == model(*arguments)[0]
                if out >= 2 * count:
                    break
                hop = topology.link_at[topology.rank(node), out]
                node, port, lane = topology.node_id(hop.target), hop.target_port, allowed[0]
            assert topology.rank(node) == target and out == 2 * count + rail
