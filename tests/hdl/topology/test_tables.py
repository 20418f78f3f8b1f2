"""Route tables of switches: what they say, and that any table gets the verdict of all pairs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from hdl.fabric.table import LEVELS, table_index
from hdl.layouts import RouteEntry, RouteLevel, pack
from hdl.params import LinkParams, preset
from hdl.topology import DeadlockError, Tiered, check_deadlock_free, parse
from hdl.topology.boxes import intersect, matching, merge, subtract
from hdl.topology.deadlock import (
    Channel,
    channel_dependencies,
    dependencies_above,
    find_cycle,
)
from hdl.topology.routes import Routes

from .fabric import SHAPES

LINK = LinkParams()
SWITCHED = [spec for spec in SHAPES if parse(spec).switches]


class Rewritten(Tiered):
    """A machine in which some entries of route tables name other ports."""

    ports: dict[tuple[int, int, int], int | None]

    @classmethod
    def of(cls, spec: str, ports: dict[tuple[int, int, int], int | None]) -> Rewritten:
        machine = cls(spec, parse(spec).tiers)
        object.__setattr__(machine, "ports", ports)
        return machine

    def switch_table(self, node):
        return [entry if new == entry.port else replace(entry, port=new)
                for entry in super().switch_table(node)
                if (new := self.ports.get((node, entry.level, entry.index),
                                          entry.port)) is not None]


def edges_above(topology: Tiered) -> set[tuple[int, int]]:
    return {(held, wanted) for held, found in dependencies_above(topology, LINK).items()
            for wanted in found}


def edges_of_pairs(topology: Tiered) -> set[tuple[int, int]]:
    number = {(link.source, link.source_port): i for i, link in enumerate(topology.links)}
    return {(number[held[:2]], number[wanted[:2]])
            for held, found in channel_dependencies(topology, LINK).items() for wanted in found}


@pytest.mark.parametrize("spec", SWITCHED)
def test_levels_and_entries_fit_their_formats(spec):
    topology = parse(spec)
    params = topology.switch(preset("default"))
    assert params.table_bits == topology.table_bits
    for node in range(topology.cards, topology.nodes):
        levels, entries = topology.switch_levels(node), topology.switch_table(node)
        assert 1 <= len(levels) <= LEVELS
        for level in levels:
            pack(RouteLevel, {**level, "valid": 1})
        for entry in entries:
            pack(RouteEntry, {"index": entry.index, "port": entry.port})
            assert entry.index < 1 << params.table_bits and entry.level < len(levels)
            assert (node, entry.port) in topology.link_at
        assert len({(entry.level, entry.index) for entry in entries}) == len(entries)
        names = {(entry.level, entry.index) for entry in entries}
        for card in range(topology.cards):
            assert table_index(topology.node_id(card), levels, params.table_bits) in names


def test_a_card_has_no_route_table():
    with pytest.raises(ValueError, match="node 3 is a card"):
        parse("clos:4x2").switch_table(3)
    with pytest.raises(ValueError, match="has no switches"):
        parse("ring:4").switch(preset("default"))


@pytest.mark.parametrize(("spec", "tier"), [("clos:8x2", 1), ("clos:4x3", 2), ("clos:4x3", 1)])
def test_in_a_clos_every_uplink_and_every_link_down_has_the_same_number_of_destinations(spec, tier):
    topology = parse(spec)
    routes = Routes(topology, lanes=1)
    uses = Counter(hop.link for a, b in topology.all_pairs() for hop in routes.way(a, b)
                   if hop.link.tier == tier)
    assert set(uses) == {link for link in topology.links if link.tier == tier}
    assert len(set(uses.values())) == 1


@pytest.mark.parametrize(("spec", "tier", "ratio"), [
    ("tiers:crossbar6,fullmesh3*2", 1, 1), ("tiers:crossbar6,switch3*2", 1, 1),
    ("tiers:crossbar8,fullmesh2*3", 1, 2), ("tiers:switch6^2,fullmesh3", 1, 1),
    ("tiers:crossbar6,switch3*4", 1, 2)])
def test_destinations_share_parallel_links_out(spec, tier, ratio):
    topology = parse(spec)
    routes = Routes(topology, lanes=1)
    uses = Counter(hop.link for a, b in topology.all_pairs() for hop in routes.way(a, b)
                   if hop.link.tier == tier)
    assert set(uses) == {link for link in topology.links if link.tier == tier}
    assert max(uses.values()) <= ratio * min(uses.values())


@pytest.mark.parametrize("spec", SWITCHED)
def test_sets_of_destinations_show_the_dependencies_of_all_pairs(spec):
    topology = parse(spec)
    links, cards = topology.links, topology.cards
    among = {i for i, link in enumerate(links) if max(link.source, link.target) < cards}
    found, expected = edges_above(topology), edges_of_pairs(topology)
    expected = {edge for edge in expected if edge[0] not in among}
    assert not any(edge[1] in among for edge in expected)
    # Nobody sends to itself over its uplink, but sets do not leave single cards out.
    assert expected <= found
    assert all(links[up].source == links[down].target for up, down in found - expected)


@pytest.mark.parametrize("spec", SWITCHED)
@pytest.mark.parametrize("rails", [1, 2])
def test_every_shape_is_free_of_deadlock_by_sets_and_by_all_pairs(spec, rails):
    topology = parse(spec)
    check_deadlock_free(topology, LINK, rails=rails)
    assert find_cycle(channel_dependencies(topology, LINK, rails=rails)) is None


@pytest.mark.parametrize("spec", ["clos:4x2", "clos:4x3", "tiers:crossbar3,fullmesh3,switch2",
                                  "tiers:crossbar4,mesh4", "tiers:fullmesh2,switch2,fullmesh3*2"])
def test_random_tables_get_the_verdict_of_all_pairs(spec):
    rng = random.Random(spec)
    plain = parse(spec)
    verdicts = Counter()
    for _ in range(40):
        ports: dict[tuple[int, int, int], int | None] = {}
        for _ in range(rng.choice([1, 2, 6])):
            node = rng.randrange(plain.cards, plain.nodes)
            entry = rng.choice(plain.switch_table(node))
            ports[node, entry.level, entry.index] = rng.choice(plain.links_of(node)).source_port
        topology = Rewritten.of(spec, ports)
        try:
            check_deadlock_free(topology, LINK)
            accepted = True
        except ValueError as error:
            accepted = False
            if isinstance(error, DeadlockError):
                graph = channel_dependencies(topology, LINK)
                cycle = error.cycle
                assert all(b in graph[a] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True))
        try:
            graph = channel_dependencies(topology, LINK)
            strays = any(wanted for held, wanted in graph.items()
                         if held.node >= plain.cards
                         and topology.link_at[held[:2]].target < plain.cards)
            expected = find_cycle(graph) is None and not strays
        except ValueError:
            expected = False
        assert accepted == expected, ports
        verdicts[accepted] += 1
    assert len(verdicts) == 2


def test_a_table_that_sends_packets_back_is_refused_with_the_two_links_between():
    # Spine s4 sends what is for leaf s0 to leaf s1, which knows no better than to send it up.
    plain = parse("clos:4x2")
    topology = Rewritten.of("clos:4x2", {
        (12, 0, entry.index): 1 for entry in plain.switch_table(12) if entry.port == 0})
    with pytest.raises(DeadlockError, match="clos:4x2 can deadlock: ") as caught:
        check_deadlock_free(topology, LINK)
    assert set(caught.value.cycle) == {Channel(9, 2, 0), Channel(12, 1, 0)}
    assert "s1:2 lane 0" in str(caught.value) and "s4:1 lane 0" in str(caught.value)


def test_a_clos_with_turns_from_down_to_up_is_refused_with_the_cycle_over_two_spines():
    # s4 reaches leaf s0 over leaf s1 and s5; s5 reaches leaf s3 over leaf s0 and s4.
    plain = parse("clos:4x2")
    ports: dict[tuple[int, int, int], int | None] = {}
    for node, leaf, over in ((12, 0, 1), (13, 3, 0)):
        ports |= {(node, 0, entry.index): over
                  for entry in plain.switch_table(node) if entry.port == leaf}
    by = plain.switch_levels(9)[1]
    assert by["mask"] == 0
    ports |= {(9, 1, entry.index): 3 for entry in plain.switch_table(9) if entry.level == 1}
    ports |= {(8, 1, entry.index): 2 for entry in plain.switch_table(8) if entry.level == 1}
    topology = Rewritten.of("clos:4x2", ports)
    with pytest.raises(DeadlockError) as caught:
        check_deadlock_free(topology, LINK)
    assert set(caught.value.cycle) == {
        Channel(8, 2, 0), Channel(12, 1, 0), Channel(9, 3, 0), Channel(13, 0, 0)}


@pytest.mark.parametrize(("spec", "length"), [
    ("tiers:crossbar2,ring5", 5), ("tiers:crossbar2,torus3,torus5", 5),
    ("tiers:fullmesh2,switch2,ring6", 6)])
def test_rings_of_switches_are_refused_with_a_ring_as_the_cycle(spec, length):
    topology = parse(spec)
    with pytest.raises(DeadlockError) as caught:
        check_deadlock_free(topology, LINK)
    cycle = caught.value.cycle
    assert len(cycle) == length and len({channel.port for channel in cycle}) == 1
    assert {channel.node for channel in cycle} <= set(range(topology.cards, topology.nodes))


def test_rings_of_two_and_three_switches_are_no_cycle():
    for spec in ("tiers:crossbar2,ring2", "tiers:crossbar2,ring3", "tiers:crossbar2,ring2,ring2"):
        check_deadlock_free(parse(spec), LINK)


@pytest.mark.parametrize(("change", "text"), [
    (None, "lacks entries in its route table for 1 of its destinations"),
    (3, "sends packets to card 3 that are for other cards"),
    (7, "sends packets by port 7, which is open")])
def test_a_table_with_one_wrong_entry_is_refused(change, text):
    topology = Rewritten.of("tiers:crossbar4", {(4, 0, 1): change})
    with pytest.raises(ValueError, match=f"switch s?0.*{text}"):
        check_deadlock_free(topology, LINK)


def test_boxes_answer_as_lists_of_ids_do():
    rng = random.Random(7)
    fields = ((0, 3), (2, 5), (5, 1), (5, 2))
    ids = [x | y << 2 | z << 5 for x in range(3) for y in range(5) for z in range(2)]

    def members(boxes):
        return [each for each in ids
                if any(all(values >> (each >> shift & (1 << (size - 1).bit_length()) - 1) & 1
                           for values, (shift, size) in zip(box, fields, strict=True))
                       for box in boxes)]
    for _ in range(500):
        boxes = []
        for _ in range(2):
            mask = rng.randrange(128)
            value = rng.randrange(128) & (mask if rng.random() < 0.9 else 127)
            box = matching(fields, mask, value)
            assert members([box] if box else []) == [each for each in ids if each & mask == value]
            boxes += [box] if box else []
        if len(boxes) == 2:
            a, b = (set(members([box])) for box in boxes)
            common = intersect(*boxes)
            assert set(members([common] if common else [])) == a & b
            pieces = subtract(*boxes)
            assert sorted(members(pieces)) == sorted(a - b)
            assert sum(len(members([piece])) for piece in pieces) == len(a - b)
            assert set(members(merge([*pieces, boxes[1]]))) == a | b
