"""The few pairs that judge the router's own routes, against all pairs.

The proof is in ``docs/topology.md``; each of its premises and its result is tested here.
"""

from __future__ import annotations

from itertools import product

import pytest

from hdl.fabric.route import next_hop
from hdl.params import LinkParams
from hdl.topology import DeadlockError, Tiered, check_deadlock_free, parse
from hdl.topology.deadlock import Channel, channel_dependencies, find_cycle

LANES = [1, 2, 3, 4]
FABRICS = ["mesh:3x3", "torus:3x3", "torus:5x4", "torus:4x3x2", "mesh:2x3x4", "torus:1x5x3",
           "torus:3x3x3", "fullmesh:4x3", "fullmesh:2x4x2", "tiers:torus4,fullmesh3",
           "tiers:fullmesh3,mesh2,torus3"]

Dependencies = set[tuple[Channel, Channel]]


def dependencies(topology: Tiered, lanes: int, *, few: bool) -> Dependencies:
    graph = channel_dependencies(topology, LinkParams(vcs_per_class=lanes), rails=2,
                                 pairs=topology.dependency_pairs() if few else None)
    return {(held, wanted) for held, successors in graph.items() for wanted in successors}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("kind", ["ring", "mesh", "fullmesh"])
def test_on_a_line_of_any_length_few_pairs_show_the_same_dependencies_as_all(kind, lanes):
    for size in range(1, 20 if kind != "fullmesh" else 8):
        line = parse(f"{kind}:{size}")
        assert dependencies(line, lanes, few=True) == dependencies(line, lanes, few=False), size


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("spec", FABRICS)
def test_every_line_is_a_copy_of_the_one_through_card_0_and_dimensions_only_lead_upwards(
        spec, lanes):
    topology = parse(spec)
    few = dependencies(topology, lanes, few=True)
    copies: Dependencies = set()
    for held, wanted in dependencies(topology, lanes, few=False):
        dim, to = (topology.link_at[channel[:2]].tier for channel in (held, wanted))
        assert dim <= to
        if dim != to:
            continue
        places = [topology.coordinates(channel.node) for channel in (held, wanted)]
        assert places[0][:dim] + places[0][dim + 1:] == places[1][:dim] + places[1][dim + 1:]
        a, b = (topology.at([x if d == dim else 0 for d, x in enumerate(place)])
                for place in places)
        copies.add((held._replace(node=a), wanted._replace(node=b)))
    assert copies == few


@pytest.mark.parametrize("spec", ["torus:3x4", "mesh:3x2x2", "torus:2x3x2", "fullmesh:4x3",
                                  "tiers:torus3,fullmesh4"])
def test_the_router_decides_by_the_first_dimension_that_differs_and_by_nothing_else(spec):
    topology = parse(spec)
    count, dims = topology.dim_count, topology.dims(0, topology.dim_count)
    ports = topology.dim_ports
    local = sum(ports)
    owner = [d for d, own in enumerate(ports) for _ in range(own)] + [count] * 2
    for source, target in topology.all_pairs():
        here, there = topology.coordinates(source), topology.coordinates(target)
        dim = next(d for d in range(count) if here[d] != there[d])
        alone = [topology.node_id(topology.at([x if d == dim else 0 for d, x in enumerate(place)]))
                 for place in (here, there)]
        for port, lane, rail, path in product(range(local + 2), range(2), range(2), range(5)):
            inside = owner[port] == dim
            assert next_hop(topology.node_id(source), topology.node_id(target), port, lane, rail,
                            dims, dim_ports=ports, path=path) == \
                next_hop(*alone, port if inside else local, lane if inside else 0, rail, dims,
                         dim_ports=ports, path=path)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("spec", [*FABRICS, "ring:2", "ring:3", "ring:4", "torus:2x2x2"])
def test_the_verdict_is_that_of_the_search_over_all_pairs_and_its_cycle_is_real(spec, lanes):
    topology, link = parse(spec), LinkParams(vcs_per_class=lanes)
    graph = channel_dependencies(topology, link, rails=2)
    if find_cycle(graph) is None:
        check_deadlock_free(topology, link, rails=2)
        return
    with pytest.raises(DeadlockError, match=f"{spec} can deadlock") as caught:
        check_deadlock_free(topology, link, rails=2)
    cycle = caught.value.cycle
    assert all(b in graph[a] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True))


def test_a_single_lane_is_refused_on_some_of_these_fabrics_and_accepted_on_others():
    link = LinkParams(vcs_per_class=1)
    verdicts = {spec: find_cycle(channel_dependencies(parse(spec), link, rails=2)) is None
                for spec in FABRICS}
    assert set(verdicts.values()) == {True, False}


def test_another_routing_function_is_judged_by_all_pairs():
    topology = parse("torus:3x3")
    seen = set()

    def watched(node, dst, *rest, **shape):
        seen.add((topology.rank(node), topology.rank(dst)))
        return next_hop(node, dst, *rest, **shape)

    check_deadlock_free(topology, LinkParams(), next_hop=watched)
    assert seen == set(product(range(9), repeat=2))


@pytest.mark.parametrize("spec", ["torus:16x16x32", "mesh:64x128", "ring:8192"])
def test_two_pairs_per_card_of_one_line_per_dimension_judge_8192_cards(spec):
    topology = parse(spec)
    assert topology.cards == 8192
    assert sum(1 for _ in topology.dependency_pairs()) <= 2 * sum(topology.sizes)
    check_deadlock_free(topology, LinkParams(), rails=2)


def test_above_a_switch_nothing_waits_for_channels_among_cards():
    topology = parse("tiers:torus3,fullmesh3,switch2")
    for held, found in channel_dependencies(topology, LinkParams(), rails=2).items():
        for wanted in found:
            tiers = [topology.link_at[channel[:2]].tier for channel in (held, wanted)]
            assert tiers[0] <= tiers[1]
