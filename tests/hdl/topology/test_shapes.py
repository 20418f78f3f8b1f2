"""Every shape against its links: what is joined to what, ids, distances, cuts, orders."""

from __future__ import annotations

import random
from itertools import pairwise, product

import pytest

from hdl.layouts import pack
from hdl.params import RouterParams, preset
from hdl.ports import DimConfig
from hdl.topology import parse
from hdl.topology.base import ROUTER_CYCLES, SWITCH_CYCLES
from hdl.topology.routes import Routes

from .fabric import SHAPES, distances, max_flow, narrowest_bisection


@pytest.mark.parametrize(("spec", "cards", "switches", "links"), [
    ("fullmesh:8x8", 64, 0, 64 * 14),
    ("ubmesh:8x8x4x4", 1024, 0, 1024 * 20),
    ("clos:4x2", 8, 6, 32),
    ("clos:48x2", 1152, 72, 4 * 1152),
    ("clos:48x3", 27648, 2880, 6 * 27648),
    ("tiers:crossbar48,fullmesh8,switch21", 8064, 176, 2 * 8064 + 168 * 7 + 2 * 168),
    ("tiers:fullmesh4,switch8", 32, 4, 32 * 3 + 2 * 32),
    ("tiers:crossbar4*1@3,fullmesh3*2@40", 12, 3, 24 + 3 * 2 * 2)])
def test_number_of_cards_switches_and_links(spec, cards, switches, links):
    topology = parse(spec)
    assert (topology.cards, topology.switches, len(topology.links)) == (cards, switches, links)
    assert topology.nodes == cards + switches


@pytest.mark.parametrize(("spec", "ports"), [
    ("clos:48x2", 48), ("clos:48x3", 48), ("clos:6x2", 6),
    ("tiers:crossbar48,fullmesh8,switch21", 56), ("tiers:switch3^2,switch2*2,fullmesh3", 7)])
def test_ports_of_the_largest_switch(spec, ports):
    topology = parse(spec)
    assert topology.switch(preset("default")).radix == ports
    used = [len(topology.links_of(node)) for node in range(topology.cards, topology.nodes)]
    assert max(used) == ports


def test_tiers_of_full_meshes_are_a_full_mesh():
    a, b = parse("tiers:fullmesh4,fullmesh3"), parse("fullmesh:4x3")
    assert a.links == b.links and a.dims(0, 2) == b.dims(0, 2)


@pytest.mark.parametrize("spec", SHAPES)
def test_cables_have_two_directions_and_ports_have_one_cable(spec):
    topology = parse(spec)
    links = topology.links
    assert list(links) == sorted(links, key=lambda link: (link.source, link.source_port))
    assert len({(link.source, link.source_port) for link in links}) == len(links)
    for link in links:
        back = topology.link_at[link.target, link.target_port]
        assert (back.target, back.target_port, back.tier) == (
            link.source, link.source_port, link.tier)
    router = topology.router(RouterParams())
    assert all(link.source_port < (router.links if link.source < topology.cards else 64)
               for link in links)


@pytest.mark.parametrize("spec", SHAPES)
def test_ids_are_unique_and_give_back_the_card(spec):
    topology = parse(spec)
    ids = [topology.node_id(node) for node in range(topology.nodes)]
    assert len(set(ids)) == len(ids) and max(ids) < 1 << 16
    assert [topology.rank(ids[rank]) for rank in range(topology.cards)] == list(
        range(topology.cards))
    assert ids[topology.cards:] == [0xFFFF - i for i in range(topology.switches)]
    for rank in range(topology.cards):
        assert topology.at(topology.coordinates(rank)) == rank
        for values in topology.dims(rank, 4):
            pack(DimConfig, values)


@pytest.mark.parametrize("spec", SHAPES)
def test_distances_agree_with_breadth_first_search(spec):
    topology = parse(spec)
    table = [distances(topology, card) for card in range(topology.cards)]
    assert [[topology.hops(a, b) for b in range(topology.cards)]
            for a in range(topology.cards)] == table
    assert topology.diameter == max(map(max, table))
    assert topology.hops_mean == pytest.approx(sum(map(sum, table)) / topology.cards ** 2)


