"""The timeline of a machine: its events as spans on tracks, made while it runs.

Tracks of a card, in this order: the card and its phase, command queues, slots, rails, the GEMM
engine (see ``card``), and per link port the packets that leave and those that arrive (see
``packets``), the cycles in which a flit had no credit there, and the share of cycles in which the
link carried flits.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from emu.library import EventKind

from .accepted import Accepted
from .card import CardTimeline, StateTrack
from .packets import PacketTimeline
from .scene import Scene
from .spans import SpanSink, Track

__all__ = ["Timeline"]

#: Cycles of one value of a link's share.
_PERIOD = 1024


class Timeline:
    """Makes spans of a fabric's events.

    Parameters
    ----------
    scene : Scene
    sink : SpanSink
    """

    kinds: ClassVar[Collection[EventKind]] = frozenset((
        *Accepted.kinds, EventKind.HEADER, EventKind.ACTIVITY, EventKind.HOST_WRITE))

    def __init__(self, scene: Scene, sink: SpanSink) -> None:
        self._scene, self._sink = scene, sink
        self._cards = {node: CardTimeline(scene, node, sink) for node in range(scene.nodes)
                       if scene.fabric.kinds[node].name == "card"}
        self._packets = PacketTimeline(scene, sink)
        self._accepted = Accepted(scene)
        fields = scene.link_fields
        self._valid, head, tail = (np.uint64(1 << fields[name][0])
                                   for name in ("valid", "head", "tail"))
        self._edge = head | tail
        #: By node: which word says that ports have no credit, and what it said last.
        self._starved = {node: words.index("starved") for node in range(scene.nodes)
                         if "starved" in (words := scene.fabric.activity(node))}
        self._blocked: dict[tuple[int, int], StateTrack] = {}
        self._masks: dict[int, int] = {}
        self._shares = _Shares(scene, sink)

    def consume(self, events: np.ndarray, until: int) -> None:
        """Take all events before cycle ``until`` that it has not got yet, sorted."""
        kind = events["kind"]
        flits = (kind == EventKind.LINK) & (events["value"] & self._valid != 0)
        flits = self._accepted.of(events, flits)
        self._shares.add(events[flits], until)
        edges = flits & (events["value"] & self._edge != 0)
        headers = kind == EventKind.HEADER
        headers[headers] = edges[np.flatnonzero(headers) - self._distance(events, headers)]
        chosen = events[edges | headers | np.isin(kind, (
            EventKind.ACTIVITY, EventKind.HOST_WRITE))]
        for record in zip(*(chosen[name].tolist() for name in (
                "kind", "cycle", "node", "port", "value", "digest")), strict=True):
            self._event(*record)

    def finish(self, cycle: int) -> None:
        """There will be no more: it is cycle ``cycle``."""
        for card in self._cards.values():
            card.finish(cycle)
        for track in self._blocked.values():
            track.set(cycle, None)
        self._packets.finish(cycle)
        self._sink.close()

    @staticmethod
    def _distance(events: np.ndarray, headers: np.ndarray) -> np.ndarray:
        """How far each header's flit is in front of it: words that are struck stand between."""
        places = np.flatnonzero(headers)
        distance = np.ones(len(places), np.intp)
        while len(late := np.flatnonzero(events["kind"][places - distance] != EventKind.LINK)):
            distance[late] += 1
        return distance

    def _event(self, kind: int, cycle: int, node: int, port: int, value: int, rest: int) -> None:
        if kind == EventKind.LINK:
            self._packets.flit(cycle, node, port, value)
        elif kind == EventKind.HEADER:
            self._packets.header(cycle, node, port, value, rest)
        elif kind == EventKind.HOST_WRITE:
            if node in self._cards:
                self._cards[node].doorbell(cycle, value, rest)
        elif self._starved.get(node) == port:
            self._blocks(cycle, node, value)
        elif node in self._cards:
            self._cards[node].activity(cycle, port, value)

    def _blocks(self, cycle: int, node: int, mask: int) -> None:
        changed = mask ^ self._masks.get(node, 0)
        self._masks[node] = mask
        while changed:
            port = (changed & -changed).bit_length() - 1
            changed &= changed - 1
            if (node, port) not in self._blocked:
                self._blocked[node, port] = StateTrack(self._sink, self._blocked_track(node, port))
            self._blocked[node, port].set(cycle, "no credit" if mask >> port & 1 else None)

    def _blocked_track(self, node: int, port: int) -> Track:
        if (node, port) in self._scene.routes:
            link, _ = self._scene.routes[node, port]
            return Track(node, (6, port, self._scene.vcs),
                         f"to {self._scene.fabric.name(link.target)}, port {port} blocked")
        return Track(node, (8, port), f"to the rails, port {port} blocked")


class _Shares:
    """The share of cycles in which each link carries flits, in periods of equal length."""

    def __init__(self, scene: Scene, sink: SpanSink) -> None:
        self._sink = sink
        self._links = list(scene.routes)
        self._index = {place: index for index, place in enumerate(self._links)}
        names = scene.fabric.name
        self._tracks = [
            Track(node, (6, port, -1), f"to {names(scene.routes[node, port][0].target)}, "
                  f"port {port} load") for node, port in self._links]
        ports = 1 + max((port for _, port in self._links), default=0)
        self._place = np.full((scene.nodes, ports), -1)
        for index, (node, port) in enumerate(self._links):
            self._place[node, port] = index
        self._counts = np.zeros(len(self._links), np.int64)
        self._shown: Any = np.zeros(len(self._links))
        self._period = 0

    def add(self, flits: np.ndarray, until: int) -> None:
        """Flits that left before ``until``, sorted by cycle."""
        periods = flits["cycle"] // _PERIOD
        links = self._place[flits["node"], flits["port"]]
        at = 0
        while self._period < until // _PERIOD:
            end = int(np.searchsorted(periods, self._period, "right"))
            self._counts += np.bincount(links[at:end], minlength=len(self._counts))
            at = end
            self._show()
        self._counts += np.bincount(links[at:], minlength=len(self._counts))

    def _show(self) -> None:
        share = self._counts / _PERIOD
        for link in np.flatnonzero(share != self._shown).tolist():
            self._sink.count(self._tracks[link], self._period * _PERIOD, float(share[link]))
        self._shown = share
        self._counts = np.zeros_like(self._counts)
        self._period += 1
