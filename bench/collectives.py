"""AllReduce around one ring and one dimension after the other: ``python -m bench allreduce``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import emu
from drivers.collectives import Program
from drivers.supernode import SuperNode
from emu.oracle import allreduce_sum

__all__ = ["allreduce_rows"]

MACHINES = ("torus:2x2x2", "torus:4x4x4", "mesh:4x4", "fullmesh:8")
SIZES = (4 << 10, 64 << 10, 1 << 20)


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
