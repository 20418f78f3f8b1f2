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
from tests.drivers.test_algorithms import PAIRS, task_of

SEEDS = random.Random(int(os.environ["SUPERNODE_SEED"]))
GUARD = 16


def start(group, task: Task, inputs, outputs, algorithm: str, op: str = "sum"):
    """Start a task by the method of its name; arrays of members that have none are ``None``."""
    n, root, kind = task.members, task.root, task.kind
    place = task.in_place
    if kind is Collective.BARRIER:
        return group.barrier(algorithm=algorithm)
    if kind is Collective.ALLREDUCE:
        return group.allreduce(outputs if place else inputs, None if place else outputs, op=op,
                               algorithm=algorithm)
    if kind is Collective.REDUCE:
        arrays = [outputs[p] if place and p == root else inputs[p] for p in range(n)]
        return group.reduce(arrays, None if place else outputs[root], root=root, op=op,
                            algorithm=algorithm)
    if kind is Collective.BROADCAST:
        return group.broadcast(None if place else inputs[root], outputs, root=root,
                               algorithm=algorithm)
    if kind is Collective.ALLGATHER:
        return group.allgather(None if place else inputs, outputs, counts=task.counts,
                               algorithm=algorithm)
    if kind is Collective.REDUCE_SCATTER:
        return group.reduce_scatter(outputs if place else inputs, None if place else outputs,
                                    counts=task.counts, op=op, algorithm=algorithm)
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
    """A task on some cards of a machine, with guards around every buffer and any bits in them."""

    def __init__(self, sn, cards, task: Task, rng, *, dtype: str = "f32", op: str = "sum",
                 aligned: bool = False) -> None:
        self.task, self.sn, self.cards, self.op = task, sn, cards, op
        kind = DTYPES[dtype]
        self.arrays, self.whole, self.images = {}, [], []
        self.inputs = [np.zeros(0, kind.numpy)] * task.members
        for member, card in enumerate(cards):
            for buffer in (Buffer.INPUT, Buffer.OUTPUT):
                size = task.size(member, buffer)
                start = GUARD + (0 if aligned else int(rng.integers(32)))
                image = rng.integers(0, 1 << 8 * kind.size, size + 2 * GUARD + 32,
                                     f"u{kind.size}").view(kind.numpy)
                whole = sn.malloc(image.size, dtype, card).write(image)
                self.arrays[member, buffer] = whole.view(start, size)
                entry = task.input(member)
                if entry.buffer is buffer:
                    self.inputs[member] = image[start + entry.start:start + entry.end].copy()
                self.whole.append((whole, member, buffer, start))
                self.images.append(image)

    def of(self, buffer: Buffer):
        return [self.arrays[member, buffer] for member in range(self.task.members)]

    def start(self, algorithm: str = "auto"):
        group = self.sn.group(self.cards)
        self.handle = start(group, self.task, self.of(Buffer.INPUT), self.of(Buffer.OUTPUT),
                            algorithm, self.op)
        return self

    def finish(self):
        """Wait, compare every byte, and give the memory back."""
        result = self.handle.wait()
        assert result.cycles >= result.bound_cycles
        outputs = outputs_of(self.sn.topology, self.sn.params, self.cards, self.task, self.inputs,
                             self.handle, self.op)
        for (whole, member, buffer, start), image in zip(self.whole, self.images, strict=True):
            region = self.task.output(member)
            if buffer is Buffer.OUTPUT and region.count:
                image[start + region.start:start + region.end] = outputs[member]
            assert whole.read().tobytes() == image.tobytes(), (
                f"{self.handle.operation.name}: {buffer} of member {member}")
        self.sn.free(*(whole for whole, *_ in self.whole))
        return result


@pytest.fixture(scope="module")
def cube():
    with emu.open("torus:2x2x2", memory_bytes=1 << 22) as sn:
        yield sn


def fresh_rng():
    seed = SEEDS.randrange(1 << 32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def some(rng, count: int) -> list[int]:
    """So many of eight cards, in any order."""
    return [int(card) for card in rng.permutation(8)[:count]]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_algorithm_gives_the_right_bits_on_some_cards(cube, name, kind):
    rng = fresh_rng()
    for members in (1, 2, 3, 5, 8):
        for in_place in (False, True):
            count = int(rng.choice([0, 1, 3, 40, 300]))
            dtypes = reducible() if kind.reduces else tuple(DTYPES)
            Run(cube, some(rng, members), task_of(kind, members, count, in_place, rng), rng,
                dtype=str(rng.choice(dtypes)), op=str(rng.choice(list(OPERATORS))),
                aligned=bool(rng.random() < 0.3)).start(name).finish()


@pytest.mark.parametrize("op", OPERATORS)
def test_every_type_is_reduced_as_the_oracle_does(cube, op):
    rng = fresh_rng()
    for dtype in reducible():
        for algorithm in ("dimensions", "ring", "halving", "doubling"):
            task = Task(Collective.ALLREDUCE, 8, (301,), in_place=True)
            Run(cube, range(8), task, rng, dtype=dtype, op=op).start(algorithm).finish()


def in_flight(sn, rng) -> None:
    """Start collectives of any kind on any groups, and wait for them in any order."""
    runs = []
    for _ in range(6):
        kind = Collective(rng.choice([str(kind) for kind in Collective]))
        members = int(rng.integers(1, 6))
        task = task_of(kind, members, int(rng.integers(0, 200)), bool(rng.integers(2)), rng)
        runs.append(Run(sn, some(rng, members), task, rng).start())
    for number in rng.permutation(len(runs)):
        runs[number].finish()


def test_collectives_in_flight_at_once_on_groups_that_overlap_do_not_mix(cube):
    rng = fresh_rng()
    for _ in range(8):
        in_flight(cube, rng)
    assert all(device.counters.free == cube.params.nic.counters for device in cube.devices)


def test_bits_do_not_depend_on_when_memory_answers():
    rng = fresh_rng()
    with emu.open("torus:2x2x2", memory_bytes=1 << 22, stall_rate=0.3,
                  seed=int(rng.integers(1 << 31))) as sn:
        for name, kind in PAIRS:
            Run(sn, some(rng, 5), task_of(kind, 5, 70, bool(rng.integers(2)), rng),
                rng).start(name).finish()
        in_flight(sn, rng)


@pytest.fixture(scope="module")
def sixteen():
    with emu.open("mesh:4x4", memory_bytes=1 << 24) as sn:
        yield sn


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_collective_algorithm_type_size_and_place(sixteen, name, kind, dtype):
    if kind.reduces and dtype not in reducible():
        pytest.skip(f"cards reduce no {dtype}")
    rng = fresh_rng()
    for members in (1, 2, 3, 5, 8, 16):
        for count in (0, 1, 3, 1023, 4096, 65537):
            whole = kind.whole or kind is Collective.BARRIER
            blocks = count if whole else -(-count // members)
            for in_place in (False, True):
                cards = [int(card) for card in rng.permutation(16)[:members]]
                Run(sixteen, cards, task_of(kind, members, blocks, in_place, rng), rng, dtype=dtype,
                    op=str(rng.choice(list(OPERATORS)))).start(name).finish()
