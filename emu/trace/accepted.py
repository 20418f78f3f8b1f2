"""Which flits of a link its other end takes: all, or on reliable links those in order."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import numpy as np

from emu.library import EventKind

from .scene import Scene

__all__ = ["Accepted"]


class Accepted:
    """Follows what links carry.

    A plain link loses what is on it when it fails. The receiver of a reliable link takes a flit if
    its number is the next one and the word is whole; what it does not take is sent again. A link
    whose signal changes counts anew.
    """

    #: What it looks at.
    kinds: ClassVar[Collection[EventKind]] = frozenset((
        EventKind.LINK, EventKind.CORRUPT, EventKind.LOST, EventKind.SIGNAL))

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        first, width = scene.link_fields["seq"]
        self._shift, self._mask = first, (1 << width) - 1
        self._next: dict[tuple[int, int], int] = {}
        self._sources = {(link.target, link.target_port): source
                         for source, (link, _) in scene.routes.items()}

    def of(self, events: np.ndarray, flits: np.ndarray) -> np.ndarray:
        """Whether each event that ``flits`` marks is a flit that its receiver takes, given all
        events of some time, sorted."""
        struck = np.isin(events["kind"], (EventKind.CORRUPT, EventKind.LOST))
        if not self._scene.reliable and not struck.any():
            return flits
        bad = set(zip(*(events[struck][name].tolist() for name in ("cycle", "node", "port")),
                      strict=True))
        taken = flits.copy()
        signals = events["kind"] == EventKind.SIGNAL
        for place in np.flatnonzero(flits | signals).tolist():
            record = events[place]
            port = int(record["node"]), int(record["port"])
            if signals[place]:
                self._next.pop(self._sources.get(port, port), None)
                continue
            whole = (int(record["cycle"]), *port) not in bad
            if self._scene.reliable:
                number = int(record["value"]) >> self._shift & self._mask
                whole &= number == self._next.setdefault(port, number)
                if whole:
                    self._next[port] = number + 1 & self._mask
            taken[place] = whole
        return taken
