"""A line on a terminal's stderr that says what takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["silent", "status_line", "terminal"]

_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """Show nothing while the block runs: the terminal belongs to somebody else."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def terminal() -> Console | None:
    """The terminal that progress is shown on, or ``None`` where nobody would see it."""
    if _silent.get() or not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None] | None]:
    """Show ``text`` while the block runs; yields a function that replaces it, or ``None`` where
    nobody would see it."""
    console = terminal()
    if console is None:
        yield None
        return
    with console.status(text) as status:
        yield status.update
