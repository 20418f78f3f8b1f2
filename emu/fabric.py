"""Nodes and links on the C++ engine: any mix of kinds, with time, host ports, memory and faults.

What drivers need on top of this is :class:`~emu.emulator.EngineBackend`.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from drivers.plain import to_plain
from hdl.topology import Link

from .build import Progress
from .cache import content_key
from .checkpoint import CheckpointReader, restore_fabric, save_fabric
from .faults import Faults
from .kinds import Built, NodeKind, make
from .library import (
    EVENT,
    FLOW_PACKET,
    LINK_COUNTS,
    NEVER,
    Condition,
    EventKind,
    Field,
    FlowFormat,
    LinkSpec,
    NodeSpec,
    NodeStatus,
    Outcome,
    Settings,
    TileStatus,
    load_engine,
)
from .memory import CardMemory
from .shards import Shard, default_lanes, default_threads, share_out
from .statistics import FabricStatistics, LinkStatistics
from .waves import Waves

__all__ = ["EngineError", "Fabric", "FabricStatistics", "LinkStatistics", "NodeKind", "PATIENCE"]

#: Cycles in which nodes are busy and nothing moves, after which a wait gives up.
PATIENCE = 1_000_000
#: Wall time after which a run returns to Python, where an interrupt is noticed.
_SLICE_S = 0.05
#: Boundaries within which a register read must have returned.
_READ_QUANTA = 1000


class EngineError(RuntimeError):
    """The hardware broke a rule, such as an access beyond its memory; the run is over."""


def _stall_rates(rate: float | Mapping[int, float], nodes: int) -> list[float]:
    """The rate of each node."""
    if not isinstance(rate, Mapping):
        if not 0 <= rate < 1:
            raise ValueError(f"stall_rate must be at least 0 and below 1, not {rate}")
        return [rate] * nodes
    for node, each in rate.items():
        if not 0 <= node < nodes or not 0 <= each <= 1:
            raise ValueError(f"stall_rate of node {node} cannot be {each}: accepted are nodes 0 to "
                             f"{nodes - 1}, and rates from 0 to 1")
    return [rate.get(node, 0.0) for node in range(nodes)]


class Fabric:
    """Nodes and links, running.

    Parameters
    ----------
    kinds : sequence of NodeKind
        One per node.
    links : sequence of Link
    latency : sequence of int
        Of each link, in cycles.
    quantum : int
        Cycles between the instants at which the host sees and acts.
    window : int, optional
        Cycles that a node is run ahead of the others; at most, and by default, the smallest latency
        of a link, or a quantum without links. Results do not depend on it.
    seed : int
        Of memory stalls and faults.
    event_log : bool or collection of EventKind
        Record what :meth:`event_log` returns: everything, or events of these kinds.
    skip_idle : bool
        Leave out tiles that cannot change. Results do not depend on it.
    memory_bytes : int
        Of each node whose tiles have memory ports, a multiple of 4096.
    stall_rate : float or mapping
        Memory ports refuse requests and hold responses in this share of cycles, of all nodes or of
        those named; of these even in all cycles.
    faults : Faults, optional
    flat : bool
        Run all nodes, which must be equal cards, as one Verilog design: slow to build, equal in
        every event.
    threads : int, optional
        Threads that run the nodes; by default one per processor, fewer where that would not pay,
        see :func:`~emu.shards.default_threads`. Results do not depend on it.
    lanes : int or mapping, optional
        Nodes that share a lane-parallel model of their first tile, 64 to 512, or 1 for models made
        by Verilator, one per node; of all kinds or by name of the kind; by default what is faster,
        see :func:`~emu.shards.default_lanes`. Results do not depend on it.
    waves : Waves, optional
        Nodes whose signals are shown, and in which cycles; these are never in lanes. Results do not
        depend on it.
    profile : bool
        Measure what time is spent on, for :func:`~emu.profile.profile_of`.
    shard : Shard, optional
        Nodes that this process has; the others are in other processes, see :mod:`emu.ranks`.
    built : optional
        What another process has built of the same nodes and links.
    progress : callable, optional
        Hears what is being built.

    Between construction and :meth:`start`, inputs get their values by :meth:`set_value`.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    BuildError, ToolchainError
        If the engine cannot be built.
    """

    def __init__(self, kinds: Sequence[NodeKind], links: Sequence[Link], *,
                 latency: Sequence[int], quantum: int = 64, window: int | None = None,
                 seed: int = 0, event_log: bool | Collection[EventKind] = False,
                 skip_idle: bool = True, memory_bytes: int = 0,
                 stall_rate: float | Mapping[int, float] = 0.0, faults: Faults | None = None,
                 flat: bool = False, threads: int | None = None,
                 lanes: int | Mapping[str, int] | None = None, waves: Waves | None = None,
                 profile: bool = False, shard: Shard | None = None, built: Built | None = None,
                 progress: Progress | None = None) -> None:
        self._fabric: int | None = None
        self._waves, self._profile = waves, profile
        if flat and profile:
            raise ValueError("a flat design has no profile: accepted are tiles apart")
        shown = waves.nodes if waves else ()
        self.kinds = tuple(replace(kind, waves=True) if node in shown else kind
                           for node, kind in enumerate(kinds))
        self.links, self.latency = tuple(links), tuple(latency)
        smallest = min(latency, default=quantum)
        window = smallest if window is None else window
        if not 1 <= window <= smallest:
            raise ValueError(f"window must be from 1 to the link latency {smallest}, not {window}")
        stall_rates = _stall_rates(stall_rate, len(self.kinds))
        if memory_bytes < 0 or memory_bytes % 4096 or memory_bytes > 1 << 48:
            raise ValueError("memory_bytes must be a multiple of 4096 up to 2**48, not "
                             f"{memory_bytes}")
        self._window = window
        self._shard = shard = shard or Shard(0, 1, (0,) * len(self.kinds))
        #: Nodes of this process.
        self.local = shard.nodes
        if threads is None:
            threads = default_threads(len(self.local), window, shard.neighbours)
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        #: Threads that run the nodes.
        self.threads = 1 if flat else max(1, min(threads, len(self.local)))
        faults = faults or Faults()
        events = EventKind if event_log is True else event_log or ()
        self._settings = {
            "quantum": quantum, "seed": seed, "event_log": sorted(map(int, events)),
            "skip_idle": skip_idle, "memory_bytes": memory_bytes,
            "stall_rate": to_plain(stall_rate), "faults": to_plain(faults), "flat": flat}
        self._faults = faults
        outages = faults.outages_of(self.links)
        self._flow: FlowFormat | None = None
        self._wall = 0.0
        #: When time passed first since this was ``None``, on the clock of ``time.perf_counter``.
        self.first_run: float | None = None
        #: Called with the present cycle, some times a second while time passes.
        self.watcher: Callable[[int], None] | None = None
        #: Gets, likewise, the events of the time that has passed, so that they do not pile up.
        self.listener: Callable[[np.ndarray], None] | None = None
        #: Nodes of each kind that share a model.
        self.lanes = {kind: 1 if flat or kind.waves else
                       default_lanes(count // shard.ranks, self.threads) if lanes is None else
                       lanes.get(kind.name, 1) if isinstance(lanes, Mapping) else lanes
                       for kind, count in Counter(self.kinds).items()}
        if built is None or not Path(built[0]).exists():
            built = make(self.kinds, self.links, latency, flat=flat, lanes=self.lanes,
                         progress=progress)
        self._built = built
        engine, made = built
        self._made = [made[kind] for kind in self.kinds]
        self._library = load_engine(Path(engine))
        self._fabric = self._library.sn_create(Settings(
            nodes=len(self.kinds), window=window, quantum=quantum, flat=flat, skip_idle=skip_idle,
            event_log=sum(1 << kind for kind in events), threads=self.threads,
            ranks=shard.ranks, rank=shard.rank, seed=seed % (1 << 64), patience=PATIENCE))
        self._memories: list[CardMemory | None] = []
        self._names: list[str] = []
        self._alike: Counter[str] = Counter()
        threads_of = dict(zip(self.local, share_out(
            [self.kinds[node].name for node in self.local], self.threads), strict=True))
        for node, rate in enumerate(stall_rates):
            self._add_node(node, memory_bytes, rate, threads_of.get(node, 0))
        for link, cycles in zip(self.links, latency, strict=True):
            self._connect(link, cycles)
            self._break(link, faults, outages.get(link, []))

    def set_value(self, node: int, tile: str, role: str, value: bytes) -> None:
        """Set an input of a node's tile, such as ``config.node``, to a little-endian value."""
        index = [name for name, _ in self.kinds[node].tiles].index(tile)
        self._check(self._library.sn_set_value(self._open(), node, index, role.encode(), value,
                                               len(value)))

    def start(self) -> None:
        """Reset every tile; cycle 0 is next."""
        self._check(self._library.sn_start(self._open()))
        if self._profile:
            self._library.sn_measure(self._fabric)
        if self._waves is not None:
            self._waves.prepare()
            for node, tile, path in self._wave_files():
                self._check(self._library.sn_show(
                    self._fabric, node, tile, bytes(self._waves.partial(path)), self._waves.first,
                    self._waves.last + 1))

    def _wave_files(self) -> list[tuple[int, int, Path]]:
        """(node, tile, file) of every tile with waves."""
        waves = self._waves
        return [] if waves is None else [
            (node, tile, waves.path(self.name(node), name)) for node in waves.nodes
            for tile, (name, _) in enumerate(self.kinds[node].tiles)]

    def finish_waves(self) -> list[Path]:
        """End the waves in the present; return the files that came of them.

        Raises
        ------
        OSError
            If a file could not be written whole.
        """
        if self._waves is None:
            return []
        files = self._wave_files()
        for node, tile, _ in files:
            self._check(self._library.sn_finish_waves(self._open(), node, tile))
        return self._waves.keep([path for _, _, path in files])

    # Checkpoints.

    def save(self, path: str | os.PathLike[str], *, about: Mapping[str, Any] | None = None,
             host: Mapping[str, Any] | None = None) -> None:
        """Write the state of all nodes and links, and time, to a file that
        :meth:`restore` takes. ``about`` goes into the file's manifest and ``host`` comes back from
        :meth:`restore`; both are plain data.

        Raises
        ------
        CheckpointError
            If the file cannot be written. What was there is unchanged, and the run can go on.
        ValueError
            If nodes show waves: their models have other states.
        """
        if self._waves is not None:
            raise ValueError("a machine that shows waves cannot be saved")
        save_fabric(self, Path(path), about or {}, host or {})

    def restore(self, source: str | os.PathLike[str] | CheckpointReader) -> dict[str, Any]:
        """In place of :meth:`start`: go on where a fabric was saved that was built from the same
        kinds, links and options, whatever its window; return what was kept for the host.

        Raises
        ------
        CheckpointError
            If the file is damaged, or of another fabric: this one can only be closed then.
        """
        if isinstance(source, CheckpointReader):
            self._wall = source.manifest["wall_s"]
            return restore_fabric(self, source)
        with CheckpointReader(source) as file:
            return self.restore(file)

    def shape(self) -> dict[str, Any]:
        """What this fabric was built from, as plain data: a state fits where this is equal."""
        first: dict[NodeKind, int] = {}
        for node, kind in enumerate(self.kinds):
            first.setdefault(kind, node)
        number = {kind: index for index, kind in enumerate(first)}
        return {
            "kinds": [{"name": kind.name, "lanes": self.lanes[kind],
                       "memory_latency": self._memory_latency(kind), "tiles": [
                {"name": name, "model": model,
                 "layout": self._library.sn_layout(self._open(), node, tile).decode()}
                for tile, ((name, _), model) in enumerate(
                    zip(kind.tiles, self._made[node].models, strict=True))]}
                for kind, node in first.items()],
            "nodes": [number[kind] for kind in self.kinds],
            "links": content_key(*(f"{link.source} {link.source_port} {link.target} "
                                   f"{link.target_port} {latency}" for link, latency
                                   in zip(self.links, self.latency, strict=True))),
            "watched": self._flow is not None, **self._settings}

    @property
    def parts(self) -> int:
        """How many parts the engine's state has."""
        return self._library.sn_parts(self._open())

    def save_part(self, part: int) -> memoryview:
        """A part of the engine's state; valid until the next one is asked for."""
        start, size = ctypes.c_void_p(), ctypes.c_uint64()
        self._check(self._library.sn_save(self._open(), part, start, size))
        return memoryview((ctypes.c_char * size.value).from_address(start.value or 0))

    def restore_part(self, part: int, data: bytes) -> None:
        """Take a part back."""
        self._check(self._library.sn_restore(self._open(), part, data, len(data)))

    def resume(self) -> None:
        """In place of :meth:`start`, when all parts and memories are back."""
        self._check(self._library.sn_resume(self._open()))

    def has_memory(self, node: int) -> bool:
        """Whether a node has memory."""
        return self._memories[node] is not None

    # Time.

    @property
    def cycle(self) -> int:
        """The host's present: a multiple of the quantum."""
        return self._library.sn_cycle(self._open())

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.kinds)

    @property
    def active(self) -> int:
        """Nodes of this process that have something to do before the next instant at which the
        host acts; words that threads have sent each other in the last window do not count yet."""
        return self._library.sn_active(self._open())

    def advance(self, cycles: int) -> None:
        """Let at least ``cycles`` cycles pass, up to the next instant at which the host acts."""
        self.run((), self.cycle + cycles)

    def run(self, conditions: Sequence[tuple[int, int]], deadline: int) -> Outcome:
        """Let time pass until, for every condition (node, total), the node's total of completions
        has come to ``total``, modulo 2^32; at the most until cycle ``deadline``, which alone ends a
        run without conditions.

        Raises
        ------
        EngineError
            If the hardware broke a rule.
        """
        array = (Condition * len(conditions))(
            *(Condition(node, total & 0xFFFF_FFFF) for node, total in conditions))
        outcome = Outcome.SLICE
        while outcome is Outcome.SLICE:
            start = time.perf_counter()
            self.first_run = self.first_run or start
            outcome = self._run_slice(array, deadline, _SLICE_S)
            self._wall += time.perf_counter() - start
            if self.watcher is not None:
                self.watcher(self.cycle)
            if self.listener is not None:
                self.listener(self._take_events())
        if outcome is Outcome.FAILED:
            raise EngineError(self._error())
        return outcome

    def _run_slice(self, conditions: ctypes.Array[Condition], deadline: int,
                   seconds: float) -> Outcome:
        return Outcome(self._library.sn_run(self._open(), conditions, len(conditions), deadline,
                                            seconds))

    def _take_events(self) -> np.ndarray:
        return self._events(self._library.sn_log_take)

    def _error(self) -> str:
        return self._library.sn_error(self._open()).decode()

    # Host ports and memory.

    def host_write(self, node: int, offset: int, value: int) -> None:
        """Write a 64-bit register. Posted: writes made at one instant reach each node in order, one
        per cycle from that instant on, on all nodes at once."""
        self._check(self._library.sn_host_operation(self._open(), node, True, offset,
                                                    value & (1 << 64) - 1))

    def host_read(self, node: int, offset: int) -> int:
        """Read a 64-bit register after all earlier writes; time passes."""
        return self.host_read_many([(node, offset)])[0]

    def host_read_many(self, requests: Sequence[tuple[int, int]]) -> list[int]:
        """Read registers (node, offset), on all nodes at once and one per cycle on each."""
        for node, offset in requests:
            self._post_read(node, offset)
        asked = Counter(node for node, _ in requests)
        values: dict[int, list[int]] = {node: [] for node in asked}
        for _ in range(_READ_QUANTA + len(requests)):
            waiting = [node for node in values if len(values[node]) < asked[node]]
            if not waiting:
                break
            self.advance(1)
            for node, found in zip(waiting, self._read_results(waiting), strict=True):
                values[node] += found
        else:
            raise EngineError(f"{self.name(waiting[0])}: no result of reading a register")
        results = {node: iter(found) for node, found in values.items()}
        return [next(results[node]) for node, _ in requests]

    def _post_read(self, node: int, offset: int) -> None:
        self._check(self._library.sn_host_operation(self._open(), node, False, offset, 0))

    def _read_results(self, nodes: Sequence[int]) -> list[list[int]]:
        """What reads of these nodes have given since they were asked last."""
        value, results = ctypes.c_uint64(), list[list[int]]()
        for node in nodes:
            results.append([])
            while self._library.sn_host_result(self._open(), node, value):
                results[-1].append(value.value)
        return results

    def memory_write(self, node: int, address: int, data: np.ndarray) -> None:
        """Write bytes, an array of uint8, to the memory of a node."""
        self.memory_view(node)[address:address + data.size] = data

    def memory_read(self, node: int, address: int, size: int) -> np.ndarray:
        """Return a copy of bytes in the memory of a node."""
        return self.memory_view(node)[address:address + size].copy()

    def memory_view(self, node: int) -> np.ndarray:
        """The memory of a node of this process as a uint8 array, shared with the machine."""
        memory = self._memories[node]
        if memory is None:
            if self._shard.owners[node] != self._shard.rank:
                raise ValueError(f"the memory of {self.name(node)} is in another process: it can "
                                 "be read and written, not shared")
            raise ValueError(f"{self.name(node)} has no memory")
        return memory.view

    # What there is to see.

    def name(self, node: int) -> str:
        """What messages call a node: its kind and its number among those called alike."""
        return self._names[node]

    def status(self, node: int) -> NodeStatus:
        """What a node is doing."""
        status = NodeStatus()
        self._library.sn_node_status(self._open(), node, status)
        return status

    def tile_statuses(self, node: int) -> list[tuple[str, TileStatus]]:
        """What each tile of a node, given with its name, is doing."""
        found = []
        for index, (name, _) in enumerate(self.kinds[node].tiles):
            found.append((name, TileStatus()))
            self._library.sn_tile_status(self._open(), node, index, found[-1][1])
        return found

    def at_rest(self) -> bool:
        """No node has anything to do, and nothing is on a link."""
        return all(not self.status(node).words_arriving
                   and all(tile.idle for _, tile in self.tile_statuses(node))
                   for node in self.local)

    def blocked_streams(self, node: int) -> list[str]:
        """Streams between a node's tiles that have something to give and nobody who takes it."""
        bits = self.status(node).streams_blocked
        names = self._made[node].streams
        return [name for index, name in enumerate(names) if bits >> index & 1]

    def statistics(self) -> FabricStatistics:
        """What the run has cost so far."""
        nodes = len(self.kinds)
        tiles = max((len(kind.tiles) for kind in self.kinds), default=0)
        stepped = np.zeros(nodes, np.uint64)
        evaluations = tuple(np.zeros(nodes, np.uint64) for _ in range(tiles))
        self._library.sn_stepped(self._open(), stepped.ctypes.data)
        for index, counts in enumerate(evaluations):
            self._library.sn_evaluations(self._fabric, index, counts.ctypes.data)
        return FabricStatistics(self.cycle, stepped, evaluations, self._wall)

    def evaluations_by_tile(self) -> dict[str, int]:
        """Evaluations of tiles, by kind of node and tile."""
        counts = self.statistics().evaluations
        return {name: sum(int(counts[tile][node]) for node, tile in places)
                for name, places in self._tile_places().items()}

    def profile_figures(self) -> list[tuple[list[int], dict[str, int]]]:
        """Raw figures for :func:`~emu.profile.profile_of`, per thread: windows, processor time in
        them, and ticks measured by what was done; and ticks measured by kind of tile."""
        figures = np.zeros(7, np.uint64)
        found = []
        for thread in range(self.threads):
            self._library.sn_profile(self._open(), thread, figures.ctypes.data)
            found.append((figures.tolist(), {
                name: self._library.sn_profile_tile(self._fabric, thread, *places[0])
                for name, places in self._tile_places().items()}))
        return found

    def _tile_places(self) -> dict[str, list[tuple[int, int]]]:
        """(node, tile) of all tiles of one model, by a name for it."""
        models: dict[str, list[tuple[int, int]]] = {}
        for node, made in enumerate(self._made):
            for tile, model in enumerate(made.models):
                models.setdefault(model, []).append((node, tile))
        names: dict[str, list[tuple[int, int]]] = {}
        for places in models.values():
            kind = self.kinds[places[0][0]]
            name = f"{kind.name} {kind.tiles[places[0][1]][0]}" + (
                " with waves" if kind.waves else "")
            alike = sum(each == name or each.startswith(f"{name} #") for each in names)
            names[f"{name} #{alike + 1}" if alike else name] = places
        return names

    def link_statistics(self) -> tuple[LinkStatistics, ...]:
        """What the links have carried so far, in their order."""
        return tuple(
            LinkStatistics(link.source, link.source_port, link.target, link.target_port, *found)
            for link, found in zip(self.links, self._link_counts().tolist(), strict=True))

    def _link_counts(self) -> np.ndarray:
        counts = np.zeros(len(self.links), LINK_COUNTS)
        self._library.sn_link_counts(self._open(), counts.ctypes.data)
        return counts

    def watch(self, format_: FlowFormat) -> None:
        """Keep track of what stands on the links, from now on; to be called before the start."""
        self._check(self._library.sn_watch(self._open(), format_))
        self._flow = format_

    def channel_counts(self, vcs: int) -> np.ndarray:
        """Of each link and each of its ``vcs`` virtual channels, flits sent and flits told freed of
        the opposite link; of a fabric that is watched."""
        counts = np.zeros((len(self.links), vcs, 2), np.uint64)
        self._library.sn_channels(self._open(), counts.ctypes.data)
        return counts

    def channel_packets(self, link: int, vc: int, most: int) -> np.ndarray:
        """The last packets of a channel, the oldest first, as
        :data:`~emu.library.FLOW_PACKET`."""
        packets = np.zeros(most, FLOW_PACKET)
        return packets[:self._library.sn_packets(self._open(), link, vc, packets.ctypes.data, most)]

    def error_bits(self, node: int, port: int, cycle: int) -> int:
        """The bits that would be flipped of a word that leaves the node's port in a cycle."""
        words = np.zeros(64, np.uint32)
        self._library.sn_error_bits(self._open(), node, port, cycle, words.ctypes.data)
        return int.from_bytes(words.tobytes(), "little")

    def exercise(self, tile: int, count: int, nodes: Sequence[int] | None = None) -> None:
        """Evaluate a tile of every node, or of ``nodes``, ``count`` times, out of time: harmless at
        rest."""
        for node in self.local if nodes is None else nodes:
            self._library.sn_exercise(self._open(), node, tile, count)

    def event_log(self) -> np.ndarray:
        """Everything that happened on the boundaries of the nodes, as :data:`~emu.library.EVENT`
        records sorted by cycle, node, port and kind; empty unless it was asked for. A listener has
        got what it would hold."""
        return self._events(self._library.sn_log)

    def activity(self, node: int) -> tuple[str, ...]:
        """Names of the words of a node's activity: their places are the ports of such events."""
        return self._made[node].activity

    def _events(self, function: Callable[..., Any]) -> np.ndarray:
        start = ctypes.c_void_p()
        count = function(self._open(), start)
        if not count:
            return np.zeros(0, EVENT)
        raw = (ctypes.c_char * (count * EVENT.itemsize)).from_address(start.value or 0)
        return np.frombuffer(raw, EVENT).copy()

    def close(self) -> None:
        """Release the machine; views of memory stay. Waves end in the present."""
        if self._fabric is not None:
            try:
                self.finish_waves()
            finally:
                self._library.sn_destroy(self._fabric)
                self._fabric = None

    # Building it.

    def _add_node(self, node: int, memory_bytes: int, stall_rate: float, thread: int) -> None:
        kind, made, owner = self.kinds[node], self._made[node], self._shard.owners[node]
        here = owner == self._shard.rank
        memory = CardMemory(memory_bytes) if here and made.memory and memory_bytes else None
        self._memories.append(memory)
        self._names.append(f"{kind.name} {self._alike[kind.name]}")
        self._alike[kind.name] += 1
        spec = NodeSpec(
            name=self._names[-1].encode(), tiles=len(made.models),
            models=(ctypes.c_char_p * len(made.models))(*(each.encode() for each in made.models)),
            memory_latency=self._memory_latency(kind) if memory else 0,
            memory=memory.address if memory else None, memory_bytes=memory_bytes,
            stall_rate=stall_rate, rank=owner, thread=thread)
        self._check(self._library.sn_add_node(self._fabric, spec))

    def _connect(self, link: Link, latency: int) -> None:
        for node, port in ((link.source, link.source_port), (link.target, link.target_port)):
            ports = self._made[node].ports
            if not 0 <= port < ports:
                raise ValueError(f"{self.name(node)} has no port {port}: ports are 0 to "
                                 f"{ports - 1}")
        self._check(self._library.sn_connect(self._fabric, LinkSpec(
            link.source, link.source_port, link.target, link.target_port, latency, 0)))

    def _break(self, link: Link, faults: Faults,
               outages: Sequence[tuple[int, int | None]]) -> None:
        errors = faults.errors_of(link)
        if errors is not None:
            bits = errors.bits(self.kinds[link.source].params.link)
            fields = (Field * len(bits))(*(Field(*each) for each in bits))
            self._check(self._library.sn_set_errors(
                self._fabric, link.source, link.source_port, fields, len(bits), errors.rate,
                errors.burst))
        for start, end in outages:
            self._check(self._library.sn_add_outage(
                self._fabric, link.source, link.source_port, start,
                NEVER if end is None else end))

    @staticmethod
    def _memory_latency(kind: NodeKind) -> int:
        memory = getattr(kind.params, "memory", None)
        return memory.latency if memory else 0

    def _open(self) -> int:
        if self._fabric is None:
            raise RuntimeError("the machine is closed")
        return self._fabric

    def _check(self, result: int) -> None:
        if result < 0:
            raise EngineError(self._library.sn_error(self._fabric).decode())

    def __del__(self) -> None:
        if getattr(self, "_fabric", None) is not None:
            self.close()
