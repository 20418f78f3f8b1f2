"""A fabric that is saved and taken up again by another one, over and over, while it is used."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from emu.fabric import Fabric
from emu.library import EventKind, Outcome

__all__ = ["restarting"]


def restarting(fabric: Fabric, path: Path, seed: int, gap: int) -> list[int]:
    """Make ``fabric``, which was just started, live in one engine after the other: about every
    ``gap`` cycles, at a boundary of the host that ``seed`` decides, it is saved to ``path`` and
    goes on in a fabric that was built anew, with another window and number of threads. Return a
    list that the cycles of these restarts go into."""
    fabric.__class__ = _Restarting
    fabric.random, fabric.path, fabric.gap, fabric.restarts = Random(seed), path, gap, []
    fabric.choose()
    return fabric.restarts


class _Restarting(Fabric):
    random: Random
    path: Path
    gap: int
    restarts: list[int]

    def choose(self) -> None:
        quantum = self._settings["quantum"]
        self.stop = self.cycle + quantum * self.random.randint(1, max(1, 2 * self.gap // quantum))

    def run(self, conditions: Any, deadline: int) -> Outcome:
        while True:
            outcome = super().run(conditions, min(deadline, self.stop))
            if outcome is not Outcome.DEADLINE or self.cycle >= deadline:
                return outcome
            self._restart()

    def _restart(self) -> None:
        self.restarts.append(self.cycle)
        self.save(self.path)
        built = dict(self._settings)
        built["faults"] = self._faults
        built["event_log"] = [EventKind(kind) for kind in built["event_log"]]
        window, threads = self.random.randint(1, min(self.latency)), self.random.randint(1, 3)
        lanes = {kind.name: count for kind, count in self.lanes.items()}
        if max(lanes.values()) > 1:
            threads = self.threads  # to which lanes are shared out
        fresh = Fabric(self.kinds, self.links, latency=self.latency, window=window,
                       threads=threads, lanes=lanes, built=self._built, **built)
        if self._flow is not None:
            fresh.watch(self._flow)
        fresh.restore(self.path)
        mine = vars(self)
        kept = {name: mine[name] for name in ("random", "path", "gap", "restarts", "watcher")}
        old = Fabric.__new__(Fabric)
        vars(old).update(mine)
        mine.clear()
        mine.update(vars(fresh) | kept)
        fresh._fabric = None
        old.close()
        self.choose()
