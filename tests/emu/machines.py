"""Machines that the exactness tests run: tiles, parameters, and work that exercises them.

A machine is compared with itself in every way it can be run, so its workload need not check
results, only cause events of every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from drivers.backend import Completions
from emu.emulator import EngineBackend, Tiles
from hdl.params import CardParams, MemoryParams, RouterParams, preset

from . import toys

__all__ = ["MACHINES", "Machine", "TOY", "toy_params"]


@dataclass(frozen=True)
class Machine:
    """Tiles, parameters and a workload for any number of cards."""

    tiles: Tiles
    params: CardParams
    workload: Callable[[EngineBackend], None]


def toy_params(*, latency: int = 8, memory_latency: int = 10, quantum: int = 32) -> CardParams:
    """Short latencies: more of what may go wrong fits into a short run."""
    small = preset("small")
    return replace(small, host_quantum=quantum, memory=MemoryParams(latency=memory_latency),
                   router=RouterParams(dims=1, link=replace(small.link, latency=latency)))


def toy_workload(backend: EngineBackend) -> None:
    """Sends with and without hops, copies, timers and register reads, overlapping."""
    cards = backend.topology.cards
    rng = np.random.default_rng(1)
    for rank in range(cards):
        backend.memory_write(rank, 0, rng.integers(0, 256, 4096, dtype=np.uint8))
        backend.register_write(rank, toys.BASE, 256)
    for round_ in range(3):
        for rank in range(cards):
            backend.register_write(rank, toys.SEND, toys.send_word(
                index=3 * rank, count=5 + rank, port=0, hops=round_ % 2))
            backend.register_write(rank, toys.SEND, toys.send_word(index=7, count=9, port=1))
            backend.register_write(rank, toys.COPY, 64 * rank)
            backend.register_write(rank, toys.TIMER, backend.cycle + 150 + 7 * rank)
            backend.register_write(rank, toys.FETCH, rank)
        # Two tails, a copy, a timer and a fetch complete per card and round.
        backend.wait([Completions(rank, 5 * (round_ + 1)) for rank in range(cards)], 20_000)
        for rank in range(cards):
            backend.register_read(rank, toys.RECEIVED)
            backend.register_read(rank, toys.STAMP)
    backend.advance(1000)


TOY = Tiles(network=toys.ToyNetworkTile, compute=toys.ToyComputeTile)

MACHINES = {
    "toy": Machine(TOY, toy_params(), toy_workload),
}
