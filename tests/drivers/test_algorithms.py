"""Every algorithm writes schedules that are proved, and that give the right bits in the order that
its documentation promises."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.collectives import (
    AlgorithmError,
    Buffer,
    Collective,
    Send,
    Setting,
    Task,
    algorithms,
    alltoall_counts,
    proved_schedule,
    reference,
)
from drivers.dtypes import DTYPES
from drivers.group import OPERATORS
from emu.oracle import sum_in_order
from hdl.params import CardParams, RouterParams, preset

#: What each algorithm is for.
SERVES = {
    "ring": {"allreduce", "reduce_scatter", "allgather", "reduce", "broadcast"},
    "bidirectional": {"allreduce", "reduce_scatter", "allgather", "reduce", "broadcast"},
    "halving": {"allreduce", "reduce_scatter", "allgather"},
    "doubling": {"allreduce", "barrier"},
    "tree": {"allreduce", "reduce", "broadcast", "gather", "scatter", "barrier"},
    "direct": {"allreduce", "reduce", "reduce_scatter", "broadcast", "allgather", "gather",
               "scatter", "alltoall"},
    "pairwise": {"alltoall"},
    "bruck": {"alltoall"},
}
PAIRS = [(name, Collective(kind)) for name, kinds in SERVES.items() for kind in sorted(kinds)]
TWO_RAILS = CardParams(router=RouterParams(rails=2))


def task_of(kind: Collective, members: int, count: int, in_place: bool, rng) -> Task:
    """Blocks of ``count`` elements, or of up to so many."""
    root = int(rng.integers(members)) if kind.rooted else 0
    even = rng.random() < 0.5
    if kind is Collective.BARRIER:
        return Task(kind, members, ())
    if kind.whole:
        return Task(kind, members, (count,), root, in_place)
    blocks = members**2 if kind is Collective.ALLTOALL else members
    counts = (count,) * blocks if even else tuple(
        int(number) for number in rng.integers(0, count + 1, blocks))
    return Task(kind, members, counts, root, in_place)


def setting_of(task: Task, rng, *, params=None, item_size: int = 4) -> Setting:
    """Buffers that start anywhere in their flits, and a ring in any order."""
    flit = 32 // item_size
    lanes = rng.integers(0, flit, (task.members, 2))
    if task.in_place:
        lanes[:, 0] = lanes[:, 1]
    aligned = rng.random() < 0.5
    return Setting(params or preset("default"), item_size,
                   tuple(int(member) for member in rng.permutation(task.members)),
                   lanes=() if aligned else tuple((int(a), int(b)) for a, b in lanes))


def expected(task: Task, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Each member's output by definition, sums of integers exact."""
    def block(member: int, peer: int) -> np.ndarray:
        region, entry = task.block(member, peer), task.input(member)
        return inputs[member][region.start - entry.start:region.end - entry.start]

    outputs = []
    for member in range(task.members):
        size = task.output(member).count
        if not size:
            outputs.append(np.zeros(0, np.float32))
        elif task.kind.reduces:
            outputs.append(sum(block(peer, member) for peer in range(task.members)))
        elif task.kind in (Collective.BROADCAST, Collective.SCATTER):
            outputs.append(block(task.root, member))
        else:
            outputs.append(np.concatenate([block(peer, member) for peer in range(task.members)]))
    return outputs


def values_of(task: Task, rng) -> list[np.ndarray]:
    return [rng.integers(-999, 999, task.input(member).count).astype(np.float32)
            for member in range(task.members)]


def check_algorithm(name: str, kind: Collective, members: int, count: int, in_place: bool,
                    rng) -> None:
    task = task_of(kind, members, count, in_place, rng)
    params = TWO_RAILS if rng.random() < 0.3 else None
    schedule = proved_schedule(name, task, setting_of(task, rng, params=params))
    inputs = values_of(task, rng)
    for found, wanted in zip(reference(schedule, inputs, "f32"), expected(task, inputs),
                             strict=True):
        assert found.tobytes() == wanted.astype(np.float32).tobytes()


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_schedules_are_proved_and_do_what_their_collective_says(name, kind):
    rng = np.random.default_rng(11)
    for members in (1, 2, 3, 5, 8):
        for count in (0, 1, 3, 100):
            for in_place in (False, True):
                check_algorithm(name, kind, members, count, in_place, rng)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_schedules_are_proved_for_any_group_and_count(name, kind):
    rng = np.random.default_rng(12)
    for members in (*range(1, 14), 16, 17, 24):
        for count in (0, 1, 2, 3, 17, 100, 1023, 4096, 65537):
            if members * count > 1 << 19 and kind is Collective.ALLTOALL:
                continue
            for in_place in (False, True):
                check_algorithm(name, kind, members, count, in_place, rng)


