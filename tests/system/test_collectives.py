"""Every collective with every algorithm on the RTL: right bits, whatever the buffers, and nothing
else touched."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

import emu
from drivers.collectives import Buffer, Collective, Task
from drivers.dtypes import DTYPES, reducible
from drivers.group import OPERATORS
from emu.oracle import outputs_of
from tests.drivers.test_algorithms import PAIRS, expected, task_of, values_of

SEEDS = random.Random(int(os.environ["SUPERNODE_SEED"]))
GUARD = 16


def start(group, task: Task, inputs, outputs, algorithm: str):
    """Start a task by the method of its name; arrays of members that have none are ``None``."""
    n, root, kind = task.members, task.root, task.kind
    place = task.in_place
    if kind is Collective.BARRIER:
        return group.barrier(algorithm=algorithm)
    if kind is Collective.ALLREDUCE:
        return group.allreduce(outputs if place else inputs, None if place else outputs,
                               algorithm=algorithm)
    if kind is Collective.REDUCE:
        arrays = [outputs[p] if place and p == root else inputs[p] for p in range(n)]
        return group.reduce(arrays, None if place else outputs[root], root=root,
                            algorithm=algorithm)
    if kind is Collective.BROADCAST:
        return group.broadcast(None if place else inputs[root], outputs, root=root,
                               algorithm=algorithm)
    if kind is Collective.ALLGATHER:
        return group.allgather(None if place else inputs, outputs, counts=task.counts,
                               algorithm=algorithm)
    if kind is Collective.REDUCE_SCATTER:
        return group.reduce_scatter(outputs if place else inputs, None if place else outputs,
                                    counts=task.counts, algorithm=algorithm)
    if kind is Collective.GATHER:
        arrays = [None if place and p == root else inputs[p] for p in range(n)]
        return group.gather(arrays, outputs[root], root=root, counts=task.counts,
                            algorithm=algorithm)
    if kind is Collective.SCATTER:
        arrays = [None if place and p == root else outputs[p] for p in range(n)]
        return group.scatter(inputs[root], arrays, root=root, counts=task.counts,
                             algorithm=algorithm)
    counts = np.reshape(task.counts, (n, n)).tolist()
    return group.alltoall(outputs if place else inputs, None if place else outputs, counts=counts,
                          algorithm=algorithm)


class Run:
    """A task on some cards of a machine, with guards around every buffer."""

    def __init__(self, sn, cards, task: Task, rng, *, aligned: bool) -> None:
        self.task, self.sn = task, sn
        self.inputs = values_of(task, rng)
        self.whole, self.images, self.arrays = [], [], {}
        for member, card in enumerate(cards):
            for buffer in (Buffer.INPUT, Buffer.OUTPUT):
                size = task.size(member, buffer)
                lane = 0 if aligned else int(rng.integers(8))
                whole = sn.malloc(size + 2 * GUARD, "f32", card)
                image = rng.integers(1, 99, whole.size).astype(np.float32)
                array = whole.view(8 + lane, size)
                entry = task.input(member)
                if entry.buffer is buffer and entry.count:
                    image[8 + lane + entry.start:8 + lane + entry.end] = self.inputs[member]
                self.arrays[member, buffer] = array if size else whole.view(8 + lane, 0)
                self.whole.append((whole.write(image), member, buffer, 8 + lane))
                self.images.append(image)

    def of(self, buffer: Buffer):
        return [self.arrays[member, buffer] for member in range(self.task.members)]

    def check(self, outputs) -> None:
        for (whole, member, buffer, lane), image in zip(self.whole, self.images, strict=True):
            result = self.task.output(member)
            if buffer is Buffer.OUTPUT and result.count:
                image[lane + result.start:lane + result.end] = outputs[member]
            assert whole.read().tobytes() == image.tobytes(), f"{self.task}: {buffer} of {member}"

    def free(self) -> None:
        self.sn.free(*(whole for whole, *_ in self.whole))


def run(sn, cards, task: Task, algorithm: str, rng, *, aligned: bool = False):
    one = Run(sn, cards, task, rng, aligned=aligned)
    handle = start(sn.group(cards), task, one.of(Buffer.INPUT), one.of(Buffer.OUTPUT), algorithm)
    result = handle.wait()
    assert result.cycles >= result.bound_cycles
    one.check(expected(task, one.inputs))
    one.free()
    return result


@pytest.fixture(scope="module")
def cube():
    with emu.open("torus:2x2x2", memory_bytes=1 << 22) as sn:
        yield sn


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_algorithm_gives_the_right_bits_on_some_cards(cube, name, kind):
    seed = SEEDS.randrange(1 << 32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for members in (1, 2, 5, 8):
        for in_place in (False, True):
            cards = [int(card) for card in rng.permutation(8)[:members]]
            count = int(rng.choice([0, 1, 3, 40, 300]))
            run(cube, cards, task_of(kind, members, count, in_place, rng), name, rng,
                aligned=bool(rng.random() < 0.5))


@pytest.mark.parametrize("op", OPERATORS)
def test_every_type_is_reduced_as_the_oracle_does(cube, op):
    for dtype in reducible():
        kind = DTYPES[dtype]
        rng = np.random.default_rng(7)
        bits = rng.integers(0, 1 << 8 * kind.size, (8, 301), f"u{kind.size}")
        inputs = list(bits.view(kind.numpy))
        arrays = [cube.malloc(301, dtype, card).write(values)
                  for card, values in enumerate(inputs)]
        task = Task(Collective.ALLREDUCE, 8, (301,), in_place=True)
        for algorithm in ("dimensions", "ring", "halving"):
            for array, values in zip(arrays, inputs, strict=True):
                array.write(values)
            handle = cube.allreduce(arrays, op=op, algorithm=algorithm)
            handle.wait()
            wanted = outputs_of(cube.topology, cube.params, range(8), task, inputs, handle, op)
            for array, values in zip(arrays, wanted, strict=True):
                assert array.read().tobytes() == values.tobytes(), (dtype, algorithm)
        cube.free(*arrays)
