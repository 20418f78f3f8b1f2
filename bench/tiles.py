"""What an evaluation of each tile costs in use: ``python -m bench.tiles [NAME …]``.

Processor time of one thread, as JSON, with what ``SUPERNODE_CXX`` and ``SUPERNODE_PGO`` say. A
figure is the least of a few runs: others on the machine can only add to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

import emu
from drivers.supernode import SuperNode
from emu.emulator import EngineBackend
from emu.traffic import Load, TrafficNetwork, parse_pattern, traffic_params
from hdl.params import preset
from hdl.topology import parse

__all__ = ["TILES", "measure"]

#: Short runs, and many: of a machine that others use too, the least disturbed one is wanted.
REPEATS = 25


def network() -> Iterator[float]:
    """Card-cycles under AllReduce, preset ``default``."""
    count = 4 << 10
    with emu.open("torus:2x2x2") as machine:
        arrays = [machine.malloc(count, "f32", card) for card in range(machine.cards)]
        for array in arrays:
            array.write(np.ones(count, np.float32))
        for _ in range(REPEATS):
            before = _stepped(machine)
            start = time.process_time_ns()
            machine.allreduce(arrays).wait()
            yield (time.process_time_ns() - start) / (_stepped(machine) - before)


def compute() -> Iterator[float]:
    """Card-cycles under a GEMM of 48³, preset ``default``."""
    size = 48
    with emu.open("ring:1") as machine:
        a, b = (machine.malloc((size, size), "e4m3", 0) for _ in range(2))
        c = machine.malloc((size, size), "f32", 0)
        for array in (a, b):
            array.write(np.ones((size, size), np.float32).astype(array.dtype.numpy))
        for _ in range(REPEATS):
            before = _stepped(machine)
            start = time.process_time_ns()
            machine.gemm(a, b, c).wait()
            yield (time.process_time_ns() - start) / (_stepped(machine) - before)


def traffic() -> Iterator[float]:
    """Node-cycles of mesh:8x8 under uniform load 0.2, preset ``booksim``."""
    shape, card, cycles = parse("mesh:8x8"), preset("booksim"), 300
    fabric = TrafficNetwork(shape, traffic_params(shape, card), card)
    fabric.load(Load(parse_pattern("uniform", shape), 0.2), measure_from=1000)
    fabric.advance_to(3000)
    for number in range(REPEATS):
        start = time.process_time_ns()
        fabric.advance_to(3000 + cycles * (number + 1))
        yield (time.process_time_ns() - start) / cycles / shape.cards
    fabric.close()


def switch() -> Iterator[float]:
    """Cycles of a crossbar of 48 ports at rest, evaluated all the same."""
    shape, card = parse("tiers:crossbar48"), preset("booksim")
    fabric = TrafficNetwork(shape, traffic_params(shape, card), card).fabric
    fabric.advance(64)
    for _ in range(REPEATS):
        start = time.process_time_ns()
        fabric.exercise(0, 300, nodes=range(shape.cards, shape.nodes))
        yield (time.process_time_ns() - start) / 300
    fabric.close()


def _stepped(machine: SuperNode) -> int:
    backend = machine.backend
    assert isinstance(backend, EngineBackend)
    return backend.statistics().stepped_card_cycles


TILES: dict[str, Callable[[], Iterator[float]]] = {
    "network": network, "compute": compute, "traffic": traffic, "switch": switch}


def measure(names: Sequence[str], **environment: str) -> dict[str, float]:
    """Nanoseconds per evaluation of each tile, in a process of its own with ``environment``; the
    models are built before."""
    run = subprocess.run([sys.executable, "-m", "bench.tiles", *names], stdout=subprocess.PIPE,
                         text=True, check=True, env=os.environ | environment)
    return json.loads(run.stdout)


def main() -> None:
    """Measure the tiles named on the command line, or all."""
    names = sys.argv[1:] or list(TILES)
    print(json.dumps({name: min(TILES[name]()) for name in names}))


if __name__ == "__main__":
    main()
