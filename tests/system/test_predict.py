"""The model that chooses algorithms, against the machine."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from drivers.collectives import Buffer, Collective, Setting, Task, proved_schedule
from drivers.collectives.predict import predict
from tests.drivers.test_algorithms import PAIRS

#: Sums at one owner come one after the other, and what waits behind them is not modelled.
LOOSE = {"direct": 0.30}


@pytest.fixture(scope="module")
def cube():
    with emu.open("torus:2x2x2", memory_bytes=1 << 24) as sn:
        yield sn


def even_task(kind: Collective, count: int) -> Task:
    """A task with blocks of one size: others meet at receivers, and the model is up to 20 % off."""
    if kind is Collective.BARRIER:
        return Task(kind, 8, ())
    if kind.whole:
        return Task(kind, 8, (count,))
    return Task(kind, 8, (max(1, count // 8),) * (64 if kind is Collective.ALLTOALL else 8))


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@pytest.mark.parametrize("count", [2, 1000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_predicted_cycles_are_near_those_of_the_machine(cube, name, kind, count):
    task = even_task(kind, count)
    setting = Setting.of(cube.topology, cube.params, range(8), 4)
    predicted = predict(proved_schedule(name, task, setting), cube.topology, cube.params, range(8),
                        4)
    arrays = {buffer: [cube.malloc(task.size(card, buffer), "f32", card) for card in range(8)]
              for buffer in (Buffer.INPUT, Buffer.OUTPUT)}
    for array in arrays[Buffer.INPUT]:
        array.write(np.ones(array.size, np.float32))
    result = cube.group().start(task, arrays[Buffer.INPUT], arrays[Buffer.OUTPUT], "sum",
                                name).wait()
    cube.free(*arrays[Buffer.INPUT], *arrays[Buffer.OUTPUT])
    within = LOOSE.get(name, 0.10) if kind.reduces else 0.10
    assert predicted == pytest.approx(result.cycles, rel=within)


def test_auto_takes_what_the_model_finds_fastest_and_says_so(cube):
    arrays = [cube.malloc(2, "f32", card).write(np.ones(2, np.float32)) for card in range(8)]
    handle = cube.allreduce(arrays)
    handle.wait()
    assert handle.algorithm == "doubling"
    assert handle.reason.startswith("doubling: ") and "cycles by the model; " in handle.reason
    for other in ("ring", "tree", "dimensions", "direct"):
        assert f"{other} " in handle.reason
    assert Collective(handle.schedule.task.kind) is Collective.ALLREDUCE
