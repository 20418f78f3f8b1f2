"""Bounds: known values, and what must hold for any size."""

from __future__ import annotations

import pytest

from hdl.params import CardParams, RouterParams, preset
from hdl.topology import allreduce_bound, gemm_bound, p2p_bound, parse

DEFAULT = preset("default")
TORUS = parse("torus:2x2x2")


def test_allreduce_of_1_mib_on_8_cards_is_bound_by_injection():
    bound = allreduce_bound(TORUS, DEFAULT, range(8), 1 << 20)
    assert bound.cycles == 2 * 7 * (1 << 20) // 8 // 32 == 57344
    assert bound.efficiency(57344 * 2) == 0.5


def test_latency_decides_small_sizes():
    latency = 64 + 3 * (3 + 16) + 1
    assert allreduce_bound(TORUS, DEFAULT, range(8), 4).cycles == latency
    assert p2p_bound(TORUS, DEFAULT, 0, 7, 1).cycles == latency
    assert p2p_bound(TORUS, DEFAULT, 0, 7, 64).cycles == latency + 1
    assert p2p_bound(TORUS, DEFAULT, 3, 3, 4).cycles == 64 + 1


@pytest.mark.parametrize("bound", [
    allreduce_bound(TORUS, DEFAULT, range(8), 0), allreduce_bound(TORUS, DEFAULT, [3], 1 << 20),
    p2p_bound(TORUS, DEFAULT, 0, 1, 0), gemm_bound(DEFAULT, 0, 16, 16),
    gemm_bound(DEFAULT, 16, 0, 16)])
def test_where_nothing_must_move_the_bound_is_0_and_there_is_no_efficiency(bound):
    assert bound.cycles == 0 and bound.limit == "nothing"
    assert bound.efficiency(100) is None


def test_a_mesh_line_is_bound_by_its_bisection():
    bound = allreduce_bound(parse("mesh:8"), CardParams(router=RouterParams(rails=4)),
                            range(8), 1 << 20)
    assert bound.limit in ("bisection", "injection")
    assert bound.terms["bisection"] == (1 << 20) // 32


def test_rails_divide_injection_only_as_far_as_links_carry_it():
    two = CardParams(router=RouterParams(rails=2))
    size = 1 << 20
    assert allreduce_bound(TORUS, two, range(8), size).cycles == 57344 // 2
    assert allreduce_bound(parse("mesh:2"), two, range(2), size).cycles == size // 32


def test_gemm_is_bound_by_the_array():
    bound = gemm_bound(DEFAULT, 256, 256, 256)
    assert (bound.cycles, bound.limit) == (65536, "array")
    assert gemm_bound(DEFAULT, 1, 1, 1).cycles == 64 + 64 + 1
    assert gemm_bound(DEFAULT, 512, 512, 0).cycles == 512 * 512 * 4 // 32


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096, 100_000])
def test_bounds_grow_with_size_and_distance(size):
    assert p2p_bound(TORUS, DEFAULT, 0, 1, size).cycles < p2p_bound(
        TORUS, DEFAULT, 0, 7, size).cycles
    assert allreduce_bound(TORUS, DEFAULT, range(8), size).cycles <= allreduce_bound(
        TORUS, DEFAULT, range(8), size + 32).cycles


@pytest.mark.parametrize(("spec", "a", "b", "flight"), [
    ("tiers:crossbar4", 0, 3, (3 + 16) + (4 + 16)),
    ("tiers:crossbar4@5,fullmesh2@40", 0, 7, (3 + 5) + (4 + 40) + (4 + 5)),
    ("tiers:crossbar4@5,fullmesh2@40", 0, 1, (3 + 5) + (4 + 5)),
    ("tiers:fullmesh4,switch3@30", 0, 11, (3 + 16) + (3 + 30) + (4 + 30)),
    ("ubmesh:2x2x2x2", 0, 15, 2 * (3 + 16) + 2 * (3 + 56)),
    ("clos:4x3@5,9,60", 0, 15, (3 + 5) + (4 + 9) + 2 * (4 + 60) + (4 + 9) + (4 + 5))])
def test_latency_counts_links_of_each_tier_and_the_node_before_each(spec, a, b, flight):
    topology = parse(spec)
    assert p2p_bound(topology, DEFAULT, a, b, 1).terms["latency"] == 64 + flight + 1
    assert allreduce_bound(topology, DEFAULT, [a, b], 4).terms["latency"] == 64 + flight + 1


def test_a_group_with_few_links_to_the_rest_bounds_what_crosses_them():
    four = CardParams(router=RouterParams(rails=4))
    boards = parse("tiers:fullmesh4,switch2")  # 4 links between each board and the switches
    assert allreduce_bound(boards, four, range(8), 1 << 20).terms["cut"] == (1 << 20) // 32 // 4
    tapered = parse("tiers:crossbar8,fullmesh2")  # 1 link between boards of 8 cards
    bound = allreduce_bound(tapered, DEFAULT, range(16), 1 << 20)
    assert bound.terms["cut"] == (1 << 20) // 32
    assert "cut" not in allreduce_bound(tapered, DEFAULT, range(8), 1 << 20).terms


def test_a_write_between_boards_is_no_faster_than_the_links_between_them():
    four = CardParams(router=RouterParams(rails=4))
    topology = parse("tiers:fullmesh4,mesh2,switch2")
    near = p2p_bound(topology, four, 0, 1, 1 << 20).terms
    assert near["injection"] - near["latency"] == (1 << 20) // 32 // 4 - 1
    line = parse("tiers:crossbar4,fullmesh2*2")
    terms = p2p_bound(line, four, 0, 4, 1 << 20).terms
    # A card has a single uplink.
    assert terms["injection"] - terms["latency"] == (1 << 20) // 32 - 1
