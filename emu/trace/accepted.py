"""Which flits of a link its other end takes: all, or on reliable links those in order."""

from __future__ import annotations

import numpy as np

from emu.library import EventKind

from .scene import Scene

__all__ = ["Accepted"]


class Accepted:
    """Follows what links carry.

    A plain link loses what is on it when it fails. The receiver of a reliable link takes a flit if
    its number is the next one and the word is whole; what it does not take is sent again.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        first, width = scene.link_fields["seq"]
        self._shift, self._mask = first, (1 << width) - 1
        self._next: dict[tuple[int, int], int] = {}

    def of(self, events: np.ndarray, flits: np.ndarray) -> np.ndarray:
        """Whether each event that ``flits`` marks is a flit that its receiver takes, given all
        events of some time, sorted."""
        struck = np.isin(events["kind"], (EventKind.CORRUPT, EventKind.LOST))
        if not self._scene.reliable and not struck.any():
            return flits
        bad = set(zip(*(events[struck][name].tolist() for name in ("cycle", "node", "port")),
                      strict=True))
        taken = flits.copy()
        for place in np.flatnonzero(flits).tolist():
            record = events[place]
            port = int(record["node"]), int(record["port"])
            whole = (int(record["cycle"]), *port) not in bad
            if self._scene.reliable:
                number = int(record["value"]) >> self._shift & self._mask
                whole &= number == self._next.get(port, number)
                if whole:
                    self._next[port] = number + 1 & self._mask
            taken[place] = whole
        return taken

    def restart(self, node: int, port: int) -> None:
        """The link begins anew."""
        self._next.pop((node, port), None)
