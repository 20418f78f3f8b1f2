"""Rings, meshes and tori against breadth-first search and brute force."""

from __future__ import annotations

import random
from collections import deque
from itertools import combinations, product

import pytest

from hdl.layouts import pack
from hdl.ports import DimConfig, DimKind
from hdl.topology import Topology, parse
from hdl.topology.base import ABSENT

SPECS = ["ring:1", "ring:2", "ring:3", "ring:8", "mesh:1", "mesh:5", "mesh:2x2", "mesh:3x3",
         "mesh:4x3x2", "mesh:1x4", "torus:2x2x2", "torus:3x3", "torus:3x5", "torus:4x2x3",
         "torus:1x1x3", "torus:3x3x3", "torus:5x3x7", "torus:16x3"]


def distances(topology: Topology, source: int) -> list[int]:
    neighbours: dict[int, list[int]] = {}
    for link in topology.links:
        neighbours.setdefault(link.source, []).append(link.target)
    found = {source: 0}
    queue = deque([source])
    while queue:
        card = queue.popleft()
        for target in neighbours.get(card, []):
            if target not in found:
                found[target] = found[card] + 1
                queue.append(target)
    return [found[card] for card in range(topology.cards)]


@pytest.mark.parametrize("spec", SPECS)
def test_hops_diameter_and_mean_agree_with_breadth_first_search(spec):
    topology = parse(spec)
    table = [distances(topology, source) for source in range(topology.cards)]
    assert [[topology.hops(a, b) for b in range(topology.cards)]
            for a in range(topology.cards)] == table
    assert topology.diameter == max(map(max, table))
    assert topology.hops_mean == pytest.approx(sum(map(sum, table)) / topology.cards ** 2)


@pytest.mark.parametrize("spec", SPECS)
def test_every_link_has_its_reverse_at_the_same_ports_and_no_port_is_used_twice(spec):
    topology = parse(spec)
    links = set(topology.links)
    assert len({(link.source, link.source_port) for link in links}) == len(links)
    assert len({(link.target, link.target_port) for link in links}) == len(links)
    for link in links:
        assert type(link)(link.target, link.target_port, link.source, link.source_port,
                          link.tier) in links
        assert link.target_port == link.source_port ^ 1
        a, b = topology.coordinates(link.source), topology.coordinates(link.target)
        dim, down = divmod(link.source_port, 2)
        step = (b[dim] - a[dim]) % max(topology.sizes[dim], 1)
        assert step == (-1 if down else 1) % topology.sizes[dim]
        assert [x for d, x in enumerate(a) if d != dim] == [x for d, x in enumerate(b) if d != dim]


@pytest.mark.parametrize(("spec", "links"), [
    ("ring:1", 0), ("ring:2", 4), ("ring:8", 16), ("mesh:2", 2), ("mesh:8x8", 224),
    ("torus:4x4x4", 384), ("torus:2x2x2", 48), ("torus:1x4", 8)])
def test_number_of_links(spec, links):
    assert len(parse(spec).links) == links


@pytest.mark.parametrize("spec", SPECS)
def test_node_ids_pack_coordinates_and_return_the_rank(spec):
    topology = parse(spec)
    for rank in range(topology.cards):
        node = topology.node_id(rank)
        assert topology.rank(node) == rank
        fields, rest = [], node
        for size in topology.sizes:
            width = (size - 1).bit_length()
            fields.append(rest & (1 << width) - 1)
            rest >>= width
        assert tuple(fields) == topology.coordinates(rank) and rest == 0
        if all(size & (size - 1) == 0 for size in topology.sizes):
            assert node == rank


def test_a_node_id_outside_the_fabric_is_refused():
    topology = parse("torus:3x3")
    for node in (3, 0b1100, 16, -1):
        with pytest.raises(ValueError, match="has no node"):
            topology.rank(node)


@pytest.mark.parametrize("spec", SPECS)
def test_dimension_configuration_masks_fields_and_fits_its_layout(spec):
    topology = parse(spec)
    dims = topology.dims(0, 3)
    assert len(dims) == 3
    for dim, values in enumerate(dims):
        pack(DimConfig, values)
        if dim >= len(topology.sizes) or topology.sizes[dim] == 1:
            assert values == ABSENT
            continue
        unit = values["mask"] & -values["mask"]
        assert values["size"] == topology.sizes[dim] * unit
        assert (values["kind"] is DimKind.RING) == (not spec.startswith("mesh"))
        for rank in range(topology.cards):
            assert topology.node_id(rank) & values["mask"] == \
                topology.coordinates(rank)[dim] * unit


def test_routers_with_too_few_dimensions_are_refused():
    with pytest.raises(ValueError, match="needs routers of 3 dimensions, not 2"):
        parse("torus:2x2x2").dims(0, 2)


