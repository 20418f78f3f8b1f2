"""Patterns against what BookSim's documentation says of them, written down anew."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from emu.traffic.patterns import PATTERNS, parse_pattern
from emu.traffic.setup import Load, Sizes, id_fields
from hdl.params import LinkParams
from hdl.topology import parse

PERMUTATIONS = ("bitcomp", "transpose", "bitrev", "shuffle", "randperm", "tornado", "neighbor")


def targets(text: str, spec: str, seed: int = 0) -> list[list[tuple[int, float]]]:
    pattern = parse_pattern(text, parse(spec), seed)
    return [[(each.node, round(each.share, 6)) for each in shares] for shares in pattern.shares]


def destinations(text: str, spec: str, seed: int = 0) -> list[int]:
    found = targets(text, spec, seed)
    assert all(len(shares) == 1 and shares[0][1] == 1 for shares in found)
    return [shares[0][0] for shares in found]


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("spec", ["mesh:4x4", "torus:8x8", "torus:4x4x4"])
def test_permutations_reach_every_node_once(name: str, spec: str) -> None:
    assert sorted(destinations(name, spec)) == list(range(parse(spec).cards))


def test_bit_permutations_of_sixteen_nodes() -> None:
    places = list(itertools.product((0, 1), repeat=4))  # most significant bit first

    def expect(move) -> list[int]:
        return [int("".join(map(str, move(*bits))), 2) for bits in places]
    assert destinations("bitcomp", "mesh:4x4") == expect(
        lambda a, b, c, d: (1 - a, 1 - b, 1 - c, 1 - d))
    assert destinations("transpose", "mesh:4x4") == expect(lambda a, b, c, d: (c, d, a, b))
    assert destinations("bitrev", "mesh:4x4") == expect(lambda a, b, c, d: (d, c, b, a))
    assert destinations("shuffle", "mesh:4x4") == expect(lambda a, b, c, d: (b, c, d, a))


@pytest.mark.parametrize(("name", "spec", "steps"), [
    ("tornado", "torus:8x8", (3, 3)), ("tornado", "ring:7", (3,)), ("tornado", "mesh:4x6", (1, 2)),
    ("neighbor", "torus:4x4x4", (1, 1, 1)), ("neighbor", "fullmesh:4x2", (1, 1))])
def test_digit_permutations_move_each_coordinate(name: str, spec: str,
                                                 steps: tuple[int, ...]) -> None:
    shape = parse(spec)
    sizes = [max(axis) + 1 for axis in zip(*map(shape.coordinates, range(shape.cards)),
                                           strict=True)]
    for source, target in enumerate(destinations(name, spec)):
        assert shape.coordinates(target) == tuple(
            (x + step) % size for x, step, size in zip(shape.coordinates(source), steps, sizes,
                                                       strict=True))


def test_random_permutations_follow_their_seed() -> None:
    assert destinations("randperm", "torus:8x8", 1) == destinations("randperm", "torus:8x8", 1)
    assert destinations("randperm", "torus:8x8", 1) != destinations("randperm", "torus:8x8", 2)
    assert destinations("randperm(5)", "mesh:4x4", 1) == destinations("randperm(5)", "mesh:4x4", 2)


def test_uniform_lists_nobody() -> None:
    assert targets("uniform", "mesh:4x4") == [[]] * 16
    assert parse_pattern("uniform", parse("mesh:4x4")).uniform_share == 1


def test_diagonal_asymmetric_and_taper64() -> None:
    assert targets("diagonal", "ring:5")[4] == [(0, 0.333333), (4, 0.666667)]
    assert targets("asymmetric", "ring:6")[4] == [(1, 0.5), (4, 0.5)]
    around = targets("taper64", "mesh:8x8")[0]
    assert sorted(node for node, _ in around) == [0, 1, 7, 8, 9, 55, 56, 57, 63]
    assert sum(share for _, share in around) == pytest.approx(0.5, abs=1e-5)


def test_hotspot_and_incast_name_their_hot_nodes() -> None:
    assert targets("hotspot({1,2},{3,1})", "mesh:4x4") == [[(1, 0.75), (2, 0.25)]] * 16
    assert parse_pattern("hotspot", parse("mesh:4x4"), 3).hot
    pattern = parse_pattern("incast(5,20)", parse("mesh:4x4"))
    assert pattern.hot == {5} and pattern.shares[5] == ()
    assert [(each.node, each.share) for each in pattern.shares[0]] == [(5, 0.2)]
    assert Counter(len(shares) for shares in pattern.shares) == {1: 15, 0: 1}


@pytest.mark.parametrize(("text", "spec", "named"), [
    ("star", "mesh:4x4", ["'star'", *PATTERNS]),
    ("bitcomp", "mesh:3x4", ["'bitcomp'", "mesh:3x4", "power of two", "12"]),
    ("transpose", "ring:8", ["'transpose'", "even power of two", "8"]),
    ("taper64", "mesh:4x4", ["64", "16"]),
    ("hotspot(16)", "mesh:4x4", ["16", "0 to 15"]),
    ("hotspot({1,2},{1,2,3})", "mesh:4x4", ["rates"]),
    ("hotspot({1,2},0)", "mesh:4x4", ["rates", "0"]),
    ("hotspot(a)", "mesh:4x4", ["'a'", "numbers"]),
    ("incast(1,101)", "mesh:4x4", ["101", "percent"]),
    ("uniform(1)", "mesh:4x4", ["0 arguments", "1"]),
])
def test_a_pattern_that_does_not_suit_is_refused(text: str, spec: str, named: list[str]) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_pattern(text, parse(spec))
    for word in named:
        assert word in str(refusal.value)


@pytest.mark.parametrize("spec", ["ring:5", "mesh:3x4", "torus:4x3x5", "fullmesh:4x4"])
def test_the_fields_of_ids_make_up_all_cards(spec: str) -> None:
    shape = parse(spec)
    fields = id_fields(shape)
    ids = {sum(x << shift for x, (_, shift) in zip(place, fields, strict=True))
           for place in itertools.product(*(range(size) for size, _ in fields))}
    assert ids == {shape.node_id(rank) for rank in range(shape.cards)}


def test_rates_are_flits_per_node_and_cycle() -> None:
    pattern = parse_pattern("uniform", parse("ring:4"))
    assert Load(pattern, 0.6, Sizes((1, 4), (1.0, 1.0))).probability == pytest.approx(0.24)
    with pytest.raises(ValueError, match=r"at most 2.5 flits"):
        Load(pattern, 2.6, Sizes((1, 4), (1.0, 1.0))).probability  # noqa: B018


def test_packet_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="1 to 129 flits of 32 B, not 130"):
        Sizes((130,), (1.0,)).check(LinkParams())
    with pytest.raises(ValueError, match="2 to 258 flits of 16 B, not 1"):
        Sizes((1,), (1.0,)).check(LinkParams(flit_bytes=16))
    for flits, weights in (((1,) * 5, (1.0,) * 5), ((1, 2), (1.0,)), ((1,), (0.0,))):
        with pytest.raises(ValueError):
            Sizes(flits, weights)
