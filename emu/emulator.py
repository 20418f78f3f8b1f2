"""A running supernode on the engine: the drivers' backend."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from amaranth.hdl import Shape

from drivers.backend import Completions, StallError, WaitTimeout
from hdl.flat import generate_flat
from hdl.layouts import pack
from hdl.params import CardParams
from hdl.ports import DimConfig
from hdl.topology import Topology, check_deadlock_free

from .build import Builder, Progress
from .library import EVENT, CardStatistics, CardStatus, Condition, Outcome, Settings, load_engine
from .memory import CardMemory
from .report import stuck_report

__all__ = ["EngineBackend", "EngineError", "LinkStatistics", "Statistics", "Tiles"]

#: Wall time after which a run returns to Python, where an interrupt is noticed.
_SLICE_S = 0.05
#: Cycles in which cards are busy and nothing moves, after which a wait gives up.
_PATIENCE = 1_000_000
#: Boundaries within which a register read must have returned.
_READ_QUANTA = 1000
_NETWORK, _COMPUTE = 0, 1


class EngineError(RuntimeError):
    """The hardware broke a rule, such as an access beyond its memory; the run is over."""


@dataclass(frozen=True)
class Tiles:
    """What a card is made of: functions from parameters to components."""

    network: Callable[[CardParams], Any]
    compute: Callable[[CardParams], Any]

    @staticmethod
    def card() -> Tiles:
        """The tiles of the accelerator card."""
        from hdl.card import ComputeTile, NetworkTile
        return Tiles(network=NetworkTile, compute=ComputeTile)


@dataclass(frozen=True)
class LinkStatistics:
    """What one directed link carried."""

    source: int
    source_port: int
    target: int
    target_port: int
    flits: int
    #: Cycles with a flit or a total: words that were transported.
    busy_cycles: int


@dataclass(frozen=True)
class Statistics:
    """What a run cost and what its links carried."""

    cycles: int
    #: Cycles times cards.
    card_cycles: int
    #: Those in which a tile of the card was evaluated.
    stepped_card_cycles: int
    network_evaluations: int
    compute_evaluations: int
    #: Wall time spent letting time pass.
    wall_s: float
    links: tuple[LinkStatistics, ...]

    @property
    def card_cycles_per_s(self) -> float:
        return self.card_cycles / self.wall_s if self.wall_s else 0.0

    @property
    def stepped_card_cycles_per_s(self) -> float:
        return self.stepped_card_cycles / self.wall_s if self.wall_s else 0.0


class EngineBackend:
    """Cards of one kind on the C++ engine.

    Parameters
    ----------
    topology : Topology
    params : CardParams
        Of every card.
    memory_bytes : int
        Memory per card, a multiple of 4096.
    window : int, optional
        Cycles that a card is run ahead of the others; at most, and by default, the link latency.
        Results do not depend on it.
    seed, stall_rate :
        Memory ports refuse requests and hold responses in this share of cycles, at random from
        ``seed``.
    event_log : bool
        Record what :meth:`event_log` returns.
    flat : bool
        Run the whole fabric as one Verilog design: slow to build, equal in every event.
    skip_idle : bool
        Leave out tiles that cannot change. Results do not depend on it.
    tiles : Tiles, optional
        Another kind of card.
    progress : callable, optional
        Hears what is being built.

    Raises
    ------
    ValueError
        If a parameter is out of range, or routes over this topology could deadlock.
    BuildError, ToolchainError
        If the engine cannot be built.
    """

    def __init__(self, topology: Topology, params: CardParams, *, memory_bytes: int = 64 << 20,
                 window: int | None = None, seed: int = 0, stall_rate: float = 0.0,
                 event_log: bool = False, flat: bool = False, skip_idle: bool = True,
                 tiles: Tiles | None = None, progress: Progress | None = None) -> None:
        latency = params.link.latency
        window = latency if window is None else window
        if not 1 <= window <= latency:
            raise ValueError(f"window must be from 1 to the link latency {latency}, not {window}")
        if memory_bytes < 4096 or memory_bytes % 4096 or memory_bytes > 1 << 48:
            raise ValueError("memory_bytes must be a multiple of 4096 from 4096 to 2**48, not "
                             f"{memory_bytes}")
        if not 0 <= stall_rate < 1:
            raise ValueError(f"stall_rate must be at least 0 and below 1, not {stall_rate}")
        # Refuses a topology that the routers of this card cannot serve before anything is built.
        dims = [topology.dims(rank, params.router.dims) for rank in range(topology.cards)]
        _refuse_deadlock(topology, params)
        self._topology, self._params, self._memory_bytes = topology, params, memory_bytes
        self._flat = flat
        self._wall = 0.0
        #: Called with the present cycle, some times a second while time passes.
        self.watcher: Callable[[int], None] | None = None
        self._library = _engine(topology, params, flat, tiles or Tiles.card(), progress)
        self._fabric = self._library.sn_create(Settings(
            cards=topology.cards, flit_bytes=params.link.flit_bytes, link_latency=latency,
            window=window, quantum=params.host_quantum, memory_latency=params.memory.latency,
            flat=flat, skip_idle=skip_idle, event_log=event_log, memory_bytes=memory_bytes,
            seed=seed % (1 << 64), stall_rate=stall_rate, patience=_PATIENCE))
        self._memories = [CardMemory(memory_bytes) for _ in range(topology.cards)]
        for memory in self._memories:
            self._check(self._library.sn_add_card(self._fabric, memory.address))
        for rank in range(topology.cards):
            self._configure(rank, dims[rank])
        for link in topology.links:
            self._check(self._library.sn_connect(self._fabric, link.source, link.source_port,
                                                 link.target, link.target_port))
            if not flat:
                self._set(link.target, _NETWORK, f"links[{link.target_port}].up", b"\1")
        self._check(self._library.sn_start(self._fabric))

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
        return self._library.sn_cycle(self._open())

    def register_write(self, rank: int, offset: int, value: int) -> None:
        self._topology.check_rank(rank)
        self._library.sn_host_write(self._open(), rank, offset, value & (1 << 64) - 1)

    def register_read(self, rank: int, offset: int) -> int:
        self._topology.check_rank(rank)
        self._library.sn_host_read(self._open(), rank, offset)
        value = ctypes.c_uint64()
        for _ in range(_READ_QUANTA):
            self.advance(1)
            if self._library.sn_host_result(self._fabric, rank, value):
                return value.value
        raise StallError(f"card {rank}: no result of reading register {offset:#x}")

    def memory_write(self, rank: int, address: int, data: bytes | np.ndarray) -> None:
        raw = np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else (
            np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        self._range(rank, address, raw.size)[:] = raw

    def memory_read(self, rank: int, address: int, size: int) -> np.ndarray:
        return self._range(rank, address, size).copy()

    def wait(self, conditions: Sequence[Completions], timeout: int) -> None:
        if not conditions:
            return
        for condition in conditions:
            self._topology.check_rank(condition.rank)
        started = self.cycle
        outcome = self._run(conditions, started + timeout)
        if outcome is Outcome.MET:
            return
        report = stuck_report([self.status(rank) for rank in range(self._topology.cards)],
                              conditions)
        if outcome is Outcome.DEADLINE:
            raise WaitTimeout(f"{timeout} cycles are over (cycle {self.cycle}):\n  {report}")
        why = ("nothing can happen any more" if outcome is Outcome.DEAD
               else f"nothing has moved for {_PATIENCE} cycles")
        raise StallError(f"{why} (cycle {self.cycle}):\n  {report}")

    def advance(self, cycles: int) -> None:
        self._run((), self.cycle + cycles)

    def close(self) -> None:
        if self._fabric is not None:
            self._library.sn_destroy(self._fabric)
            self._fabric = None

    # What only the engine offers.

    def memory_view(self, rank: int) -> np.ndarray:
        """The memory of a card as a uint8 array, shared with the machine."""
        self._topology.check_rank(rank)
        return self._memories[rank].view

    def status(self, rank: int) -> CardStatus:
        """What a card is doing."""
        self._topology.check_rank(rank)
        status = CardStatus()
        self._library.sn_card_status(self._open(), rank, status)
        return status

    def statistics(self) -> Statistics:
        """What the run has cost so far."""
        fabric, cards = self._open(), self._topology.cards
        each = [CardStatistics() for _ in range(cards)]
        for rank, numbers in enumerate(each):
            self._library.sn_card_statistics(fabric, rank, numbers)
        links = []
        flits, words = ctypes.c_uint64(), ctypes.c_uint64()
        for link in self._topology.links:
            self._library.sn_link_statistics(fabric, link.source, link.source_port, flits, words)
            links.append(LinkStatistics(link.source, link.source_port, link.target,
                                        link.target_port, flits.value, words.value))
        return Statistics(
            cycles=self.cycle, card_cycles=self.cycle * cards,
            stepped_card_cycles=sum(numbers.stepped for numbers in each),
            network_evaluations=sum(numbers.network_evaluations for numbers in each),
            compute_evaluations=sum(numbers.compute_evaluations for numbers in each),
            wall_s=self._wall, links=tuple(links))

    def evaluation_ns(self, count: int = 2000) -> tuple[float, float]:
        """Processor time, in nanoseconds, of evaluating a network and a compute tile once.

        Raises
        ------
        RuntimeError
            If not every card is at rest, or the machine is flat: the tiles could change.
        """
        if self._flat or not all(status.network_idle and status.compute_idle for status in
                                 map(self.status, range(self._topology.cards))):
            raise RuntimeError("evaluations are timed on tiles at rest, and some card is not")
        costs = []
        for tile in (_NETWORK, _COMPUTE):
            start = time.process_time_ns()
            for rank in range(self._topology.cards):
                self._library.sn_exercise(self._fabric, rank, tile, count)
            costs.append((time.process_time_ns() - start) / count / self._topology.cards)
        return costs[0], costs[1]

    def event_log(self) -> np.ndarray:
        """Everything that happened on the boundaries of the cards, as :data:`~emu.library.EVENT`
        records sorted by cycle, node, port and kind; empty unless it was asked for."""
        start = ctypes.c_void_p()
        count = self._library.sn_log(self._open(), start)
        if not count:
            return np.zeros(0, EVENT)
        raw = (ctypes.c_char * (count * EVENT.itemsize)).from_address(start.value or 0)
        return np.frombuffer(raw, EVENT).copy()

    def _configure(self, rank: int, dims: list[dict[str, int]]) -> None:
        bits = Shape.cast(DimConfig).width
        packed = 0
        for place, values in enumerate(dims):
            packed |= int.from_bytes(pack(DimConfig, values), "little") << place * bits
        size = (bits * len(dims) + 7) // 8
        node = self._topology.node_id(rank)
        memory = self._memory_bytes.to_bytes(8, "little")
        self._set(rank, _NETWORK, "config.node", node.to_bytes(2, "little"))
        self._set(rank, _NETWORK, "config.memory_bytes", memory)
        self._set(rank, _NETWORK, "config.dims", packed.to_bytes(size, "little"))
        self._set(rank, _COMPUTE, "memory_bytes", memory)

    def _set(self, rank: int, tile: int, role: str, value: bytes) -> None:
        self._check(self._library.sn_set_value(self._fabric, rank, tile, role.encode(), value,
                                               len(value)))

    def _run(self, conditions: Sequence[Completions], deadline: int) -> Outcome:
        fabric = self._open()
        array = (Condition * len(conditions))(
            *(Condition(each.rank, each.total & 0xFFFF_FFFF) for each in conditions))
        outcome = Outcome.SLICE
        while outcome is Outcome.SLICE:
            start = time.perf_counter()
            outcome = Outcome(self._library.sn_run(fabric, array, len(conditions), deadline,
                                                   _SLICE_S))
            self._wall += time.perf_counter() - start
            if self.watcher is not None:
                self.watcher(self.cycle)
        if outcome is Outcome.FAILED:
            raise EngineError(self._library.sn_error(fabric).decode())
        return outcome

    def _range(self, rank: int, address: int, size: int) -> np.ndarray:
        if address < 0 or size < 0 or address + size > self._memory_bytes:
            raise ValueError(f"card {rank} has no {size} bytes at address {address:#x}: its memory "
                             f"has {self._memory_bytes} bytes")
        return self.memory_view(rank)[address:address + size]

    def _open(self) -> Any:
        if self._fabric is None:
            raise RuntimeError("the machine is closed")
        return self._fabric

    def _check(self, result: int) -> None:
        if result < 0:
            raise EngineError(self._library.sn_error(self._fabric).decode())

    def __del__(self) -> None:
        if getattr(self, "_fabric", None) is not None:
            self.close()


@lru_cache(maxsize=16)
def _refuse_deadlock(topology: Topology, params: CardParams) -> None:
    check_deadlock_free(topology, params.link, rails=params.rails)


def _engine(topology: Topology, params: CardParams, flat: bool, tiles: Tiles,
            progress: Progress | None) -> ctypes.CDLL:
    builder = Builder(progress=progress)
    network = builder.verilog(tiles.network, params, "network")
    compute = builder.verilog(tiles.compute, params, "compute")
    if flat:
        parts = [generate_flat(params=params, cards=topology.cards, links=topology.links,
                               network=network, compute=compute)]
    else:
        parts = [network, compute]
    return load_engine(builder.engine(parts))
