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
