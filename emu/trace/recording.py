"""Events on their way from a running fabric to those who make something of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from emu.fabric import Fabric
from emu.library import EventKind

__all__ = ["Consumer", "Recording"]


class Consumer(Protocol):
    """Takes events as they happen."""

    #: What it makes use of.
    kinds: Collection[EventKind]

    def consume(self, events: np.ndarray, until: int) -> None:
        """Take all events before cycle ``until`` that it has not got yet, sorted."""

    def finish(self, cycle: int) -> None:
        """There will be no more: it is cycle ``cycle``."""


class Recording:
    """Hands a fabric's events to consumers while it runs.

    Parameters
    ----------
    consumers : sequence of Consumer
    """

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = tuple(consumers)

    @property
    def kinds(self) -> frozenset[EventKind]:
        """What the fabric's event log has to record."""
        return frozenset(kind for consumer in self._consumers for kind in consumer.kinds)

    @contextmanager
    def of(self, fabric: Fabric) -> Iterator[None]:
        """Around a run of ``fabric``, which records ``kinds``: consumers get its events, and are
        finished if it ends well."""
        def tell(events: np.ndarray) -> None:
            for consumer in self._consumers:
                consumer.consume(events, fabric.cycle)

        fabric.listener = tell
        try:
            yield
        finally:
            fabric.listener = None
        for consumer in self._consumers:
            consumer.finish(fabric.cycle)
