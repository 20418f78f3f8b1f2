"""Dimension-wise AllReduce: proved for one leaf, as the full proof judges it on small groups."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from drivers.collectives import (
    Buffer,
    Kind,
    NoShapeError,
    Program,
    ScheduleError,
    Send,
    Signal,
    check,
    check_program,
    compile_program,
    dimension_allreduce,
    dimension_shape,
    reference,
)
from drivers.collectives.compiler import Placement, compile_schedule
from drivers.collectives.dimensions import counters_of, moves_of, slices_of
from drivers.dtypes import DTYPES
from drivers.group import OPERATORS
from emu.oracle import dimension_sum
from hdl.params import preset
from hdl.topology import parse

F32 = DTYPES["f32"]
#: Stages of each dimension.
GROUPS = [[], [[2]], [[3]], [[2, 2]], [[4], [2]], [[2], [2], [2]], [[5]], [[2, 3], [2]]]


def program(count: int, dims, slices: int = 1, granule: int = 1, seed: int | None = None,
            rails: int = 1) -> Program:
    """One of the orders that moves may have: slice by slice step, or at random."""
    factors = [factor for dim in dims for factor in dim]
    numbers = iter(range(len(factors)))
    parts = slices_of(count, [tuple(next(numbers) for _ in dim) for dim in dims], slices,
                      granule=granule, rails=rails)
    left = [list(range(len(moves_of(number, part, factors)))) for number, part in enumerate(parts)]
    rng, order = random.Random(seed), []
    while any(left):
        number = (rng.choice([n for n, moves in enumerate(left) if moves]) if seed is not None
                  else max(range(len(left)), key=lambda n: len(left[n])))
        order.append((number, left[number].pop(0)))
    return dimension_allreduce(count, factors, parts, order, granule=granule)


def members_of(dims) -> int:
    return prod(factor for dim in dims for factor in dim)


def values_of(members: int, count: int, dtype: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    # Magnitudes far apart: sums depend on their order.
    return [(rng.standard_normal(count) * 2.0 ** rng.integers(-12, 12, count)).astype(
        np.float32).astype(DTYPES[dtype].numpy) for _ in range(members)]


@pytest.mark.parametrize("dims", GROUPS)
@pytest.mark.parametrize("count", [0, 1, 7, 101])
@pytest.mark.parametrize(("slices", "granule"), [(1, 1), (3, 4)])
def test_programs_pass_both_proofs_and_add_in_the_order_of_the_definition(dims, count, slices,
                                                                         granule):
    made = program(count, dims, slices, granule, seed=count)
    check_program(made)
    schedule = made.expand()
    check(schedule)
    for dtype, op in (("f32", "sum"), ("bf16", "sum"), ("f16", "min")):
        inputs = values_of(made.members, count, dtype, seed=count)
        expected = dimension_sum(made, inputs, op)
        for output in reference(schedule, inputs, dtype, OPERATORS[op]):
            assert output.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dims", [[[2], [3]], [[3]], [[2, 2], [2]]])
def test_with_several_rails_slices_begin_with_different_dimensions(dims):
    made = program(100, dims, 4, rails=2)
    assert {part.rail for part in made.slices} == {0, 1}
    assert len({(part.stages, part.direction) for part in made.slices}) == 2
    check_program(made)
    check(made.expand())
    inputs = values_of(made.members, 100, "f32", seed=5)
    for output in reference(made, inputs, "f32"):
        assert output.tobytes() == dimension_sum(made, inputs).tobytes()


@pytest.mark.parametrize("dims", GROUPS)
def test_integers_add_up_as_numpy_has_them(dims):
    made = program(50, dims, 2)
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-1000, 1000, 50).astype(np.float32) for _ in range(made.members)]
    assert np.array_equal(dimension_sum(made, inputs), np.sum(inputs, axis=0))


@pytest.mark.parametrize("dims", GROUPS)
def test_a_member_sends_no_more_than_it_must(dims):
    made = program(64 * members_of(dims), dims, 2)
    for steps in made.expand().lists:
        sent = sum(step.source.count for step in steps if isinstance(step, Send))
        assert sent == 2 * (made.members - 1) * 64
        assert sum(isinstance(step, Signal) for step in steps) == 2 * len(made.factors)


def test_what_would_carry_nothing_is_left_out():
    made = program(2, [[2], [2], [2]])
    lengths = [len(steps) for steps in made.expand().lists]
    assert max(lengths) < 1 + len(made.moves)
    sends = [step for steps in made.expand().lists for step in steps if isinstance(step, Send)]
    assert all(step.source.count for step in sends)
    assert sum(step.source.count for step in sends) == 2 * 7 * 2


# --- what must be refused, by both proofs

def mutants(made: Program):
    """Programs with one mistake each."""
    for place, move in enumerate(made.moves):
        for index in range(len(move.waits)):
            yield place, replace(move, waits=move.waits[:index] + move.waits[index + 1:])
        factor = made.factors[move.stage]
        if move.kind is not Kind.SIGNAL:
            yield place, replace(move, chunk=move.chunk + 1)
            if factor > 2:
                yield place, replace(move, step=-move.step)
            other = Kind.WRITE if move.kind is Kind.REDUCE else Kind.REDUCE
            yield place, replace(move, kind=other)
        elif factor > 2:
            yield place, replace(move, step=-move.step)
        yield place, replace(move, kind=Kind.SIGNAL, serves=())
        for stage in range(len(made.factors)):
            if stage != move.stage:
                yield place, replace(move, stage=stage, step=1)


def refused(proof, thing) -> bool:
    try:
        proof(thing)
    except ScheduleError:
        return True
    return False


def compare_proofs(dims, slices: int, seed: int) -> tuple[int, int]:
    """Both proofs on every mutant: how many there are, and how many the full proof refuses. What it
    refuses, the other one must refuse."""
    made = program(8 * members_of(dims), dims, slices, seed=seed)
    total = wrong = 0
    for place, move in mutants(made):
        mutant = replace(made, moves=(*made.moves[:place], move, *made.moves[place + 1:]))
        total += 1
        if refused(lambda program: check(program.expand()), mutant):
            wrong += 1
            assert refused(check_program, mutant), (dims, slices, mutant.describe(place))
    return total, wrong


@pytest.mark.parametrize("dims", [[[2, 2]], [[3]], [[4], [2]]])
def test_what_the_full_proof_refuses_the_proof_for_one_leaf_refuses(dims):
    total, wrong = compare_proofs(dims, 1, seed=0)
    assert wrong > 0.8 * total


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dims", [[[2], [2], [2]], [[2, 3], [2]], [[5]], [[4], [3]], [[2], [2, 2]]])
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_both_proofs_agree_on_many_small_groups(dims, slices, seed):
    total, wrong = compare_proofs(dims, slices, seed)
    assert wrong > 0.8 * total


@pytest.mark.parametrize(("place", "change", "text"), [
    (1, {"waits": ()}, "has not signalled that it is ready"),
    (3, {"waits": (2,)}, "races with the arrival of move 1, for which it does not wait"),
    (3, {"kind": Kind.WRITE}, "has not passed on just once"),
    (4, {"waits": ()}, "races with the arrival of move 3"),
    (5, {"kind": Kind.REDUCE}, "adds to a chunk that its member has passed on"),
    (2, {"waits": ()}, "for which the peer's signal does not wait"),
    (4, {"counter": 0}, "shares a counter with moves from another peer"),
    (4, {"step": 0}, "has its own member as peer"),
    (4, {"waits": (99,)}, "waits for move 99, which does not come before it"),
    (5, {"kind": Kind.SIGNAL}, r"ends at member \d with \d of 4 contributions")])
def test_a_mistake_is_named(place, change, text):
    made = program(16, [[2], [2]])
    move = replace(made.moves[place], **change)
    with pytest.raises(ScheduleError, match=text):
        check_program(replace(made, moves=(*made.moves[:place], move, *made.moves[place + 1:])))


def test_slices_that_leave_elements_out_are_refused():
    made = program(16, [[2]], 2)
    with pytest.raises(ScheduleError, match="slices end at 8 and not at 16"):
        check_program(replace(made, slices=(made.slices[0], replace(
            made.slices[0], region=replace(made.slices[0].region, start=8, count=0)))))


# --- compilation

@pytest.mark.parametrize("dims", GROUPS)
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_packed_lists_are_those_of_the_compiler_of_schedules(dims, count):
    made = program(count, dims, 2, seed=count)
    nodes = [3 * member + 1 for member in range(made.members)]
    addresses = [4096 * member + 4 * member for member in range(made.members)]
    rng = np.random.default_rng(count)
    counters = np.array([rng.permutation(64)[:made.counters] for _ in nodes]).reshape(
        made.members, made.counters)
    before = rng.integers(0, 1 << 32, counters.shape)
    compiled = compile_program(made, nodes, addresses, F32, mtu=256, counters=counters,
                               before=before)
    schedule = made.expand()
    wanted = compile_schedule(
        schedule, [Placement(node, {Buffer.OUTPUT: address})
                   for node, address in zip(nodes, addresses, strict=True)], F32, mtu=256,
        counters={(member, name): (int(counters[member, int(name)]), int(before[member, int(name)]))
                  for member, name in schedule.arrivals})
    for packed, commands in zip(compiled.lists, wanted.lists, strict=True):
        assert packed.raw.tobytes() == b"".join(command.pack() for command in commands)
        assert packed.signals.tolist() == [command.signal for command in commands]
    for (member, name), packets in wanted.packets.items():
        assert compiled.packets[member, int(name)] == packets


# --- shapes

def shape(spec, size, ranks=None, *, counters=64, entries=256, params=None):
    topology = parse(spec)
    return dimension_shape(topology, topology.card(params or preset("default")),
                           tuple(range(topology.cards) if ranks is None else ranks), size // 4, 4,
                           counters=counters, entries=entries)


@pytest.mark.parametrize("spec", [
    "ring:1", "ring:2", "ring:13", "mesh:3x4", "mesh:5", "torus:4x4x4", "torus:3x5", "fullmesh:8",
    "ubmesh:4x4x2", "clos:4x2", "tiers:crossbar4,fullmesh3", "tiers:fullmesh4,switch8"])
@pytest.mark.parametrize("size", [0, 4, 4096, 1 << 20])
def test_every_machine_has_a_shape_that_is_proved(spec, size):
    made, order, _ = shape(spec, size)
    assert sorted(order) == list(range(parse(spec).cards))
    check_program(made)
    assert made.counters <= 64


def test_boxes_of_a_machine_have_shapes_and_other_groups_have_none():
    topology = parse("torus:4x4x4")
    box = [rank for rank in range(64) if topology.coordinates(rank)[0] in (1, 2)
           and topology.coordinates(rank)[2] in (0, 3)]
    made, order, _ = shape("torus:4x4x4", 4096, box)
    assert sorted(order) == box and prod(made.factors) == 16
    with pytest.raises(NoShapeError, match="these 3 cards of torus:4x4x4 are none"):
        shape("torus:4x4x4", 4096, [0, 1, 5])


def test_members_of_a_stage_differ_in_one_dimension_alone():
    topology = parse("torus:4x3x2")
    made, order, _ = shape("torus:4x3x2", 1 << 16)
    for stage in range(len(made.factors)):
        for member, peer in enumerate(made.shifted(stage, 1)):
            a, b = (topology.coordinates(order[each]) for each in (member, peer))
            assert sum(x != y for x, y in zip(a, b, strict=True)) == 1


def test_few_counters_mean_few_slices_and_too_few_are_refused():
    assert len(shape("torus:4x4x4", 1 << 16).program.slices) > 1
    made = shape("torus:4x4x4", 1 << 16, counters=6).program
    assert made.counters <= 6 and len(made.slices) == 1
    with pytest.raises(NoShapeError, match="needs 6 counters of each, and one has 5 free"):
        shape("torus:4x4x4", 1 << 16, counters=5)
    assert counters_of([2, 2, 3]) == 4


def test_lists_fit_into_the_ring_of_commands():
    for spec in ("torus:4x4x4", "ring:13", "torus:8x8x16"):
        made = shape(spec, 1 << 20).program
        assert made.there.sum(axis=0).max() + 2 * len(made.factors) < 256


def test_thousands_of_cards_are_a_matter_of_seconds():
    topology = parse("torus:16x16x32")
    before = time.process_time()
    made, order, _ = shape("torus:16x16x32", 4096)
    check_program(made)
    node_ids = [topology.node_id(rank) for rank in order]
    counters = np.tile(np.arange(made.counters), (made.members, 1))
    compiled = compile_program(made, node_ids, [0] * made.members, F32, mtu=1024,
                               counters=counters, before=np.zeros_like(counters))
    seconds = time.process_time() - before
    print(f"{seconds:.2f} s for {sum(map(len, compiled.lists)):,} commands")
    assert seconds < 20
