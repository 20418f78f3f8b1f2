"""What an operation holds on cards until it has ended without error: counters and memory.

Plain data, and not a function that gives things back, so that a machine can be saved while
operations are under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Lease"]

COUNTER, MEMORY = "counter", "memory"


class Lease:
    """Used as a context, it gives everything back if its block raises.

    Attributes
    ----------
    held : list
        (card, ``"counter"`` or ``"memory"``, counter or offset), in the order of taking.
    """

    def __init__(self, devices: Sequence[Device],
                 held: Iterable[tuple[int, str, int]] = ()) -> None:
        self._devices = devices
        self.held = list(held)

    def counter(self, card: int) -> int:
        """Take a counter of a card; see :meth:`~drivers.counters.CounterPool.allocate`."""
        return self._note(card, COUNTER, self._devices[card].counters.allocate())

    def counters(self, card: int, count: int) -> list[int]:
        """Take several; see :meth:`~drivers.counters.CounterPool.allocate_many`."""
        return [self._note(card, COUNTER, counter)
                for counter in self._devices[card].counters.allocate_many(count)]

    def memory(self, card: int, size: int) -> int:
        """Take memory of a card; see :meth:`~drivers.memory.Allocator.allocate`."""
        return self._note(card, MEMORY, self._devices[card].memory.allocate(size))

    def release(self) -> None:
        """Give everything back, what was taken last first."""
        while self.held:
            card, kind, place = self.held.pop()
            device = self._devices[card]
            if kind == COUNTER:
                device.counters.release(place)
            else:
                device.memory.free(place)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is not None:
            self.release()

    def _note(self, card: int, kind: str, place: int) -> int:
        self.held.append((card, kind, place))
        return place
