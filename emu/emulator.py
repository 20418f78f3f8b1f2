"""A running supernode on the engine: the drivers' backend."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from drivers.autosave import AutoSave
from drivers.backend import Completions, StallError, WaitTimeout
from drivers.plain import from_plain, to_plain
from drivers.stalls import Channel
from hdl.layouts import LinkStatus, unpack
from hdl.params import CardParams
from hdl.ports import pack_dims
from hdl.topology import DimValues, Topology, check_deadlock_free, parse

from .build import Progress
from .checkpoint import CheckpointError, CheckpointReader
from .fabric import PATIENCE, EngineError
from .faults import Faults
from .flows import channels_of, flow_format
from .kinds import NodeKind
from .library import EventKind, Outcome
from .ranks import open_fabric
from .report import memory_facts, stuck_report
from .statistics import LinkStatistics, Statistics
from .tables import write_switch_tables
from .waves import Waves

__all__ = ["EngineBackend", "EngineError", "machine_kinds"]

#: Array of the state of a node's links, in cards and switches alike.
_LINK_STATUS = 0x400


class EngineBackend:
    """The cards and switches of a topology on the C++ engine.

    Parameters
    ----------
    topology : Topology
    params : CardParams
        Of every card; its routers get the ports that the topology needs.
    memory_bytes : int
        Memory per card, a multiple of 4096.
    window : int, optional
        Cycles that a node is run ahead of the others; at most, and by default, the smallest latency
        of a link. Results do not depend on it.
    seed, stall_rate :
        Memory ports refuse requests and hold responses in this share of cycles, at random from
        ``seed``.
    faults : Faults, optional
        What goes wrong on links, at random from ``seed``.
    event_log : bool or collection of EventKind
        Record what :meth:`event_log` returns: everything, or events of these kinds.
    flat : bool
        Run the whole fabric as one Verilog design: cards only, slow to build, equal in every event.
    skip_idle : bool
        Leave out tiles that cannot change. Results do not depend on it.
    threads : int, optional
        Threads that run the nodes; by default one per processor, fewer where that would not pay.
        Results do not depend on it.
    lanes : int, optional
        Cards that share a lane-parallel model, or 1 for models made by Verilator; by default what
        is faster where most cards are awake, see :class:`~emu.fabric.Fabric`; where few of many
        are, 1 is. Results do not depend on it.
    waves : Waves, optional
        Nodes whose signals are shown, and in which cycles. Results do not depend on it.
    profile : bool
        Measure what time is spent on, for :func:`~emu.profile.profile_of`.
    card : callable
        Kind of the cards, of parameters.
    progress : callable, optional
        Hears what is being built.
    checkpoint : CheckpointReader, optional
        Go on from there; :meth:`restored` knows the other parameters.

    Time starts where the tables of the switches are written: ``cycle`` is 0 without switches.

    Raises
    ------
    ValueError
        If a parameter is out of range, or routes over this topology could deadlock.
    BuildError, ToolchainError
        If the engine cannot be built.
    """

    def __init__(self, topology: Topology, params: CardParams, *, memory_bytes: int = 64 << 20,
                 window: int | None = None, seed: int = 0,
                 stall_rate: float | Mapping[int, float] = 0.0,
                 faults: Faults | None = None, event_log: bool | Collection[EventKind] = False,
                 flat: bool = False, skip_idle: bool = True, threads: int | None = None,
                 lanes: int | Mapping[str, int] | None = None,
                 waves: Waves | None = None, profile: bool = False,
                 card: Callable[[CardParams], NodeKind] = NodeKind.card,
                 progress: Progress | None = None,
                 checkpoint: CheckpointReader | None = None) -> None:
        if memory_bytes < 4096 or memory_bytes % 4096 or memory_bytes > 1 << 48:
            raise ValueError("memory_bytes must be a multiple of 4096 from 4096 to 2**48, not "
                             f"{memory_bytes}")
        kinds = machine_kinds(topology, params, card)
        params = topology.card(params)
        self._topology, self._params, self._memory_bytes = topology, params, memory_bytes
        self._flat = flat
        latency = [cycles or params.link.latency for cycles in topology.tier_latency]
        self.fabric = open_fabric(
            kinds, topology.links, latency=[latency[link.tier] for link in topology.links],
            quantum=params.host_quantum, window=window, seed=seed, event_log=event_log,
            skip_idle=skip_idle, memory_bytes=memory_bytes, stall_rate=stall_rate, faults=faults,
            flat=flat, threads=threads, lanes=lanes, waves=waves, profile=profile,
            progress=progress)
        self.fabric.watch(flow_format(params.link))
        #: See :class:`~drivers.autosave.SavingBackend`.
        self.interruption: AutoSave | None = None
        #: What came out of the checkpoint for the host.
        self.host: dict[str, Any] = {}
        if checkpoint is not None:
            self.host = self.fabric.restore(checkpoint)
            return
        for rank in range(topology.cards):
            self._configure(rank, topology.dims(rank, params.router.dims))
        for node in range(topology.cards, topology.nodes):
            self.fabric.set_value(node, "switch", "node",
                                  topology.node_id(node).to_bytes(2, "little"))
        self.fabric.start()
        write_switch_tables(self.fabric, topology)

    @classmethod
    def restored(cls, checkpoint: CheckpointReader, **options: Any) -> EngineBackend:
        """The machine that was saved. ``options`` are those that do not belong to the machine:
        ``window``, ``threads``, ``profile``, ``progress``, and ``card`` where it was not the usual
        one.

        Raises
        ------
        CheckpointError
            If the file is of another machine than this version makes of the same parameters.
        """
        built = checkpoint.manifest.get("backend")
        if built is None:
            raise CheckpointError(f"checkpoint {checkpoint.path} is of a fabric without drivers")
        shape = dict(checkpoint.manifest["shape"])
        shape["event_log"] = [EventKind(each) for each in shape["event_log"]]
        if isinstance(shape["stall_rate"], list):
            shape["stall_rate"] = from_plain(dict[int, float], shape["stall_rate"])
        # Lanes are models of their own, and are shared out to threads.
        lanes = {kind["name"]: kind["lanes"] for kind in shape["kinds"]}
        if max(lanes.values()) > 1 and options.get("threads") is None:
            options["threads"] = checkpoint.manifest["threads"]
        return cls(parse(built["topology"]), from_plain(CardParams, built["params"]),
                   faults=from_plain(Faults, shape["faults"]), lanes=lanes, checkpoint=checkpoint,
                   **{name: shape[name] for name in ("memory_bytes", "seed", "stall_rate",
                                                     "event_log", "skip_idle", "flat")}, **options)

    # The drivers' protocol.

    @property
    def params(self) -> CardParams:
        return self._params

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def memory_bytes(self) -> int:
        return self._memory_bytes

    @property
    def cycle(self) -> int:
        return self.fabric.cycle

    def register_write(self, rank: int, offset: int, value: int) -> None:
        self.fabric.host_write(self._topology.check_rank(rank), offset, value)

    def register_read(self, rank: int, offset: int) -> int:
        return self.fabric.host_read(self._topology.check_rank(rank), offset)

    def read_registers(self, requests: Sequence[tuple[int, int]]) -> list[int]:
        return self.fabric.host_read_many(requests)

    def memory_write(self, rank: int, address: int, data: bytes | np.ndarray) -> None:
        raw = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else (
            np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        self._check_range(rank, address, raw.size)
        self.fabric.memory_write(rank, address, raw)

    def memory_read(self, rank: int, address: int, size: int) -> np.ndarray:
        self._check_range(rank, address, size)
        return self.fabric.memory_read(rank, address, size)

    def wait(self, conditions: Sequence[Completions], timeout: int) -> None:
        if not conditions:
            return
        awaited = [(self._topology.check_rank(each.rank), each.total) for each in conditions]
        outcome = self._run(awaited, self.cycle + timeout)
        if outcome is Outcome.MET:
            return
        report = stuck_report(self.fabric, awaited)
        if outcome is Outcome.DEADLINE:
            raise WaitTimeout(f"{timeout} cycles are over (cycle {self.cycle}):\n  {report}")
        why = ("nothing can happen any more" if outcome is Outcome.DEAD
               else f"nothing has moved for {PATIENCE} cycles")
        raise StallError(f"{why} (cycle {self.cycle}):\n  {report}")

    def advance(self, cycles: int) -> None:
        self._run((), self.cycle + cycles)

    def _run(self, awaited: Sequence[tuple[int, int]], deadline: int) -> Outcome:
        while True:
            interruption = self.interruption
            stop = min(deadline, interruption.due) if interruption else deadline
            outcome = self.fabric.run(awaited, stop)
            if interruption is None or outcome is not Outcome.DEADLINE or self.cycle >= deadline:
                return outcome
            interruption.act(self.cycle)

    def save(self, path: str | os.PathLike[str], *, host: Mapping[str, Any]) -> None:
        """Write everything to a file, with plain data for the host; see
        :meth:`~emu.fabric.Fabric.save`."""
        self.fabric.save(path, host=host, about={"backend": {
            "topology": self._topology.spec, "params": to_plain(self._params)}})

    def close(self) -> None:
        self.fabric.close()

    # What only the engine offers.

    def memory_view(self, rank: int) -> np.ndarray:
        """The memory of a card as a uint8 array, shared with the machine."""
        return self.fabric.memory_view(self._topology.check_rank(rank))

    def statistics(self) -> Statistics:
        """What the cards' run has cost so far."""
        cards, spent = self._topology.cards, self.fabric.statistics()
        network, compute = (int(counts[:cards].sum()) for counts in spent.evaluations[:2])
        return Statistics(
            cycles=spent.cycles, card_cycles=spent.cycles * cards,
            stepped_card_cycles=int(spent.stepped[:cards].sum()), network_evaluations=network,
            compute_evaluations=compute, wall_s=spent.wall_s)

    def link_statistics(self) -> tuple[LinkStatistics, ...]:
        """What the links have carried so far, in the topology's order."""
        return self.fabric.link_statistics()

    def replays(self) -> int:
        """Flits that links have sent again so far; reading it takes time on the machine."""
        if not self._params.link.reliable:
            return 0
        words = self.fabric.host_read_many([
            (link.source, _LINK_STATUS + 8 * link.source_port) for link in self._topology.links])
        return sum(unpack(LinkStatus, word)["replays"] for word in words)

    def evaluation_ns(self, count: int = 2000) -> tuple[float, float]:
        """Processor time, in nanoseconds, of evaluating a network and a compute tile once.

        Raises
        ------
        RuntimeError
            If not every card is at rest, or the machine has more than cards or is flat: the tiles
            could change.
        """
        cards = self._topology.cards
        if self._flat or self._topology.switches or not all(
                tile.idle for rank in range(cards) for _, tile in self.fabric.tile_statuses(rank)):
            raise RuntimeError("evaluations are timed on tiles at rest, and some card is not")
        costs = []
        for tile in (0, 1):
            start = time.process_time_ns()
            self.fabric.exercise(tile, count)
            costs.append((time.process_time_ns() - start) / count / cards)
        return costs[0], costs[1]

    def channels(self) -> list[Channel]:
        """Virtual channels on which flits stand: for :mod:`drivers.stalls`."""
        return channels_of(self.fabric, self._params.link)

    def memory_waits(self, rank: int) -> list[str]:
        """What a card's memory has not done yet."""
        return memory_facts(self.fabric.status(rank))

    def event_log(self) -> np.ndarray:
        """Everything that happened on the boundaries of the nodes, as :data:`~emu.library.EVENT`
        records sorted by cycle, node, port and kind; empty unless it was asked for."""
        return self.fabric.event_log()

    def _configure(self, rank: int, dims: list[DimValues]) -> None:
        packed = pack_dims(dims)
        size = (packed.bit_length() + 7) // 8
        node = self._topology.node_id(rank)
        memory = self._memory_bytes.to_bytes(8, "little")
        self.fabric.set_value(rank, "network", "config.node", node.to_bytes(2, "little"))
        self.fabric.set_value(rank, "network", "config.memory_bytes", memory)
        self.fabric.set_value(rank, "network", "config.dims", packed.to_bytes(size, "little"))
        self.fabric.set_value(rank, "compute", "memory_bytes", memory)

    def _check_range(self, rank: int, address: int, size: int) -> None:
        self._topology.check_rank(rank)
        if address < 0 or size < 0 or address + size > self._memory_bytes:
            raise ValueError(f"card {rank} has no {size} bytes at address {address:#x}: its memory "
                             f"has {self._memory_bytes} bytes")


@lru_cache(maxsize=16)
def machine_kinds(topology: Topology, params: CardParams,
                  card: Callable[[CardParams], NodeKind] = NodeKind.card) -> Sequence[NodeKind]:
    """Kinds of the nodes of a machine: its cards, with the ports that ``topology`` needs, then its
    switches.

    Raises
    ------
    ValueError
        If the cards' routers cannot serve the topology, or routes over it could deadlock.
    """
    params = topology.card(params)
    for rank in range(topology.cards):
        topology.dims(rank, params.router.dims)
    check_deadlock_free(topology, params.link, rails=params.rails, adaptive=params.router.adaptive)
    kinds = [card(params)] * topology.cards
    if topology.switches:
        kinds += [NodeKind.switch(topology.switch(params))] * topology.switches
    return tuple(kinds)
