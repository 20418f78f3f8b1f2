"""A line on a terminal's stderr that says what takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["status_line"]


@contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None] | None]:
    """Show ``text`` while the block runs; yields a function that replaces it, or ``None`` where
    nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield status.update
