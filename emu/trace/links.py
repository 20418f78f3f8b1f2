"""What links carried, and why not more: utilisation, credit stalls, queue depths.

Of a directed link, over the cycles measured, which are the same for all: from the one in which the
first flit leaves to the one in which the last credit is on its way back.

*utilisation*    flits that left ÷ cycles; those that a reliable link sends again count each time
*credit stall*   share of cycles in which a flit was ready to leave and its virtual channel had no
                 credit, as the sending router or switch says (``starved`` of its activity)
*queue*          flits in the buffers at the receiving end: arrived, and their credit not yet on its
                 way back; of all virtual channels together, at the end of each cycle; mean and most

All three are exact, and the same however a machine is run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from emu.library import EventKind

from .accepted import Accepted
from .scene import Scene

__all__ = ["LinkFigures", "LinkMeter"]

#: Periods of a heat map: their length doubles when there are twice as many.
_PERIODS = 128
_FIRST_PERIOD = 16


@dataclass(frozen=True)
class LinkFigures:
    """What one directed link did."""

    source: str
    port: int
    target: str
    flits: int
    utilisation: float
    credit_stall: float
    queue_mean: float
    queue_most: int


class LinkMeter:
    """Measures links from events.

    Parameters
    ----------
    scene : Scene
    """

    kinds: ClassVar[Collection[EventKind]] = frozenset((
        *Accepted.kinds, EventKind.ACTIVITY))

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.links = [link for link, _ in scene.routes.values()]
        count = len(self.links)
        ports = 1 + max((max(link.source_port, link.target_port) for link in self.links),
                        default=0)
        self._accepted = Accepted(scene)
        self._latency = np.array([latency for _, latency in scene.routes.values()], np.int64)
        self._out = np.full((scene.nodes, ports), -1)
        self._in = np.full((scene.nodes, ports), -1)
        for index, link in enumerate(self.links):
            self._out[link.source, link.source_port] = index
            self._in[link.target, link.target_port] = index
        self._start = self._end = 0
        self.flits = np.zeros(count, np.int64)
        self.stalls = np.zeros(count, np.int64)
        #: Flits by link and period, likewise cycles of credit stalls.
        self.flits_by_period = np.zeros((count, 2 * _PERIODS), np.int64)
        self.stalls_by_period = np.zeros((count, 2 * _PERIODS), np.int64)
        self.period = _FIRST_PERIOD
        self._word = np.full(scene.nodes, -1)
        for node in range(scene.nodes):
            words = scene.fabric.activity(node)
            if "starved" in words:
                self._word[node] = words.index("starved")
        self._starved = np.zeros(count, bool)
        self._since = np.zeros(count, np.int64)
        self._depth = np.zeros(count, np.int64)
        self._depth_since = np.zeros(count, np.int64)
        self._area = np.zeros(count, np.int64)
        self._most = np.zeros(count, np.int64)
        self._freed = np.zeros((count, scene.vcs), np.int64)
        self._flying = np.zeros((0, 2), np.int64)  # link and arrival of flits under way

    def consume(self, events: np.ndarray, until: int) -> None:
        """Take all events before cycle ``until`` that it has not got yet, sorted."""
        is_word = events["kind"] == EventKind.LINK
        words = events[is_word]
        cycles, control = words["cycle"].astype(np.int64), words["value"].astype(np.int64)
        links = self._out[words["node"], words["port"]]
        flit = (self._field(control, "valid") == 1) & (links >= 0)
        if not self._end:
            if not flit.any():
                return
            self._start = self._end = int(cycles[flit][0])
        while until - self._start > 2 * _PERIODS * self.period:
            self._coarsen()
        np.add.at(self.flits, links[flit], 1)
        np.add.at(self.flits_by_period, (links[flit], self._periods(cycles[flit])), 1)
        activity = events[events["kind"] == EventKind.ACTIVITY]
        self._stall(activity[self._word[activity["node"]] == activity["port"]], until)

        arriving = is_word.copy()
        arriving[is_word] = flit
        taken = self._accepted.of(events, arriving)[is_word]
        arrivals = np.stack((links[taken], cycles[taken] + self._latency[links[taken]]), axis=1)
        arrivals = np.concatenate((self._flying, arrivals))
        landed = arrivals[:, 1] < until
        self._flying = arrivals[~landed]
        # A credit goes back on the port by which its flits came.
        back = self._in[words["node"], words["port"]]
        told = (self._field(control, "credit") == 1) & (back >= 0)
        self._queue(arrivals[landed], back[told], cycles[told],
                    self._field(control[told], "credit_vc"), self._field(control[told], "freed"))

    def finish(self, cycle: int) -> None:
        """There will be no more: it is cycle ``cycle``."""

    @property
    def cycles(self) -> int:
        """Cycles measured."""
        return self._end - self._start

    def figures(self) -> list[LinkFigures]:
        """What each link did, in the fabric's order."""
        name, cycles = self._scene.fabric.name, max(1, self.cycles)
        areas = self._area + self._depth * np.maximum(0, self._end - self._depth_since)
        return [LinkFigures(name(link.source), link.source_port, name(link.target), int(flits),
                            flits / cycles, stalls / cycles, area / cycles, int(most))
                for link, flits, stalls, area, most in zip(
                    self.links, self.flits.tolist(), self.stalls.tolist(), areas.tolist(),
                    self._most.tolist(), strict=True)]

    def _field(self, control: np.ndarray, name: str) -> np.ndarray:
        first, width = self._scene.link_fields[name]
        return control >> first & (1 << width) - 1

    def _periods(self, cycles: np.ndarray) -> np.ndarray:
        return (cycles - self._start) // self.period

    def _coarsen(self) -> None:
        for table in (self.flits_by_period, self.stalls_by_period):
            pairs = table.reshape(len(table), _PERIODS, 2).sum(axis=2)
            table[:, :_PERIODS], table[:, _PERIODS:] = pairs, 0
        self.period *= 2

    def _stall(self, words: np.ndarray, until: int) -> None:
        for cycle, node, mask in zip(*(words[name].tolist() for name in (
                "cycle", "node", "value")), strict=True):
            for port, link in enumerate(self._out[node].tolist()):
                if link < 0 or self._starved[link] == (mask >> port & 1):
                    continue
                if self._starved[link]:
                    self._stalled(link, cycle)
                self._starved[link] = not self._starved[link]
                self._since[link] = cycle
        for link in np.flatnonzero(self._starved).tolist():
            self._stalled(link, until)

    def _stalled(self, link: int, until: int) -> None:
        """The link has been starved up to ``until``."""
        at = int(self._since[link])
        self._since[link] = until
        self.stalls[link] += until - at
        while at < until:
            period = (at - self._start) // self.period
            end = min(until, self._start + (period + 1) * self.period)
            self.stalls_by_period[link, period] += end - at
            at = end

    def _queue(self, arrivals: np.ndarray, links: np.ndarray, cycles: np.ndarray,
               vcs: np.ndarray, freed: np.ndarray) -> None:
        """Arrivals (link, cycle), and totals of freed flits (link, cycle, VC, total)."""
        modulus = 1 << self._scene.link_fields["freed"][1]
        order = np.lexsort((cycles, vcs, links))
        links, cycles, vcs, freed = (each[order] for each in (links, cycles, vcs, freed))
        first = np.ones(len(links), bool)
        first[1:] = (links[1:] != links[:-1]) | (vcs[1:] != vcs[:-1])
        before = np.where(first, self._freed[links, vcs], np.roll(freed, 1))
        self._freed[links, vcs] = freed  # the last one of each stays
        link = np.concatenate((arrivals[:, 0], links))
        cycle = np.concatenate((arrivals[:, 1], cycles))
        change = np.concatenate((np.ones(len(arrivals), np.int64), -((freed - before) % modulus)))
        if not len(link):
            return
        # What changes a queue in one cycle counts together.
        keys, place = np.unique(np.stack((link, cycle)), axis=1, return_inverse=True)
        (link, cycle), change = keys, np.bincount(place.reshape(-1), change).astype(np.int64)
        self._end = max(self._end, 1 + int(cycle[change != 0].max(initial=self._start)))
        start = np.flatnonzero(np.r_[True, link[1:] != link[:-1]])
        size = np.diff(np.r_[start, len(link)])
        total = np.cumsum(change)
        depth = total - np.repeat(total[start] - change[start] - self._depth[link[start]], size)
        lasts, since = np.roll(depth, 1), np.roll(cycle, 1)
        lasts[start], since[start] = self._depth[link[start]], self._depth_since[link[start]]
        np.add.at(self._area, link, lasts * (cycle - since))
        np.maximum.at(self._most, link, depth)
        ends = start + size - 1
        self._depth[link[ends]], self._depth_since[link[ends]] = depth[ends], cycle[ends]
