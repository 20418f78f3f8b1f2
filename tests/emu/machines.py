"""Machines that the exactness tests run: nodes, parameters, and work that exercises them.

A machine is compared with itself in every way it can be run, so its workload need not check
results, only cause events of every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from drivers.handle import OperationError
from drivers.supernode import SuperNode
from emu.emulator import EngineBackend
from emu.fabric import Fabric
from emu.faults import BitErrors, Faults, Outage
from emu.kinds import NodeKind
from emu.library import Outcome
from emu.ranks import open_fabric
from hdl.params import CardParams, MemoryParams, RouterParams, SwitchParams, preset
from hdl.topology import Link, parse

from . import toys

__all__ = ["FLAT_MACHINES", "LATENCY", "MACHINES", "MEMORY", "MIXED", "Machine", "flat_machine",
           "mixed_fabric", "toy_card", "toy_params", "toy_workload"]

MEMORY = 1 << 20


@dataclass(frozen=True)
class Machine:
    """Something to run, of any number of cards that it can have."""

    #: ``(cards, **options)`` of the engine; returns a machine and its fabric.
    open: Callable[..., tuple[EngineBackend | Fabric, Fabric]]
    #: Smallest latency of a link: the widest window.
    latency: int
    workload: Callable[[EngineBackend | Fabric], None]
    #: Numbers of cards of which flat designs are compared with.
    flat: tuple[int, ...] = ()
    faults: Faults | None = None


def toy_params(*, latency: int = 8, memory_latency: int = 10, quantum: int = 32) -> CardParams:
    """Short latencies: more of what may go wrong fits into a short run."""
    small = preset("small")
    return replace(small, host_quantum=quantum, memory=MemoryParams(latency=memory_latency),
                   router=RouterParams(dim_ports=(2,), link=replace(small.link, latency=latency)))


def toy_card(params: CardParams) -> NodeKind:
    """A card of toy tiles."""
    return NodeKind("card", (("network", toys.ToyNetworkTile), ("compute", toys.ToyComputeTile)),
                    params)


def toy_switch(params: CardParams) -> NodeKind:
    """A switch of one toy tile."""
    return NodeKind("switch", (("switch", toys.ToySwitchTile),),
                    SwitchParams(link=params.link, radix=4))


def cable(a: int, a_port: int, b: int, b_port: int) -> list[Link]:
    """Both links of a cable."""
    return [Link(a, a_port, b, b_port), Link(b, b_port, a, a_port)]


#: Three cards of two kinds in a ring, in which a switch stands between cards 1 and 2.
MIXED = [*cable(0, 0, 1, 1), *cable(1, 0, 3, 0), *cable(3, 1, 2, 1), *cable(2, 0, 0, 1)]
LATENCY = [8, 8, 3, 5, 5, 3, 4, 4]


def mixed_fabric(**options: object) -> Fabric:
    """The fabric of ``MIXED``, started."""
    params = toy_params()
    card, slow = toy_card(params), toy_card(toy_params(memory_latency=17))
    fabric = open_fabric([card, slow, card, toy_switch(params)], MIXED,
                         **{"latency": LATENCY, "quantum": 32, "memory_bytes": MEMORY} | options)
    fabric.set_value(3, "switch", "node", (0xFFFF).to_bytes(2, "little"))
    fabric.start()
    return fabric


def toy_workload(fabric: Fabric, cards: Sequence[int], *, faulty: bool = False) -> None:
    """Sends with and without hops, copies, timers and register reads, overlapping.

    With ``faulty`` links, on which something may not arrive, time alone ends a round.
    """
    rng = np.random.default_rng(1)
    for card in cards:
        fabric.memory_write(card, 0, rng.integers(0, 256, 4096, dtype=np.uint8))
        fabric.host_write(card, toys.BASE, 256)
    for round_ in range(3):
        for card in cards:
            fabric.host_write(card, toys.SEND, toys.send_word(
                index=3 * card, count=5 + card, port=0, hops=round_ % 2))
            fabric.host_write(card, toys.SEND, toys.send_word(index=7, count=9, port=1))
            fabric.host_write(card, toys.COPY, 64 * card)
            fabric.host_write(card, toys.TIMER, fabric.cycle + 150 + 7 * card)
            fabric.host_write(card, toys.FETCH, card)
        if faulty:
            fabric.advance(700)
        else:
            # Two tails, a copy, a timer and a fetch complete per card and round.
            outcome = fabric.run([(card, 5 * (round_ + 1)) for card in cards],
                                 fabric.cycle + 20_000)
            assert outcome is Outcome.MET
        fabric.host_read_many([(card, register) for card in cards for register in (
            toys.RECEIVED, toys.COMPLETIONS, toys.STAMP, toys.SIGNAL)])
    # Each thing once more alone, with rest before and after: an input that is not taken back while
    # its tile sleeps shows when the tile wakes.
    for operation, value in ((toys.COPY, 64), (toys.FETCH, 3),
                             (toys.SEND, toys.send_word(index=2, count=1, port=1))):
        fabric.advance(500)
        fabric.host_write(0, operation, value)
        fabric.advance(500)
        for node in range(len(fabric.kinds)):
            fabric.host_read_many([(node, toys.RECEIVED), (node, toys.COMPLETIONS)])


def card_workload(backend: EngineBackend, deadline: int = 0) -> None:
    """Writes with and without ack, a remote addition, a GEMM on every card and an AllReduce, each
    started before the one before has ended where the drivers allow it."""
    cards = backend.topology.cards
    rng = np.random.default_rng(1)
    machine = SuperNode(backend, queue_entries=16, completion_entries=16, deadline=deadline)
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


def failing_workload(backend: EngineBackend) -> None:
    """The same over a cable that fails on the way and comes back; whether an operation fails of it
    depends on the number of cards."""
    with suppress(OperationError):
        card_workload(backend, deadline=2000)
    backend.advance(3000)
    backend.fabric.host_read_many([(rank, 0x400 + 8 * port)  # the state of the links
                                   for rank in range(backend.topology.cards) for port in (0, 1)])


def ring(params: CardParams, card: Callable[[CardParams], NodeKind]) -> Callable[
        ..., tuple[EngineBackend, Fabric]]:
    """Cards in a ring."""
    def open_ring(cards: int, **options: object) -> tuple[EngineBackend, Fabric]:
        backend = EngineBackend(parse(f"ring:{cards}"), params, card=card, memory_bytes=MEMORY,
                                **options)
        return backend, backend.fabric
    return open_ring


def open_mixed(cards: int, **options: object) -> tuple[Fabric, Fabric]:
    """The mixed fabric, whatever the number of cards."""
    fabric = mixed_fabric(**options)
    return fabric, fabric


def reliable(params: CardParams) -> CardParams:
    """The same with reliable links."""
    return replace(params, router=replace(params.router, link=replace(params.link, reliable=True)))


#: Enough errors that each kind of field is struck, and cables that fail with words under way.
TOY_FAULTS = Faults(errors=BitErrors(rate=2e-4), links={(0, 0): BitErrors(rate=2e-3, burst=8)},
                    outages=[Outage(node=0, port=0, start=40, end=75),
                             Outage(node=1, port=1, start=100, end=101),
                             Outage(node=0, port=1, start=900)])

MACHINES = {
    "toy": Machine(ring(toy_params(), toy_card), 8,
                   lambda backend: toy_workload(backend.fabric, range(backend.topology.cards)),
                   flat=(2, 4)),
    "faulty toy": Machine(
        ring(toy_params(), toy_card), 8,
        lambda backend: toy_workload(backend.fabric, range(backend.topology.cards), faulty=True),
        flat=(2, 4), faults=TOY_FAULTS),
    "mixed": Machine(open_mixed, 3, lambda fabric: toy_workload(fabric, (0, 1, 2))),
    "faulty mixed": Machine(open_mixed, 3,
                            lambda fabric: toy_workload(fabric, (0, 1, 2), faulty=True),
                            faults=TOY_FAULTS),
    "card": Machine(ring(preset("small"), NodeKind.card), preset("small").link.latency,
                    card_workload, flat=(2, 4)),
    # About one word in 100 is struck; the cable fails in the AllReduce.
    "faulty reliable card": Machine(
        ring(reliable(preset("small")), NodeKind.card), preset("small").link.latency,
        failing_workload, flat=(2,), faults=Faults(
            errors=BitErrors(rate=3e-5), outages=[Outage(node=0, port=0, start=1100, end=1600)])),
}

#: Those that one Verilog design can hold, and the rest of plain and reliable links without and with
#: faults; for campaigns.
FLAT_MACHINES = {name: machine for name, machine in MACHINES.items() if machine.flat} | {
    "reliable card": replace(MACHINES["faulty reliable card"], workload=card_workload, faults=None),
    "failing card": replace(MACHINES["card"], workload=failing_workload, faults=Faults()),
}
#: When the AllReduce of so many cards has words on the cable that fails.
BUSY = {4: 1620, 8: 2650}


def flat_machine(name: str, cards: int) -> Machine:
    """One of these, whose cable, if it has one that fails, fails with words of theirs on it."""
    machine = FLAT_MACHINES[name]
    if machine.workload is not failing_workload:
        return machine
    outage = Outage(node=0, port=0, start=BUSY[cards], end=BUSY[cards] + 500)
    return replace(machine, faults=replace(machine.faults, outages=[outage]))
