"""A fabric in several processes: a rank's shard of it, and the whole as rank 0 sees it."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from emu.fabric import Fabric
from emu.kinds import NodeKind
from emu.library import Condition, FlowFormat, NodeStatus, Outcome, TileStatus
from emu.shards import Shard, share_out
from emu.statistics import FabricStatistics
from hdl.topology import Link

from .exchange import Exchange
from .world import Command, world

__all__ = ["RankedFabric", "ShardFabric"]

#: Wall time that no run of a rank takes: rank 0 says when a slice is over.
_ENDLESS_S = 1e9
#: Bytes of memory writes that wait on rank 0 at most.
_QUEUED_BYTES = 16 << 20


class ShardFabric(Fabric):
    """The nodes of this rank, joined to those of the others.

    Parameters
    ----------
    kinds, links, options :
        Of :class:`~emu.fabric.Fabric`, equal on all ranks.
    """

    def __init__(self, kinds: Sequence[NodeKind], links: Sequence[Link], **options: Any) -> None:
        self._world = world()
        owners = tuple(share_out([kind.name for kind in kinds], self._world.size))
        super().__init__(kinds, links, **options, shard=Shard(
            self._world.rank, self._world.size, owners, self._world.neighbours))
        # Per window, a link carries a word in every cycle at the most.
        room: dict[int, int] = defaultdict(int)
        for number, link in enumerate(self.links):
            ends = {owners[link.source], owners[link.target]}
            if len(ends) == 2 and self._world.rank in ends:
                other, = ends - {self._world.rank}
                room[other] += self._window * self._library.sn_mail_bytes(self._open(), number)
        self._exchange = Exchange(self._world, self._library, self._open(), room)
        self._library.sn_set_peers(self._open(), self._exchange.peers)

    # What rank 0 asks for.

    def perform(self, calls: Sequence[Command]) -> None:
        """Do some things of no result, in order."""
        for name, arguments in calls:
            getattr(self, name)(*arguments)

    def run_shard(self, conditions: Sequence[tuple[int, int]], deadline: int) -> str:
        """Take part in a slice of a run; return the error message of this rank's engine."""
        array = (Condition * len(conditions))(*(Condition(*each) for each in conditions))
        outcome = super()._run_slice(array, deadline, _ENDLESS_S)
        return super()._error() if outcome is Outcome.FAILED else ""

    def read_results(self, nodes: Sequence[int]) -> list[list[int]]:
        """What reads of these nodes have given since they were asked last."""
        return super()._read_results(nodes)

    def link_counts(self) -> np.ndarray:
        """What the nodes of this rank have sent, per link."""
        return super()._link_counts()

    def take_events(self) -> np.ndarray:
        """Events of this rank's nodes that have not been taken yet."""
        return super()._take_events()

    def count_active(self) -> int:
        """Nodes of this rank that have something to do."""
        return super().active