def test_algorithms_serve_what_they_say_and_refuse_the_rest_by_name():
    rng = np.random.default_rng(1)
    assert set(algorithms()) == set(SERVES)
    for name in SERVES:
        for kind in Collective:
            task = task_of(kind, 4, 10, False, rng)
            if str(kind) in SERVES[name]:
                proved_schedule(name, task, setting_of(task, rng))
            else:
                with pytest.raises(AlgorithmError, match=rf"serves? .*{kind}"):
                    proved_schedule(name, task, setting_of(task, rng))


@pytest.mark.parametrize("name", [name for name, kinds in SERVES.items() if "allreduce" in kinds])
@pytest.mark.parametrize("members", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("count", [1, 13, 300])
@pytest.mark.parametrize(("dtype", "op"), [("f32", "sum"), ("e4m3", "sum"), ("i8", "max")])
def test_reductions_come_in_the_documented_order(name, members, count, dtype, op):
    rng = np.random.default_rng(count)
    inputs = [(rng.standard_normal(count) * 2.0 ** rng.integers(-6, 6, count)).astype(
        DTYPES[dtype].numpy) for _ in range(members)]
    for kind in (Collective.ALLREDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER):
        if str(kind) not in SERVES[name]:
            continue
        for in_place in (False, True):
            task = task_of(kind, members, count, in_place, rng)
            shares = [np.resize(values, task.input(member).count)
                      for member, values in enumerate(inputs)]
            setting = setting_of(task, rng)
            outputs = reference(proved_schedule(name, task, setting), shares, dtype,
                                OPERATORS[op])
            for found, wanted in zip(outputs, sum_in_order(name, task, setting, shares, op),
                                     strict=True):
                assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("name", "most"), [("halving", 3), ("doubling", 3), ("tree", 3),
                                            ("bruck", 3)])
def test_logarithmic_algorithms_take_so_many_steps(name, most):
    rng = np.random.default_rng(0)
    for kind in map(Collective, SERVES[name] - {"barrier"}):
        schedule = proved_schedule(name, task_of(kind, 8, 64, True, rng),
                                   Setting(preset("default"), 4, tuple(range(8))))
        # Both halves of an allreduce take as many, unless it exchanges whole vectors.
        twice = 1 + (kind is Collective.ALLREDUCE and name != "doubling")
        assert longest_chain(schedule) <= twice * most + 1


def longest_chain(schedule) -> int:
    """Most moves of data of which each waits for the one before, local copies left out."""
    order, _ = schedule.run_order()
    depth: dict[tuple[int, int], int] = {}
    latest = [0] * schedule.members
    for position, index in order:
        step = schedule.lists[position][index]
        start = latest[position]
        for wait in step.waits:
            for place in schedule.arrivals[position, wait.counter][:wait.sends]:
                start = max(start, depth[place])
        latest[position] = start
        depth[position, index] = start + (isinstance(step, Send) and step.peer != position)
    return max(depth.values())


def test_blocks_of_an_alltoall_need_no_room_beyond_their_places():
    task = Task(Collective.ALLTOALL, 5, alltoall_counts(5, 7))
    schedule = proved_schedule("direct", task, Setting(preset("default"), 4, tuple(range(5))))
    assert schedule.scratch == (0,) * 5
    assert schedule.size(3, Buffer.OUTPUT) == 35


def test_tasks_refuse_what_does_not_fit():
    for arguments, text in (((Collective.ALLREDUCE, 0, (1,)), "at least 1 member"),
                            ((Collective.ALLGATHER, 3, (1,)), "takes 3 counts, not 1"),
                            ((Collective.ALLTOALL, 2, (1, 2)), "takes 4 counts"),
                            ((Collective.SCATTER, 2, (1, -2)), "at least 0, not -2"),
                            ((Collective.REDUCE, 2, (1,), 2), "root must be from 0 to 1, not 2")):
        with pytest.raises(ValueError, match=text):
            Task(*arguments)
