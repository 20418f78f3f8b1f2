"""Saving a machine while something is waited for.

What waits is in the middle of the host's work, so the machine is not saved between two looks of the
drivers at the cards, but within the time that passes between them: they do exactly what they would
have done without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from .backend import Backend

__all__ = ["AutoSave", "SavingBackend", "saving_backend"]


@dataclass
class AutoSave:
    """Every ``cycles`` cycles, ``save`` is called; ``due`` is the next time."""

    cycles: int
    save: Callable[[], None]
    due: int

    def act(self, cycle: int) -> None:
        """Called at the first instant of the host at which it is due."""
        self.due = cycle + self.cycles
        self.save()


class SavingBackend(Backend, Protocol):
    """A machine that can be saved."""

    #: If there is one, its ``act`` is called when it is due while time passes in ``wait`` or
    #: ``advance``, which goes on afterwards.
    interruption: AutoSave | None

    def save(self, path: str | os.PathLike[str], *, host: Mapping[str, Any]) -> None:
        """Write everything to a file, with plain data for the host."""


def saving_backend(backend: Backend) -> SavingBackend:
    """The backend, if it can be saved.

    Raises
    ------
    ValueError
        If it cannot.
    """
    if not hasattr(backend, "interruption"):
        raise ValueError(f"a machine on {type(backend).__name__} cannot be saved: only one on the "
                         "emulation engine can")
    return cast(SavingBackend, backend)
