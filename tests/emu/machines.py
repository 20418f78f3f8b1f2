"""Machines that the exactness tests run: tiles, parameters, and work that exercises them.

A machine is compared with itself in every way it can be run, so its workload need not check
results, only cause events of every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from drivers.backend import Completions
from drivers.supernode import SuperNode
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
            backend.register_read(rank, toys.COMPLETIONS)
            backend.register_read(rank, toys.STAMP)
    # Each thing once more alone, with rest before and after: an input that is not taken back while
    # its tile sleeps shows when the tile wakes.
    for operation, value in ((toys.COPY, 64), (toys.FETCH, 3),
                             (toys.SEND, toys.send_word(index=2, count=1, port=1))):
        backend.advance(500)
        backend.register_write(0, operation, value)
        backend.advance(500)
        for rank in range(cards):
            backend.register_read(rank, toys.RECEIVED)
            backend.register_read(rank, toys.COMPLETIONS)


def card_workload(backend: EngineBackend) -> None:
    """Writes with and without ack, a remote addition, a GEMM on every card and an AllReduce, each
    started before the one before has ended where the drivers allow it."""
    cards = backend.topology.cards
    rng = np.random.default_rng(1)
    machine = SuperNode(backend, queue_entries=16, completion_entries=16)
    arrays = [machine.malloc(200, "f32", rank) for rank in range(cards)]
    landing = [machine.malloc(200, "f32", rank) for rank in range(cards)]
    for array in arrays + landing:
        array.write(rng.standard_normal(200).astype(np.float32))
    for rank in range(cards):
        machine.write(arrays[rank], landing[(rank + 1) % cards], ack=bool(rank % 2))
    machine.reduce_into(arrays[0], landing[cards - 1])
    products = []
    for rank in range(cards):
        a = machine.malloc((5, 20), "e4m3", rank)
        b = machine.malloc((20, 6), "e5m2", rank)
        for operand in (a, b):
            raw = rng.integers(0, 120, operand.shape, dtype=np.uint8)
            backend.memory_write(rank, operand.offset, raw)
        products.append((a, b, machine.malloc((5, 6), "f32", rank)))
    gemm = machine.gemms(products)
    total = machine.allreduce(landing)
    gemm.wait()
    total.wait()
    backend.advance(1000)


TOY = Tiles(network=toys.ToyNetworkTile, compute=toys.ToyComputeTile)

MACHINES = {
    "toy": Machine(TOY, toy_params(), toy_workload),
    "card": Machine(Tiles.card(), preset("small"), card_workload),
}
