"""What the engine's time went to: tiles by kind, and the rest by what is done.

The engine measures one window in seven part by part (``engine/profile.hpp``); here this is scaled
to the processor time of all windows. With several threads, seconds are those of all threads over
their number, so that parts always add up to the wall time in the engine. Results do not depend on
any of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fabric import Fabric

__all__ = ["Profile", "TileCost", "profile_of"]

#: As in ``engine/profile.hpp``.
_WORK = ("links", "host", "memory", "streams", "windows")


@dataclass(frozen=True)
class TileCost:
    """Evaluating one kind of tile."""

    seconds: float
    evaluations: int
    threads: int

    @property
    def ns(self) -> float:
        """Processor time of one evaluation, per node: a lane-parallel model does several at
        once."""
        return 1e9 * self.threads * self.seconds / self.evaluations if self.evaluations else 0.0


@dataclass(frozen=True)
class Profile:
    """Where time in the engine went.

    Attributes
    ----------
    seconds : float
        In the engine.
    work : dict
        Seconds by what was done: ``links``, ``host``, ``memory``, ``streams`` between tiles,
        ``windows``, which finds out what is to be run, and ``waiting`` for other threads or for a
        processor, planning included.
    tiles : dict
        By kind of node and tile.
    skipped : float
        Share of all cycles of all nodes in which no tile was evaluated.
    windows : int
        Of all threads.
    """

    seconds: float
    work: dict[str, float]
    tiles: dict[str, TileCost]
    skipped: float
    windows: int


def profile_of(fabric: Fabric) -> Profile:
    """Where time has gone of a fabric that was made with ``profile``."""
    threads, spent = fabric.profile_figures(), fabric.statistics()
    work, tiles = dict.fromkeys(_WORK, 0.0), dict.fromkeys(threads[0][1], 0.0)
    for (_, window_ns, *measured), mine in threads:
        scale = 1e-9 * window_ns / max(sum(measured) + sum(mine.values()), 1) / len(threads)
        for name, ticks in zip(_WORK, measured, strict=True):
            work[name] += ticks * scale
        for name, ticks in mine.items():
            tiles[name] += ticks * scale
    work["waiting"] = max(0.0, spent.wall_s - sum(work.values()) - sum(tiles.values()))
    node_cycles = spent.cycles * len(spent.stepped)
    evaluations = fabric.evaluations_by_tile()
    return Profile(
        spent.wall_s, work,
        {name: TileCost(seconds, evaluations[name], len(threads))
         for name, seconds in tiles.items()},
        1 - float(spent.stepped.sum()) / node_cycles if node_cycles else 0.0,
        sum(figures[0] for figures, _ in threads))