@pytest.mark.parametrize("spec", [*SHAPES, "tiers:crossbar3@7,fullmesh3@30,switch2@100",
                                  "clos:4x3@5,9,60", "torus:3x3@4,20"])
def test_routes_are_shortest_and_take_the_cycles_of_their_links_and_nodes(spec):
    topology = parse(spec)
    routes = Routes(topology, lanes=2)
    longest = 0
    for a, b in topology.all_pairs():
        way = routes.way(a, b)
        assert len(way) == topology.hops(a, b)
        latencies = [topology.tier_latency[hop.link.tier] for hop in way]
        cycles = sum((ROUTER_CYCLES if hop.link.source < topology.cards else SWITCH_CYCLES)
                     + (16 if latency is None else latency)
                     for hop, latency in zip(way, latencies, strict=True))
        assert topology.flight(a, b, 16) == cycles
        assert cycles == sum(topology.link_cycles(hop.link, 16) for hop in way)
        longest = max(longest, cycles)
    assert topology.longest_flight(range(topology.cards), 16) == longest


@pytest.mark.parametrize("spec", SHAPES)
def test_the_farthest_members_of_groups_agree_with_brute_force(spec):
    topology, rng = parse(spec), random.Random(spec)
    for _ in range(30):
        axes = [rng.sample(range(size), rng.randint(1, size)) for size in topology.sizes]
        box = [topology.at(place) for place in product(*axes)]
        for group in (box, rng.sample(range(topology.cards), rng.randint(1, topology.cards))):
            assert topology.farthest(group) == max(
                topology.hops(a, b) for a in group for b in group)
            assert topology.longest_flight(group, 16) == max(
                topology.flight(a, b, 16) for a in group for b in group)


@pytest.mark.parametrize("spec", [spec for spec in SHAPES if parse(spec).cards <= 12])
def test_the_bisection_is_a_cut_and_the_narrowest_where_that_is_claimed(spec):
    topology = parse(spec)
    narrowest = narrowest_bisection(topology)
    assert topology.bisection >= narrowest
    if topology.bisection_proof is not None:
        assert topology.bisection == narrowest


@pytest.mark.parametrize(("spec", "bisection"), [
    ("fullmesh:8x8", 128), ("ubmesh:8x8x4x4", 1024), ("clos:48x3", 13824), ("clos:48x2", 576),
    ("tiers:crossbar48", 24), ("tiers:crossbar4,fullmesh4", 4), ("fullmesh:3x5", 16)])
def test_known_bisections_are_proven(spec, bisection):
    topology = parse(spec)
    assert topology.bisection == bisection and topology.bisection_proof


def test_a_bisection_that_nobody_proved_says_so():
    assert parse("tiers:crossbar48,fullmesh8,switch21").bisection_proof is None


@pytest.mark.parametrize("spec", SHAPES)
def test_narrow_cuts_divide_the_group_and_carry_what_they_say(spec):
    topology, rng = parse(spec), random.Random(spec)
    cards = set(range(topology.cards))
    for _ in range(20):
        group = rng.sample(sorted(cards), rng.randint(2, topology.cards))
        cut = topology.narrowest_cut(group)
        if cut is None:
            continue
        narrowest = min(
            max_flow(topology, inside, cards - inside)
            for count in range(1, len(topology.tiers))
            for inside in _groups(topology, count)
            if 0 < len(inside & set(group)) < len(group))
        assert cut >= narrowest


def _groups(topology, count):
    parts: dict[tuple[int, ...], set[int]] = {}
    for card in range(topology.cards):
        parts.setdefault(topology.coordinates(card)[count:], set()).add(card)
    return parts.values()


@pytest.mark.parametrize("spec", SHAPES)
def test_ring_orders_visit_every_card_once_and_boards_one_after_the_other(spec):
    topology = parse(spec)
    order = topology.ring_order()
    assert sorted(order) == list(range(topology.cards)) and order[0] == 0
    for count in range(len(topology.tiers)):
        # Groups of tiers with switches in them are left once and never entered again.
        if topology.stages[0].up < count:
            visited = [topology.coordinates(card)[count:] for card in order]
            changes = sum(a != b for a, b in pairwise(visited))
            assert changes == len(set(visited)) - 1


