"""``--profile``: where the time of a command goes, as a table and as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .output import Screen

if TYPE_CHECKING:
    from emu.fabric import Fabric

__all__ = ["Timeline", "profile_option", "profile_values", "tell_profile"]

Function = TypeVar("Function", bound=Callable[..., Any])


def profile_option(function: Function) -> Function:
    """Add ``--profile``."""
    return click.option("--profile", is_flag=True,
                        help="Tell where the time of the run went.")(function)


class Timeline:
    """The sections of a command in wall time, without what of each was spent in the engine."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(("build", "schedule", "python", "verify"),
                                                       0.0)
        self.begin()

    def begin(self) -> None:
        """The first section begins now, with an engine to come."""
        self._wall, self._engine = time.perf_counter(), 0.0

    def close(self, section: str, fabric: Fabric, until: float | None = None) -> None:
        """The time since the last call, until now or an instant past, was this section's."""
        wall, engine = time.perf_counter(), fabric.statistics().wall_s
        if until is not None:
            wall, engine = until, self._engine
        self.seconds[section] += wall - self._wall - (engine - self._engine)
        self._wall, self._engine = wall, engine


def profile_values(timeline: Timeline, fabric: Fabric,
                   rates: dict[str, float]) -> dict[str, Any]:
    """Where time went, as JSON has it. ``rates`` are those of the run."""
    from emu.profile import profile_of

    found = profile_of(fabric)
    parts = {**timeline.seconds, **found.work}
    total = sum(parts.values()) + sum(tile.seconds for tile in found.tiles.values())
    return {
        "wall_s": total, "engine_s": found.seconds, "parts": parts,
        "tiles": {name: {"seconds": tile.seconds, "share": tile.seconds / total if total else 0.0,
                         "evaluations": tile.evaluations, "ns": tile.ns}
                  for name, tile in found.tiles.items()},
        "skipped": found.skipped, "windows": found.windows, **rates}


def tell_profile(screen: Screen, values: dict[str, Any]) -> None:
    """Print what :func:`profile_values` returned."""
    total = values["wall_s"] or 1.0
    rows = [(f"tile: {name}", tile["seconds"], f"{tile['evaluations']:,}", f"{tile['ns']:,.0f}")
            for name, tile in values["tiles"].items()]
    rows += [(name, seconds, "", "") for name, seconds in values["parts"].items()]
    screen.table("where time went", ("", "seconds", "share", "evaluations", "ns each"),
                 [(name, f"{seconds:.3f}", f"{seconds / total:.1%}", *more)
                  for name, seconds, *more in sorted(rows, key=lambda row: -row[1])])
    screen.line(f"{values['skipped']:.1%} of the cycles of nodes were skipped")