class RankedFabric(ShardFabric):
    """All nodes, in all processes: the face of a :class:`~emu.fabric.Fabric` on rank 0.

    What it gives to nodes of other ranks is queued until time passes or something is asked.

    Parameters
    ----------
    kinds, links, options :
        Of :class:`~emu.fabric.Fabric`; not ``flat``, ``waves`` or ``profile``.

    Raises
    ------
    ValueError
        Also if there are fewer nodes than ranks.
    """

    def __init__(self, kinds: Sequence[NodeKind], links: Sequence[Link], **options: Any) -> None:
        ranks = world().size
        for name in ("flat", "waves", "profile"):
            if options.get(name):
                raise ValueError(f"{name} is for one process, not for {ranks} ranks")
        if len(kinds) < ranks:
            raise ValueError(f"{ranks} ranks cannot share {len(kinds)} nodes: accepted are as many "
                             "ranks as there are nodes, or fewer")
        self._queue: dict[int, list[Command]] = defaultdict(list)
        self._queued_bytes = 0
        self._message = ""
        super().__init__(kinds, links, **options)
        options |= {"progress": None, "built": self._built}
        self._everywhere("open", tuple(kinds), tuple(links), options)

    def set_value(self, node: int, tile: str, role: str, value: bytes) -> None:
        self._give(node, "set_value", node, tile, role, value)

    def start(self) -> None:
        self._flush()
        super().start()
        self._everywhere("start")

    def _run_slice(self, conditions: ctypes.Array[Condition], deadline: int,
                   seconds: float) -> Outcome:
        self._flush()
        commands = self._world.everywhere(
            "run_shard", [(each.node, each.total) for each in conditions], deadline)
        # An interrupt waits for the boundary at which all ranks stop.
        with _interrupts_held():
            self._world.send(commands)
            outcome = super()._run_slice(conditions, deadline, seconds)
            messages = self._world.answers(commands)
        if outcome is Outcome.FAILED:
            # One rank has the first broken rule; the others say that it is elsewhere.
            told = [super()._error(), *messages]
            self._message = next((text for text in told if "another process" not in text), told[0])
        return outcome

    def _error(self) -> str:
        return self._message

    def host_write(self, node: int, offset: int, value: int) -> None:
        self._give(node, "host_write", node, offset, value)

    def _post_read(self, node: int, offset: int) -> None:
        self._give(node, "_post_read", node, offset)

    def _read_results(self, nodes: Sequence[int]) -> list[list[int]]:
        self._flush()
        by_rank: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            by_rank[self._shard.owners[node]].append(node)
        mine = by_rank.pop(0, [])
        found = dict(zip(mine, super()._read_results(mine), strict=True))
        answers = self._world.call({rank: ("read_results", (wanted,))
                                    for rank, wanted in by_rank.items()})
        for wanted, results in zip(by_rank.values(), answers, strict=True):
            found |= dict(zip(wanted, results, strict=True))
        return [found[node] for node in nodes]

    def memory_write(self, node: int, address: int, data: np.ndarray) -> None:
        self._give(node, "memory_write", node, address, data, size=data.size)

    def memory_read(self, node: int, address: int, size: int) -> np.ndarray:
        return self._ask(node, "memory_read", node, address, size)

    def status(self, node: int) -> NodeStatus:
        return self._ask(node, "status", node)

    def tile_statuses(self, node: int) -> list[tuple[str, TileStatus]]:
        return self._ask(node, "tile_statuses", node)

    def at_rest(self) -> bool:
        return super().at_rest() and all(self._everywhere("at_rest"))

    def statistics(self) -> FabricStatistics:
        mine = super().statistics()
        others: list[FabricStatistics] = self._everywhere("statistics")
        return FabricStatistics(
            mine.cycles, np.sum([each.stepped for each in (mine, *others)], axis=0),
            tuple(np.sum(counts, axis=0) for counts in zip(
                *(each.evaluations for each in (mine, *others)), strict=True)), mine.wall_s)

    def _link_counts(self) -> np.ndarray:
        counts = super()._link_counts()
        for other in self._everywhere("link_counts"):
            for name in counts.dtype.names or ():
                counts[name] += other[name]
        return counts

    def error_bits(self, node: int, port: int, cycle: int) -> int:
        return self._ask(node, "error_bits", node, port, cycle)

    def exercise(self, tile: int, count: int, nodes: Sequence[int] | None = None) -> None:
        if nodes is None:
            super().exercise(tile, count)
            self._everywhere("exercise", tile, count)
            return
        for node in nodes:
            self._ask(node, "exercise", tile, count, [node])

    @property
    def active(self) -> int:
        return super().count_active() + sum(self._everywhere("count_active"))

    def watch(self, format_: FlowFormat) -> None:
        super().watch(format_)
        self._everywhere("watch", format_)

    def channel_counts(self, vcs: int) -> np.ndarray:
        return super().channel_counts(vcs) + sum(self._everywhere("channel_counts", vcs))

    def channel_packets(self, link: int, vc: int, most: int) -> np.ndarray:
        return self._ask(self.links[link].source, "channel_packets", link, vc, most)

    def event_log(self) -> np.ndarray:
        return _sorted(super().event_log(), *self._everywhere("event_log"))

    def _take_events(self) -> np.ndarray:
        return _sorted(super()._take_events(), *self._everywhere("take_events"))

    def save(self, path: Any, **options: Any) -> None:
        """Refused: the state of other processes is not at hand."""
        raise ValueError("a machine in several processes cannot be saved: accepted is one process")

    def close(self) -> None:
        if self._fabric is not None and not self._world.mpi.Is_finalized():
            self._queue.clear()
            self._everywhere("close")
        super().close()

    def _give(self, node: int, name: str, *arguments: Any, size: int = 0) -> None:
        rank = self._shard.owners[node]
        if rank == 0:
            getattr(super(), name)(*arguments)
            return
        self._queue[rank].append((name, _kept(arguments)))
        self._queued_bytes += size
        if self._queued_bytes > _QUEUED_BYTES:
            self._flush()

    def _flush(self) -> None:
        commands: dict[int, Command] = {rank: ("perform", (calls,))
                                        for rank, calls in self._queue.items() if calls}
        self._queue, self._queued_bytes = defaultdict(list), 0
        self._world.call(commands)

    def _ask(self, node: int, name: str, *arguments: Any) -> Any:
        self._flush()
        rank = self._shard.owners[node]
        if rank == 0:
            return getattr(super(), name)(*arguments)
        return self._world.call({rank: (name, arguments)})[0]

    def _everywhere(self, name: str, *arguments: Any) -> list[Any]:
        self._flush()
        return self._world.call(self._world.everywhere(name, *arguments))


def _sorted(*logs: np.ndarray) -> np.ndarray:
    log = np.concatenate(logs)
    return log[np.lexsort([log[name] for name in ("kind", "port", "node", "cycle")])]


def _kept(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments as they are now, whatever becomes of arrays among them."""
    return tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Take a keyboard interrupt that comes within the block at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, Any]] = []
    before = signal.signal(signal.SIGINT, lambda *what: came.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and callable(before):
        before(*came[0])
