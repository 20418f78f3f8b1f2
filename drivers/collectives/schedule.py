"""Schedules: what every member of a group does, as typed steps.

A schedule names members by *position* in the group and bytes by elements of one buffer that each
member has; cards, addresses, counter numbers and packet totals come with compilation. A member's
steps form one list that runs in order: a step starts when those before it have started and its
waits are over. It need not wait for those before it to *end*; :class:`Done` does.

Waits count arrivals: ``Wait("data", 3)`` ends when the first three steps that notify this member's
counter ``"data"`` have arrived, payload in memory. With several senders only "all of them" has a
meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["Done", "Region", "Schedule", "Send", "Signal", "Step", "Wait"]


@dataclass(frozen=True)
class Region:
    """``count`` elements of a member's buffer, from ``start`` on."""

    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    def split(self, parts: int, granule: int = 1) -> list[Region]:
        """Cut into ``parts`` consecutive regions whose sizes are as equal as whole granules allow;
        some may be empty, and the last one takes what is no whole granule."""
        granules, rest = divmod(self.count, granule)
        base, more = divmod(granules, parts)
        regions, start = [], self.start
        for part in range(parts):
            count = (base + (part < more)) * granule + (rest if part == parts - 1 else 0)
            regions.append(Region(start, count))
            start += count
        return regions

    def __str__(self) -> str:
        return f"[{self.start}:{self.end}]"


@dataclass(frozen=True)
class Wait:
    """Until ``sends`` steps that notify this member's ``counter`` have arrived."""

    counter: str
    sends: int

    def __str__(self) -> str:
        return f"{self.counter}≥{self.sends}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """What all steps have: waits that must be over before it starts."""

    waits: tuple[Wait, ...] = ()

    def _after(self) -> str:
        return f" after {', '.join(map(str, self.waits))}" if self.waits else ""


@dataclass(frozen=True, kw_only=True)
class Send(Step):
    """Write ``source`` of the own buffer to ``target`` of the peer's, or add it there if
    ``reduce``; then count an arrival at the peer's counter ``notify``."""

    peer: int
    source: Region
    target: Region
    notify: str
    reduce: bool = False

    def __str__(self) -> str:
        verb = "reduce" if self.reduce else "write"
        return f"{verb} {self.source} to {self.target} of {self.peer}{self._after()}"


@dataclass(frozen=True, kw_only=True)
class Signal(Step):
    """Count an arrival at the peer's counter ``notify``; move nothing."""

    peer: int
    notify: str

    def __str__(self) -> str:
        return f"signal {self.notify} of {self.peer}{self._after()}"


@dataclass(frozen=True, kw_only=True)
class Done(Step):
    """The end of a member's list: all its reads have ended, and its host is told."""

    def __str__(self) -> str:
        return f"done{self._after()}"


@dataclass(frozen=True)
class Schedule:
    """A whole collective.

    Attributes
    ----------
    name : str
        For messages.
    count : int
        Elements of each member's buffer.
    lists : tuple
        Steps of each member; the last step of each is :class:`Done`.
    goal : tuple
        Of each member: regions and whose contributions they hold at the end, each exactly once.
    """

    name: str
    count: int
    lists: tuple[tuple[Step, ...], ...]
    goal: tuple[tuple[tuple[Region, frozenset[int]], ...], ...] = field(repr=False)

    @property
    def members(self) -> int:
        return len(self.lists)

    def describe(self, position: int, index: int) -> str:
        """Name a step for messages."""
        return f"step {index} of member {position} ({self.lists[position][index]})"

    @cached_property
    def arrivals(self) -> dict[tuple[int, str], tuple[tuple[int, int], ...]]:
        """Steps (position, index) that notify each (member, counter), sender by sender in the
        order of their lists."""
        found: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for position, index, step in self.steps():
            if isinstance(step, (Send, Signal)):
                found.setdefault((step.peer, step.notify), []).append((position, index))
        return {key: tuple(steps) for key, steps in found.items()}

    def steps(self) -> Iterator[tuple[int, int, Step]]:
        """All steps, list by list."""
        for position, steps in enumerate(self.lists):
            for index, step in enumerate(steps):
                yield position, index, step

    def run_order(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """One order in which the steps can run, each arriving at once, and the steps at which
        lists are stuck (none if the schedule comes to its end)."""
        order: list[tuple[int, int]] = []
        arrived: dict[tuple[int, str], int] = {}
        nexts = [0] * self.members
        waiting: dict[tuple[int, str], set[int]] = {}
        ready = list(range(self.members))
        while ready:
            position = ready.pop()
            while nexts[position] < len(self.lists[position]):
                step = self.lists[position][nexts[position]]
                short = next(((position, wait.counter) for wait in step.waits
                              if arrived.get((position, wait.counter), 0) < wait.sends), None)
                if short is not None:
                    waiting.setdefault(short, set()).add(position)
                    break
                order.append((position, nexts[position]))
                nexts[position] += 1
                if isinstance(step, (Send, Signal)):
                    key = (step.peer, step.notify)
                    arrived[key] = arrived.get(key, 0) + 1
                    ready += waiting.pop(key, ())
        return order, [(position, index) for position, index in enumerate(nexts)
                       if index < len(self.lists[position])]