@pytest.mark.parametrize(("spec", "text"), [
    ("torus:0x2", "size 0"), ("ring:0", "size 0"), ("cube:4", "'cube:4'"), ("ring", "'ring'"),
    ("ring:", "''"), ("ring:-3", "'-3'"), ("ring:2x2", "2 dimensions"), ("mesh:2x2x2x2", "4"),
    ("torus:4x", "'4x'"), ("torus:axb", "'axb'"), ("", "''"), ("ring:70000", "17 bits"),
    ("torus:257x256", "17 bits"), ("ring:3 ", "'3 '"), ("ring:٣", "'٣'")])
def test_a_wrong_spec_is_refused_with_one_line_that_names_it(spec, text):
    with pytest.raises(ValueError) as caught:
        parse(spec)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_equal_specs_are_equal_topologies():
    assert parse("torus:2x2x2") == parse("torus:2x2x2")
    assert hash(parse("ring:4")) == hash(parse("ring:4"))


@pytest.mark.parametrize("spec", ["ring:2", "ring:3", "ring:8", "mesh:5", "mesh:2x2", "mesh:3x3",
                                  "mesh:3x4", "mesh:2x2x3", "torus:2x2x2", "torus:3x3",
                                  "torus:3x4", "torus:2x5", "mesh:1x4"])
def test_bisection_is_the_narrowest_balanced_cut(spec):
    topology = parse(spec)
    cards = range(topology.cards)
    narrowest = min(
        sum(link.source in half and link.target not in half for link in topology.links)
        for half in map(set, combinations(cards, topology.cards // 2)))
    assert topology.bisection == narrowest


@pytest.mark.parametrize("spec", ["ring:2", "ring:7", "torus:2x2x2", "torus:3x3", "torus:3x5",
                                  "torus:4x6", "torus:4x3", "torus:3x3x3", "torus:5x3x7",
                                  "torus:2x3x5", "torus:4x4x4", "mesh:2", "mesh:2x2", "mesh:4x3",
                                  "mesh:3x4", "mesh:3x3x2", "mesh:2x3x3", "mesh:8x8", "torus:1x6"])
def test_ring_order_visits_neighbours_only_where_a_cycle_exists(spec):
    topology = parse(spec)
    order = topology.ring_order()
    assert sorted(order) == list(range(topology.cards)) and order[0] == 0
    assert all(topology.hops(a, b) == 1 for a, b in zip(order, order[1:] + order[:1], strict=True))


@pytest.mark.parametrize("spec", ["mesh:5", "mesh:3x3", "mesh:3x3x3", "mesh:5x1"])
def test_ring_order_is_a_snake_where_no_cycle_exists(spec):
    topology = parse(spec)
    order = topology.ring_order()
    assert sorted(order) == list(range(topology.cards))
    pairs = zip(order, order[1:] + order[:1], strict=True)
    assert sum(topology.hops(a, b) != 1 for a, b in pairs) == 1


def test_ring_order_of_a_plane_is_a_cycle_in_the_plane():
    topology = parse("torus:4x4x4")
    plane = [rank for rank in range(64) if topology.coordinates(rank)[1] == 2]
    order = topology.ring_order(plane)
    assert sorted(order) == plane
    assert all(topology.hops(a, b) == 1 for a, b in zip(order, order[1:] + order[:1], strict=True))


def test_ring_order_of_any_group_names_each_member_once():
    topology = parse("torus:4x4")
    assert sorted(topology.ring_order([9, 0, 7])) == [0, 7, 9]
    assert topology.ring_order([5]) == [5]
    with pytest.raises(ValueError, match="each card once"):
        topology.ring_order([1, 1])
    with pytest.raises(ValueError, match="has no card 16"):
        topology.ring_order([1, 16])


@pytest.mark.parametrize("spec", SPECS)
def test_the_farthest_members_of_a_group_agree_with_brute_force(spec):
    topology, rng = parse(spec), random.Random(spec)
    cards = range(topology.cards)
    groups = [list(cards), []]
    for _ in range(30):
        groups.append(rng.sample(cards, rng.randint(1, topology.cards)))
        axes = [rng.sample(range(size), rng.randint(1, size)) for size in topology.sizes]
        groups.append([topology.at(place) for place in product(*axes)])
    for group in groups:
        assert topology.farthest(group) == max(
            (topology.hops(a, b) for a in group for b in group), default=0)


@pytest.mark.parametrize("size", range(1, 40))
def test_closed_forms_of_lines_agree_with_brute_force(size):
    for spec, distance in ((f"ring:{size}", lambda d: min(d, size - d)),
                           (f"mesh:{size}", lambda d: d)):
        line = parse(spec)
        table = [distance(abs(a - b)) for a in range(size) for b in range(size)]
        assert line.diameter == max(table)
        assert line.hops_mean == sum(table) / size ** 2


def test_ring_order_is_a_list_of_the_caller_s_own():
    topology = parse("ring:4")
    topology.ring_order().reverse()
    assert topology.ring_order() == [0, 1, 2, 3]
