"""The proof that a schedule computes what it promises, whatever the machine's timing.

Checked in this order, and refused with the steps named:

1. Every list ends with its only :class:`Done`, regions lie in the buffer, nobody sends to itself.
2. Counters: a wait that does not name all arrivals of a counter needs one sender, whose order
   numbers them.
3. The lists come to their end.
4. Nothing touches a peer's buffer before something that the peer's own list has sent was awaited.
5. No two steps race: of two accesses to one element, unless both read, one ends before the other
   starts.
6. Every region of the goal holds each contribution exactly once.
7. A member that is done has received all that was sent to it.

Time is a partial order, kept as vector clocks: a step starts after the steps before it in its list
and after the arrivals it waits for; an arrival comes after the start of its step. Arrivals from one
member at another come in the order of the sender's list, on one rail and deterministic routes;
other arrivals have no order. The clock of a step says, for each pair of members, how many arrivals
are over when it starts, and, for each member, how far its list had begun.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

import numpy as np

from .schedule import Done, Schedule, Send, Signal, Step

__all__ = ["ScheduleError", "check"]

_Place = tuple[int, int]


class ScheduleError(ValueError):
    """A schedule that could deadlock, race or miscompute; the message names the steps."""


@lru_cache(maxsize=64)
def check(schedule: Schedule) -> None:
    """Prove ``schedule``.

    Raises
    ------
    ScheduleError
        If it cannot be proved.
    """
    _check_form(schedule)
    _check_counters(schedule)
    order, stuck = schedule.run_order()
    if stuck:
        raise ScheduleError(f"{schedule.name} does not end: " + "; ".join(
            f"{schedule.describe(*place)} waits forever" for place in stuck))
    clocks = _Clocks(schedule, order)
    _check_ready(schedule, clocks)
    segments = _Segments(schedule)
    _check_races(schedule, order, clocks, segments)
    _check_goal(schedule, order, segments)
    _check_done(schedule, clocks)


def _check_form(schedule: Schedule) -> None:
    for position, steps in enumerate(schedule.lists):
        if not steps or not isinstance(steps[-1], Done):
            raise ScheduleError(f"{schedule.name}: the list of member {position} does not end with "
                                f"a done step")
        for index, step in enumerate(steps):
            name = schedule.describe(position, index)
            if isinstance(step, Done) and index != len(steps) - 1:
                raise ScheduleError(f"{schedule.name}: {name} is not the last of its list")
            if not isinstance(step, (Send, Signal)):
                continue
            if not 0 <= step.peer < schedule.members or step.peer == position:
                raise ScheduleError(f"{schedule.name}: {name} has no peer {step.peer}")
            if isinstance(step, Send):
                for region in (step.source, step.target):
                    if not 0 <= region.start < region.end <= schedule.count:
                        raise ScheduleError(f"{schedule.name}: {name} has a region that is empty "
                                            f"or not in the buffer")
                if step.source.count != step.target.count:
                    raise ScheduleError(f"{schedule.name}: {name} has regions of different sizes")


def _check_counters(schedule: Schedule) -> None:
    for position, index, step in schedule.steps():
        for wait in step.waits:
            arrivals = schedule.arrivals.get((position, wait.counter), ())
            if not 0 < wait.sends <= len(arrivals):
                raise ScheduleError(
                    f"{schedule.name}: {schedule.describe(position, index)} waits for {wait.sends} "
                    f"arrivals at a counter that gets {len(arrivals)}")
            senders = {sender for sender, _ in arrivals}
            if len(senders) > 1 and wait.sends < len(arrivals):
                first = next(place for place in arrivals if place[0] != arrivals[0][0])
                raise ScheduleError(
                    f"{schedule.name}: {schedule.describe(position, index)} waits for some of the "
                    f"arrivals at a counter that {schedule.describe(*arrivals[0])} shares with "
                    f"{schedule.describe(*first)}, and their order is open")


class _Clocks:
    """Vector clocks of all steps."""

    def __init__(self, schedule: Schedule, order: list[_Place]) -> None:
        #: Number of each pair (sender, receiver), and each step's number within its pair.
        self.channels: dict[tuple[int, int], int] = {}
        self.number: dict[_Place, int] = {}
        sent: dict[tuple[int, int], int] = {}
        for position, index, step in schedule.steps():
            if isinstance(step, (Send, Signal)):
                pair = (position, step.peer)
                self.channels.setdefault(pair, len(self.channels))
                self.number[position, index] = sent.get(pair, 0)
                sent[pair] = sent.get(pair, 0) + 1
        self.sent = sent
        self._schedule = schedule
        width = len(self.channels) + schedule.members
        latest = [np.zeros(width, np.int32) for _ in schedule.lists]
        self._start: dict[_Place, np.ndarray] = {}
        for position, index in order:
            clock = latest[position].copy()
            for wait in schedule.lists[position][index].waits:
                arrivals = schedule.arrivals[position, wait.counter][:wait.sends]
                for place in arrivals if wait.sends == len(arrivals) else arrivals[-1:]:
                    pair = (place[0], position)
                    np.maximum(clock, self._start[place], out=clock)
                    channel = self.channels[pair]
                    clock[channel] = max(clock[channel], self.number[place] + 1)
            clock[len(self.channels) + position] = index + 1
            self._start[position, index] = latest[position] = clock

    def arrived(self, first: _Place, second: _Place) -> bool:
        """Whether ``first`` has arrived when ``second`` starts."""
        channel = self.channels[self.pair(first)]
        return bool(self._start[second][channel] > self.number[first])

    def begun(self, member: int, place: _Place) -> bool:
        """Whether the step at ``place`` starts after something sent by ``member``'s list."""
        return bool(self._start[place][len(self.channels) + member] > 0)

    def received(self, place: _Place, sender: int) -> int:
        """Arrivals from ``sender`` that are over when the step at ``place`` starts."""
        channel = self.channels.get((sender, place[0]))
        return 0 if channel is None else int(self._start[place][channel])

    def pair(self, place: _Place) -> tuple[int, int]:
        """Sender and receiver of the step at ``place``."""
        step = self._schedule.lists[place[0]][place[1]]
        assert isinstance(step, (Send, Signal))
        return place[0], step.peer