@pytest.mark.parametrize("spec", ["fullmesh:5", "fullmesh:3x4", "ubmesh:2x3x2x2",
                                  "tiers:torus3,fullmesh2"])
def test_cards_that_are_joined_directly_have_a_cycle_of_neighbours(spec):
    topology = parse(spec)
    order = topology.ring_order()
    assert all(topology.hops(a, b) == 1 for a, b in zip(order, order[1:] + order[:1], strict=True))


def test_a_group_has_an_order_of_its_own():
    topology = parse("tiers:crossbar4,fullmesh3")
    assert topology.ring_order([2, 0, 6, 4]) == [0, 2, 6, 4]
    assert sorted(topology.ring_order([9, 0, 7])) == [0, 7, 9]


@pytest.mark.parametrize(("spec", "text"), [
    ("tiers:", "''"), ("tiers:crossbar", "'crossbar'"), ("tiers:star4", "'star4'"),
    ("tiers:crossbar1", "at least 2"), ("tiers:crossbar0", "with a 0"),
    ("tiers:crossbar65", "65 ports: at most 64"), ("tiers:crossbar60,fullmesh8", "67 ports"),
    ("tiers:fullmesh4*2", "links of cards are single"),
    ("tiers:fullmesh4^2", "uplinks to nothing"), ("tiers:switch4^2", "uplinks to nothing"),
    ("tiers:fullmesh4@0", "'0'"), ("tiers:fullmesh4@4097", "'4097'"),
    ("tiers:crossbar4*2,switch2", "links of cards are single"),
    ("tiers:crossbar4,fullmesh2,mesh2,mesh2,mesh2", "levels of their tables: at most 4"),
    ("tiers:mesh2,mesh2,mesh2,mesh2,mesh2", "5 dimensions: at most 4"),
    ("tiers:mesh2,mesh2,mesh2,mesh2,switch2", "5 dimensions: at most 4"),
    ("fullmesh:65", "64 link ports: at most 63"), ("fullmesh:2x2x2x2x2", "5 dimensions"),
    ("clos:48", "folded Clos"), ("clos:48x4", "folded Clos"), ("clos:5x2", "folded Clos"),
    ("clos:64x3", "ids"), ("clos:48x2@", "''"), ("clos:48x2@1,2,3", "3 latencies for 2 tiers"),
    ("torus:4x4@x", "'x'"), ("torus:4x4@16,", "''"), ("clos", "'clos'"), ("clos:0x2", "size 0")])
def test_a_machine_that_cannot_be_built_is_refused_in_one_line(spec, text):
    with pytest.raises(ValueError) as caught:
        parse(spec)
    assert text in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("spec", "latency"), [
    ("torus:4x4x4", (None, None, None)), ("torus:4x4x4@16,40", (16, 40, 40)),
    ("clos:48x2@16,40", (16, 40)), ("clos:4x3@9", (9, 9, 9)),
    ("ubmesh:8x8x4x4", (None, None, 56, 56)), ("ubmesh:8x8x4@1,2,3", (1, 2, 3)),
    ("tiers:crossbar4@3,fullmesh2,switch2*2@80", (3, None, 80))])
def test_latencies_belong_to_tiers(spec, latency):
    topology = parse(spec)
    assert topology.tier_latency == latency
    assert {link.tier for link in topology.links} == set(range(len(latency)))


@pytest.mark.parametrize(("spec", "has", "serves"), [
    ("torus:2x2", (2, 2, 2), True), ("mesh:4", (2, 2), True), ("torus:2x2x2", (2,), False),
    ("tiers:crossbar4", (2, 2, 2), True), ("fullmesh:4", (2, 2), False),
    ("fullmesh:2x4", (2, 3), False), ("tiers:ring4,switch2", (2, 2, 2), True),
    ("tiers:fullmesh4,switch2", (3, 2), True), ("tiers:fullmesh3,switch2", (3, 2), False)])
def test_a_router_serves_if_ports_before_the_last_dimension_are_counted_alike(spec, has, serves):
    topology, router = parse(spec), RouterParams(dim_ports=has)
    served = topology.router(router)
    assert (served == router) is serves
    assert served.dim_ports == (has if serves else topology.dim_ports)
    for d in range(topology.dim_count):
        assert served.port_base(d) == sum(topology.dim_ports[:d])
