"""How a run goes, live on a terminal's stderr: simulated cycle, activity, speed, time left.

The engine comes back to Python some times a second; that is when the meter looks, and a few times a
second it draws. Speeds are those of the last two seconds. The time left follows from a goal in
cycles: a bound that no run beats (*at least*), or the length of a method that may stop earlier or
wait for stragglers (*about*).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from .status import terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

__all__ = ["Meter", "meter"]

#: Seconds from one drawing to the next, and drawings that speeds are taken over.
INTERVAL_S = 0.25
_DRAWINGS = 8
_BAR = 24


class Watched(Protocol):
    """What can be looked at: :class:`~emu.fabric.Fabric`."""

    watcher: Callable[[int], None] | None

    @property
    def cycle(self) -> int: ...

    @property
    def nodes(self) -> int: ...

    @property
    def active(self) -> int: ...


class Meter:
    """What is shown of a run; without a ``live`` display, nothing is."""

    def __init__(self, title: str, fabric: Watched | None = None, live: Live | None = None) -> None:
        self._title, self._fabric, self._live = title, fabric, live
        self._from, self._goal, self._sense = 0, 0, ""
        self._seen: deque[tuple[float, int]] = deque(maxlen=_DRAWINGS)
        self._due = 0.0

    def rename(self, title: str) -> None:
        """Call what runs by another name from now on."""
        self._title = title

    def expect(self, cycles: int, sense: str) -> None:
        """From now on the run takes ``cycles`` cycles: ``at least`` or ``about``."""
        if self._fabric is not None:
            self._from = self._fabric.cycle
            self._goal, self._sense = self._from + cycles, sense

    def look(self, cycle: int) -> None:
        """Draw, if it is time to."""
        now = time.perf_counter()
        if now < self._due or self._live is None:
            return
        self._due = now + INTERVAL_S
        self._seen.append((now, cycle))
        self._live.update(self._draw(cycle), refresh=True)

    def _draw(self, cycle: int) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._fabric is not None
        nodes = self._fabric.nodes
        (first, since), (last, until) = self._seen[0], self._seen[-1]
        speed = (until - since) / (last - first) if last > first else 0.0
        parts = [f"cycle {cycle:,}", f"{self._fabric.active:,} of {nodes:,} active"]
        if speed:
            parts += [f"{_short(speed)} cycles/s", f"{_short(speed * nodes)} card-cycles/s"]
        if speed and cycle < self._goal:
            left = timedelta(seconds=round((self._goal - cycle) / speed))
            parts.append(f"{self._sense} {left} left")
        head = Table.grid(padding=(0, 1))
        bar = [ProgressBar(self._goal - self._from, min(cycle, self._goal) - self._from,
                           width=_BAR)] if self._goal else []
        head.add_row(Text(self._title, no_wrap=True, overflow="ellipsis"), *bar)
        return Group(head, Text("  ".join(parts), no_wrap=True, overflow="ellipsis"))


@contextmanager
def meter(title: str, fabric: Callable[[], Watched]) -> Iterator[Meter]:
    """Show how what ``fabric`` returns runs while the block does, where somebody sees it. Nothing
    may be printed meanwhile."""
    console = terminal()
    if console is None:
        yield Meter(title)
        return
    from rich.live import Live

    watched = fabric()
    with Live(title, console=console, auto_refresh=False, transient=True, redirect_stdout=False,
              redirect_stderr=False) as live:
        shown = Meter(title, watched, live)
        watched.watcher = shown.look
        try:
            yield shown
        finally:
            watched.watcher = None


def _short(value: float) -> str:
    """Three digits and a unit: 12.3k, 4.56M."""
    units = ["", "k", "M", "G"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g}{units[0]}"