class _Segments:
    """The buffer cut so that every region of the schedule is a run of whole segments."""

    def __init__(self, schedule: Schedule) -> None:
        cuts = {0, schedule.count}
        sends = [step for _, _, step in schedule.steps() if isinstance(step, Send)]
        for step in sends:
            cuts |= {step.source.start, step.source.end, step.target.start, step.target.end}
        for goals in schedule.goal:
            for region, _ in goals:
                cuts |= {region.start, region.end}
        shifts = {(step.source.start, step.source.end, step.target.start - step.source.start)
                  for step in sends if step.source != step.target}
        while True:  # a cut in a source is one in its target, and the other way round
            more = {cut + shift for start, end, shift in shifts
                    for cut in cuts if start < cut < end}
            more |= {cut - shift for start, end, shift in shifts
                     for cut in cuts if start + shift < cut < end + shift}
            if more <= cuts:
                break
            cuts |= more
        self._cuts = sorted(cuts)

    def __len__(self) -> int:
        return len(self._cuts) - 1

    def of(self, start: int, end: int) -> range:
        return range(bisect_left(self._cuts, start), bisect_left(self._cuts, end))

    def name(self, segment: int) -> str:
        return f"[{self._cuts[segment]}:{self._cuts[segment + 1]}]"


def _check_ready(schedule: Schedule, clocks: _Clocks) -> None:
    for position, index, step in schedule.steps():
        if isinstance(step, Send) and not clocks.begun(step.peer, (position, index)):
            raise ScheduleError(f"{schedule.name}: {schedule.describe(position, index)} touches "
                                f"the buffer of {step.peer}, which has not signalled that it is "
                                f"ready")


def _check_races(schedule: Schedule, order: list[_Place], clocks: _Clocks,
                 segments: _Segments) -> None:
    # Accesses of each (member, segment), in one order that can happen: place of the step, and
    # whether it writes.
    accesses: dict[tuple[int, int], list[tuple[_Place, bool]]] = {}
    turn = {place: number for number, place in enumerate(order)}
    for position, index in order:
        step = schedule.lists[position][index]
        if isinstance(step, Send):
            for segment in segments.of(step.source.start, step.source.end):
                accesses.setdefault((position, segment), []).append(((position, index), False))
            for segment in segments.of(step.target.start, step.target.end):
                accesses.setdefault((step.peer, segment), []).append(((position, index), True))
    races = [(first, second, key) for key, found in accesses.items()
             for number, (second, second_writes) in enumerate(found)
             for first, first_writes in found[:number]
             if (first_writes or second_writes)
             # Writes of one sender to one receiver arrive in order.
             and not (first_writes and second_writes and first[0] == second[0])
             and not clocks.arrived(first, second) and not clocks.arrived(second, first)]
    if races:  # one missing wait lets many steps race: name the earliest
        first, second, (member, segment) = min(races, key=lambda race: turn[race[1]])
        raise ScheduleError(f"{schedule.name}: {schedule.describe(*first)} and "
                            f"{schedule.describe(*second)} race for {segments.name(segment)} of "
                            f"member {member}")


def _check_goal(schedule: Schedule, order: list[_Place], segments: _Segments) -> None:
    # Contributions in each member's segments, as bitmaps.
    held = [[1 << member] * len(segments) for member in range(schedule.members)]
    for position, index in order:
        step: Step = schedule.lists[position][index]
        if not isinstance(step, Send):
            continue
        for source, target in zip(segments.of(step.source.start, step.source.end),
                                  segments.of(step.target.start, step.target.end), strict=True):
            new, old = held[position][source], held[step.peer][target]
            if step.reduce and new & old:
                raise ScheduleError(
                    f"{schedule.name}: {schedule.describe(position, index)} adds the contributions "
                    f"of {_members(new & old)} to {segments.name(target)} a second time")
            held[step.peer][target] = new | old if step.reduce else new
    for member, goals in enumerate(schedule.goal):
        for region, wanted in goals:
            mask = sum(1 << contributor for contributor in wanted)
            for segment in segments.of(region.start, region.end):
                if held[member][segment] != mask:
                    raise ScheduleError(
                        f"{schedule.name}: {segments.name(segment)} of member {member} ends with "
                        f"the contributions of {_members(held[member][segment])} instead of "
                        f"{_members(mask)}")


def _check_done(schedule: Schedule, clocks: _Clocks) -> None:
    for (sender, receiver), sent in clocks.sent.items():
        end = (receiver, len(schedule.lists[receiver]) - 1)
        received = clocks.received(end, sender)
        if received < sent:
            late = next(place for place, number in clocks.number.items()
                        if number == received and clocks.pair(place) == (sender, receiver))
            raise ScheduleError(f"{schedule.name}: {schedule.describe(*end)} does not wait for "
                                f"{schedule.describe(*late)}")


def _members(mask: int) -> str:
    return ", ".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1) or "nobody"
