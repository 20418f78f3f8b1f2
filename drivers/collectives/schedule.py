"""Schedules: what every member of a group does, as typed steps.

A schedule names members by their rank in the group and bytes by elements of the members' buffers;
cards, addresses, counter numbers and packet totals come with compilation. A member's steps form one
list that runs in order: a step starts when those before it have started and its waits are over. It
need not wait for those before it to *end*; :class:`Done` does.

Waits count arrivals: ``Wait("data", 3)`` ends when the first three steps that notify this member's
counter ``"data"`` have arrived, payload in memory. With several senders only "all of them" has a
meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .task import Buffer, Region, Task

__all__ = ["Done", "Region", "Schedule", "Send", "Signal", "Step", "Wait"]


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
    """Write ``source`` of the own buffers to ``target`` of the peer's, who may be the member
    itself; then count an arrival at the peer's counter ``notify``.

    With an ``addend``, a region of the peer's buffers, what is written is its sum with ``source``;
    it may be ``target`` itself. ``rail`` is the rail that sends and receives.
    """

    peer: int
    source: Region
    target: Region
    notify: str
    addend: Region | None = None
    rail: int = 0

    def __str__(self) -> str:
        verb = f"write {self.source}"
        if self.addend == self.target:
            verb = f"add {self.source}"
        elif self.addend:
            verb = f"write {self.source} + {self.addend}"
        return f"{verb} to {self.target} of {self.peer}{self._after()}"


@dataclass(frozen=True, kw_only=True)
class Signal(Step):
    """Count an arrival at the peer's counter ``notify``; move nothing."""

    peer: int
    notify: str
    rail: int = 0

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
    task : Task
        What it is to do.
    lists : tuple
        Steps of each member; the last step of each is :class:`Done`.
    scratch : tuple of int
        Elements of scratch that each member needs.
    """

    name: str
    task: Task
    lists: tuple[tuple[Step, ...], ...]
    scratch: tuple[int, ...]

    @property
    def members(self) -> int:
        return len(self.lists)

    def size(self, member: int, buffer: Buffer) -> int:
        """Elements of one of a member's buffers: 0 if it has none."""
        if buffer is Buffer.SCRATCH:
            return self.scratch[member]
        return self.task.size(member, buffer)

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
