"""Synchronisation counters of one card, as the host keeps them: which are in use, and the total
each will have once everything under way has arrived.

Totals only grow and are never reset, so a counter that is handed out again starts from what its
last users left, known without asking the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CounterPool", "OutOfCountersError", "TOTAL_MASK"]

#: Totals are modulo 2^32.
TOTAL_MASK = 0xFFFF_FFFF


class OutOfCountersError(RuntimeError):
    """All counters of a card are in use by operations that have not ended."""


class CounterPool:
    """Counters ``0`` … ``count`` − 1 of the card called ``name``."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._totals = [0] * count
        self._free = list(reversed(range(count)))

    @property
    def free(self) -> int:
        """Counters that are not in use."""
        return len(self._free)

    def allocate(self) -> int:
        """Return the number of a counter that nothing else uses.

        Raises
        ------
        OutOfCountersError
            If there is none.
        """
        if not self._free:
            raise OutOfCountersError(f"{self._name} has no counter left: all {len(self._totals)} "
                                     f"belong to operations that have not ended")
        return self._free.pop()

    def allocate_many(self, count: int) -> list[int]:
        """Numbers of ``count`` counters that nothing else uses.

        Raises
        ------
        OutOfCountersError
            If there are not so many; none is taken then.
        """
        if count > len(self._free):
            raise OutOfCountersError(f"{self._name} has no {count} counters left: it has "
                                     f"{len(self._totals)}, and {len(self._free)} belong to no "
                                     f"operation")
        return [self._free.pop() for _ in range(count)]

    def total(self, counter: int) -> int:
        """Total once all that is expected has arrived."""
        return self._totals[counter]

    def expect(self, counter: int, packets: int) -> None:
        """Add what an operation will send to ``counter``."""
        self._totals[counter] = (self._totals[counter] + packets) & TOTAL_MASK

    def release(self, counter: int) -> None:
        """Take back a counter at which everything expected has arrived.

        A counter of a failed operation is not given back: its total is unknown.
        """
        self._free.append(counter)

    def to_state(self) -> dict[str, Any]:
        """Totals and which are free, as plain data."""
        return {"totals": list(self._totals), "free": list(self._free)}

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Be as the pool was whose :meth:`to_state` this is."""
        self._totals, self._free = list(state["totals"]), list(state["free"])
