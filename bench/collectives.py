"""Collectives: AllReduce around one ring and one dimension after the other (``python -m bench
allreduce``), and what ``auto`` chooses (``python -m bench auto``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import emu
from drivers.collectives import (
    AlgorithmError,
    Buffer,
    Collective,
    Program,
    Region,
    Setting,
    Task,
    algorithms,
)
from drivers.collectives.predict import predict
from drivers.supernode import SuperNode
from emu.oracle import allreduce_sum, outputs_of

__all__ = ["allreduce_rows", "auto_rows"]

MACHINES = ("torus:2x2x2", "torus:4x4x4", "mesh:4x4", "fullmesh:8")
SIZES = (4 << 10, 64 << 10, 1 << 20)
AUTO_MACHINES = ("torus:4x4x4", "fullmesh:8x8", "clos:8x2")
AUTO_SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 4 << 20)
#: Algorithms that the model finds so many times slower than the best are not run.
HOPELESS = 1.5


def allreduce_rows() -> Iterator[list[object]]:
    """Cycles and efficiency of both algorithms; every result is compared with the oracle."""
    yield ["machine", "bytes", "bound", "ring", "efficiency", "dimensions", "efficiency", "stages",
           "slices"]
    for spec in MACHINES:
        with emu.open(spec, memory_bytes=4 << 20) as machine:
            for size in SIZES:
                bound, ring, _ = _run(machine, size, "ring")
                _, cycles, shape = _run(machine, size, "dimensions")
                assert shape is not None
                yield [f"`{spec}`", size, bound, ring, bound / ring, cycles, bound / cycles,
                       "·".join(map(str, shape.factors)), len(shape.slices)]


def _run(machine: SuperNode, size: int, algorithm: str) -> tuple[int, int, Program | None]:
    """Bound and cycles of an AllReduce, and its shape if it has one."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(size // 4, np.float32) for _ in range(machine.cards)]
    arrays = [machine.malloc(size // 4, "f32", card).write(values)
              for card, values in enumerate(inputs)]
    handle = machine.allreduce(arrays, algorithm=algorithm)
    result = handle.wait()
    expected = allreduce_sum(machine.topology, machine.params, inputs, handle)
    for array in arrays:
        if array.read().tobytes() != expected.tobytes():
            raise RuntimeError(f"card {array.card} has a wrong result of {handle.operation.name}")
    machine.free(*arrays)
    return (result.bound_cycles, result.cycles,
            handle.schedule if isinstance(handle.schedule, Program) else None)


def auto_rows() -> Iterator[list[object]]:
    """What ``auto`` takes, beside the fastest algorithm of those the model does not rule out."""
    yield ["machine", "collective", "bytes", "auto", "cycles", "fastest", "cycles", "ratio"]
    for spec in AUTO_MACHINES:
        with emu.open(spec, memory_bytes=32 << 20) as machine:
            for kind in (Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCE_SCATTER,
                         Collective.ALLTOALL):
                for size in AUTO_SIZES:
                    yield [f"`{spec}`", str(kind), size, *_compared(machine, kind, size)]


def _compared(machine: SuperNode, kind: Collective, size: int) -> list[object]:
    """Algorithm and cycles of ``auto``, and of the fastest one."""
    cards = range(machine.cards)
    counts: tuple[int, ...] = (size // 4,)
    if kind is not Collective.ALLREDUCE:
        blocks = [block.count for block in Region(0, size // 4).split(machine.cards)]
        counts = tuple(blocks)
        if kind is Collective.ALLTOALL:
            counts = tuple(blocks[(peer - card) % len(blocks)]
                           for card in cards for peer in cards)
    task = Task(kind, machine.cards, counts, in_place=kind is Collective.ALLREDUCE)
    setting = Setting.of(machine.topology, machine.params, cards, 4)
    modelled = {"auto": 0}
    for name, write in algorithms().items():
        try:
            modelled[name] = predict(write(task, setting), machine.topology, machine.params, cards,
                                     4)
        except AlgorithmError:
            continue
    most = HOPELESS * min(cycles for name, cycles in modelled.items() if name != "auto")
    if kind is Collective.ALLREDUCE:
        modelled["dimensions"] = 0
    measured: dict[str, int] = {}
    chosen = ""
    for name, cycles in modelled.items():
        if cycles <= most:
            ran, found = _start(machine, task, name)
            chosen = ran if name == "auto" else chosen
            measured[ran] = found
    fastest = min(measured, key=lambda name: measured[name])
    return [chosen, measured[chosen], fastest, measured[fastest],
            measured[chosen] / measured[fastest]]


def _start(machine: SuperNode, task: Task, algorithm: str) -> tuple[str, int]:
    """Run a task; return what ran and its cycles."""
    rng = np.random.default_rng(0)
    arrays = {buffer: [machine.malloc(task.size(card, buffer), "f32", card)
                       for card in range(task.members)] for buffer in (Buffer.INPUT, Buffer.OUTPUT)}
    inputs = []
    for card in range(task.members):
        entry = task.input(card)
        inputs.append(rng.standard_normal(entry.count, np.float32))
        if entry.count:
            arrays[entry.buffer][card].view(entry.start, entry.count).write(inputs[-1])
    handle = machine.group().start(task, arrays[Buffer.INPUT], arrays[Buffer.OUTPUT], "sum",
                                   algorithm)
    result = handle.wait()
    wanted = outputs_of(machine.topology, machine.params, range(task.members), task, inputs, handle)
    for card, values in enumerate(wanted):
        region = task.output(card)
        if arrays[Buffer.OUTPUT][card].read()[region.start:region.end].tobytes() != (
                values.tobytes()):
            raise RuntimeError(f"card {card} has a wrong result of {handle.operation.name}")
    machine.free(*arrays[Buffer.INPUT], *arrays[Buffer.OUTPUT])
    return handle.algorithm, result.cycles
