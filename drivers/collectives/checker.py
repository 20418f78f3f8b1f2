"""The proof that a schedule computes what it promises, whatever the machine's timing.

Checked in this order, and refused with the steps named:

1. Every list ends with its only :class:`Done`, regions lie in their buffers, inputs are read only.
2. Counters: a wait that does not name all arrivals of a counter needs one channel, whose order
   numbers them.
3. The lists come to their end.
4. Nothing touches a peer's buffer before something that the peer's own list has sent was awaited.
5. No two steps race: of two accesses to one element, unless both read, one ends before the other
   starts.
6. Every region of the goal holds each contribution exactly once, and nothing is taken from where
   nobody has put anything.
7. A member that is done has received all that was sent to it, and after a barrier everyone's list
   has begun.

Time is a partial order, kept as vector clocks: a step starts after the steps before it in its list
and after the arrivals it waits for; an arrival comes after the start of its step. Arrivals from one
member at another on one rail, a *channel*, come in the order of the sender's list, on deterministic
routes; other arrivals have no order. A rail reads its memory in the order of the list, so that what
a step gives away has been read once any later step of the list on that rail has arrived anywhere.
The clock of a step says, for each channel, how many arrivals are over when it starts, and, for each
member, how far its list had begun and, rail by rail, up to where it has been read.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

import numpy as np

from .schedule import Done, Schedule, Send, Signal, Step
from .task import Buffer, Collective, Goal, Region

__all__ = ["LARGEST", "ScheduleError", "check"]

#: Most members of a schedule: the clocks of a proof grow with the square of the group, and faster.
LARGEST = 256

_Place = tuple[int, int]
#: A buffer of a member.
_Bytes = tuple[int, Buffer]
#: Sender, receiver and rail: arrivals of one are in order.
_Channel = tuple[int, int, int]


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
    if schedule.members > LARGEST:
        raise ScheduleError(f"{schedule.name}: schedules of more than {LARGEST} members take too "
                            f"long to prove")
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
            if not 0 <= step.peer < schedule.members:
                raise ScheduleError(f"{schedule.name}: {name} has no peer {step.peer}")
            if isinstance(step, Send):
                _check_regions(schedule, name, position, step)


def _check_regions(schedule: Schedule, name: str, position: int, step: Send) -> None:
    for member, region in ((position, step.source), (step.peer, step.target),
                           (step.peer, step.addend)):
        if region is None:
            continue
        if not 0 <= region.start < region.end <= schedule.size(member, region.buffer):
            raise ScheduleError(f"{schedule.name}: {name} has a region that is empty or not in the "
                                f"buffer")
        if region.count != step.source.count:
            raise ScheduleError(f"{schedule.name}: {name} has regions of different sizes")
    if ((step.addend and step.addend != step.target and _overlap(step.addend, step.target))
            or (step.peer == position and _overlap(step.source, step.target))):
        raise ScheduleError(f"{schedule.name}: {name} has regions that overlap")
    if step.target.buffer is Buffer.INPUT:
        raise ScheduleError(f"{schedule.name}: {name} writes to an input")
    if step.addend and not schedule.task.kind.reduces:
        raise ScheduleError(f"{schedule.name}: {name} adds in a collective that does not")


def _overlap(first: Region, second: Region) -> bool:
    return first.buffer is second.buffer and first.start < second.end and second.start < first.end


def _check_counters(schedule: Schedule) -> None:
    for position, index, step in schedule.steps():
        for wait in step.waits:
            arrivals = schedule.arrivals.get((position, wait.counter), ())
            if not 0 < wait.sends <= len(arrivals):
                raise ScheduleError(
                    f"{schedule.name}: {schedule.describe(position, index)} waits for {wait.sends} "
                    f"arrivals at a counter that gets {len(arrivals)}")
            senders = {_channel(schedule, place) for place in arrivals}
            if len(senders) > 1 and wait.sends < len(arrivals):
                first = next(place for place in arrivals if _channel(schedule, place)
                             != _channel(schedule, arrivals[0]))
                raise ScheduleError(
                    f"{schedule.name}: {schedule.describe(position, index)} waits for some of the "
                    f"arrivals at a counter that {schedule.describe(*arrivals[0])} shares with "
                    f"{schedule.describe(*first)}, and their order is open")


def _channel(schedule: Schedule, place: _Place) -> _Channel:
    step = schedule.lists[place[0]][place[1]]
    assert isinstance(step, (Send, Signal))
    return place[0], step.peer, step.rail


class _Clocks:
    """Vector clocks of all steps."""

    def __init__(self, schedule: Schedule, order: list[_Place]) -> None:
        #: Number of each channel, and each step's number within its channel.
        self.channels: dict[_Channel, int] = {}
        self.number: dict[_Place, int] = {}
        #: Steps of each channel.
        self.sent: dict[_Channel, int] = {}
        for position, index, step in schedule.steps():
            if isinstance(step, (Send, Signal)):
                channel = (position, step.peer, step.rail)
                self.channels.setdefault(channel, len(self.channels))
                self.number[position, index] = self.sent.get(channel, 0)
                self.sent[channel] = self.sent.get(channel, 0) + 1
        self._schedule = schedule
        #: Each rail of each member that sends, after the channels and the members.
        self._rails = {rail: len(self.channels) + schedule.members + number for number, rail in
                       enumerate(dict.fromkeys((sender, rail) for sender, _, rail in self.sent))}
        width = len(self.channels) + schedule.members + len(self._rails)
        latest = [np.zeros(width, np.int32) for _ in schedule.lists]
        self._start: dict[_Place, np.ndarray] = {}
        for position, index in order:
            clock = latest[position].copy()
            for wait in schedule.lists[position][index].waits:
                arrivals = schedule.arrivals[position, wait.counter][:wait.sends]
                for place in arrivals if wait.sends == len(arrivals) else arrivals[-1:]:
                    np.maximum(clock, self._start[place], out=clock)
                    number = self.channels[self.channel(place)]
                    clock[number] = max(clock[number], self.number[place] + 1)
                    rail = self._rail(place)
                    clock[rail] = max(clock[rail], place[1] + 1)
            clock[len(self.channels) + position] = index + 1
            self._start[position, index] = latest[position] = clock

    def arrived(self, first: _Place, second: _Place) -> bool:
        """Whether ``first`` has arrived when ``second`` starts."""
        number = self.channels[self.channel(first)]
        return bool(self._start[second][number] > self.number[first])

    def read(self, first: _Place, second: _Place) -> bool:
        """Whether what ``first`` gives away has been read when ``second`` starts."""
        return bool(self._start[second][self._rail(first)] > first[1])

    def follows(self, first: _Place, second: _Place) -> bool:
        """Whether ``second`` comes after ``first`` in a list, or is it, on one rail."""
        return self._rail(first) == self._rail(second) and first[1] <= second[1]

    def _rail(self, place: _Place) -> int:
        sender, _, rail = self.channel(place)
        return self._rails[sender, rail]

    def begun(self, member: int, place: _Place) -> bool:
        """Whether the step at ``place`` starts after something sent by ``member``'s list."""
        return bool(self._start[place][len(self.channels) + member] > 0)

    def received(self, place: _Place, channel: _Channel) -> int:
        """Arrivals on ``channel`` that are over when the step at ``place`` starts."""
        return int(self._start[place][self.channels[channel]])

    def channel(self, place: _Place) -> _Channel:
        """That of the step at ``place``."""
        return _channel(self._schedule, place)


class _Segments:
    """The buffers of each member cut so that every region of the schedule is a run of whole
    segments, which are numbered through all buffers of a member."""

    def __init__(self, schedule: Schedule) -> None:
        cuts: dict[_Bytes, set[int]] = {}
        self._first: dict[_Bytes, int] = {}
        self.counts = []
        for member in range(schedule.members):
            for buffer in Buffer:
                cuts[member, buffer] = {0, schedule.size(member, buffer)}
        #: Of each buffer the regions that data comes from, or goes to: (start, end, other buffer,
        #: shift).
        moves: dict[_Bytes, list[tuple[int, int, _Bytes, int]]] = {}
        for position, _, step in schedule.steps():
            if not isinstance(step, Send):
                continue
            source, target = (position, step.source.buffer), (step.peer, step.target.buffer)
            cuts[source] |= {step.source.start, step.source.end}
            cuts[target] |= {step.target.start, step.target.end}
            _link(moves, source, target, step.source, step.target)
            if step.addend:
                addend = (step.peer, step.addend.buffer)
                cuts[addend] |= {step.addend.start, step.addend.end}
                _link(moves, addend, target, step.addend, step.target)
        for member, goals in enumerate(schedule.task.goal):
            entry = schedule.task.input(member)
            cuts[member, entry.buffer] |= {entry.start, entry.end}
            for goal in goals:
                cuts[member, goal.region.buffer] |= {goal.region.start, goal.region.end}
        # A cut in a source is one in its target, and the other way round.
        fresh = [(place, cut) for place, known in cuts.items() for cut in known]
        while fresh:
            place, cut = fresh.pop()
            for start, end, other, shift in moves.get(place, ()):
                if start < cut < end and cut + shift not in cuts[other]:
                    cuts[other].add(cut + shift)
                    fresh.append((other, cut + shift))
        self._cuts = {place: sorted(known) for place, known in cuts.items()}
        for member in range(schedule.members):
            number = 0
            for buffer in Buffer:
                self._first[member, buffer] = number
                number += len(self._cuts[member, buffer]) - 1
            self.counts.append(number)

    def of(self, member: int, region: Region) -> range:
        """Segments of a region."""
        place = (member, region.buffer)
        cuts, first = self._cuts[place], self._first[place]
        return range(first + bisect_left(cuts, region.start), first + bisect_left(cuts, region.end))

    def region(self, member: int, segment: int) -> Region:
        """The elements of a segment."""
        buffer = max((buffer for buffer in Buffer if self._first[member, buffer] <= segment),
                     key=lambda buffer: (self._first[member, buffer],
                                         len(self._cuts[member, buffer])))
        cuts, place = self._cuts[member, buffer], segment - self._first[member, buffer]
        return Region(cuts[place], cuts[place + 1] - cuts[place], buffer)


def _link(moves: dict[_Bytes, list[tuple[int, int, _Bytes, int]]], first: _Bytes, second: _Bytes,
          source: Region, target: Region) -> None:
    shift = target.start - source.start
    if first != second or shift:
        moves.setdefault(first, []).append((source.start, source.end, second, shift))
        moves.setdefault(second, []).append((target.start, target.end, first, -shift))


def _check_ready(schedule: Schedule, clocks: _Clocks) -> None:
    for position, index, step in schedule.steps():
        if isinstance(step, Send) and not clocks.begun(step.peer, (position, index)):
            raise ScheduleError(f"{schedule.name}: {schedule.describe(position, index)} touches "
                                f"the buffer of {step.peer}, which has not signalled that it is "
                                f"ready")


def _check_races(schedule: Schedule, order: list[_Place], clocks: _Clocks,
                 segments: _Segments) -> None:
    # Accesses of each (member, segment), in one order that can happen: place of the step, whether
    # it writes, and whether it is the arrival that does it, at the target.
    accesses: dict[tuple[int, int], list[tuple[_Place, bool, bool]]] = {}
    turn = {place: number for number, place in enumerate(order)}
    for position, index in order:
        step = schedule.lists[position][index]
        if isinstance(step, Send):
            for member, region, writes, remote in (
                    (position, step.source, False, False), (step.peer, step.addend, False, True),
                    (step.peer, step.target, True, True)):
                if region is None or (region == step.target and not writes and remote):
                    continue
                for segment in segments.of(member, region):
                    accesses.setdefault((member, segment), []).append(
                        ((position, index), writes, remote))
    def over(first: _Place, remote: bool, second: _Place) -> bool:
        """Whether an access of ``first`` is over when ``second`` starts."""
        return clocks.arrived(first, second) if remote else clocks.read(first, second)

    races = [(first, second, key) for key, found in accesses.items()
             for number, (second, second_writes, second_remote) in enumerate(found)
             for first, first_writes, first_remote in found[:number]
             if (first_writes or second_writes) and first != second
             # What one sender's packets do at one receiver is done in their order, and after what
             # they bring, and all before it, has been read.
             and not (first_remote and second_remote
                      and clocks.channel(first) == clocks.channel(second))
             and not (second_remote and not first_remote and clocks.follows(first, second))
             and not (first_remote and not second_remote and clocks.follows(second, first))
             and not over(first, first_remote, second) and not over(second, second_remote, first)]
    if races:  # one missing wait lets many steps race: name the earliest
        first, second, (member, segment) = min(races, key=lambda race: turn[race[1]])
        raise ScheduleError(f"{schedule.name}: {schedule.describe(*first)} and "
                            f"{schedule.describe(*second)} race for "
                            f"{segments.region(member, segment)} of member {member}")


#: What a segment holds: of each start in the members' inputs, whose contributions from there on, as
#: a bitmap; ``None`` for nothing that anybody knows.
_Held = dict[int, int]


def _check_goal(schedule: Schedule, order: list[_Place], segments: _Segments) -> None:
    held: list[list[_Held | None]] = [[None] * count for count in segments.counts]
    for member in range(schedule.members):
        entry = schedule.task.input(member)
        for segment in segments.of(member, entry):
            start = segments.region(member, segment).start - entry.start
            held[member][segment] = {start: 1 << member}
    for position, index in order:
        step: Step = schedule.lists[position][index]
        if not isinstance(step, Send):
            continue
        sources = segments.of(position, step.source)
        targets = segments.of(step.peer, step.target)
        addends = segments.of(step.peer, step.addend) if step.addend else targets
        for source, target, addend in zip(sources, targets, addends, strict=True):
            value = held[position][source]
            other = held[step.peer][addend] if step.addend else {}
            if value is None or other is None:
                owner, empty = (position, source) if value is None else (step.peer, addend)
                raise ScheduleError(
                    f"{schedule.name}: {schedule.describe(position, index)} takes what nobody has "
                    f"written to {segments.region(owner, empty)} of member {owner}")
            held[step.peer][target] = _joined(schedule, (position, index), value, other)
    for member, goals in enumerate(schedule.task.goal):
        for goal in goals:
            _check_held(schedule, member, goal, held[member], segments)


def _joined(schedule: Schedule, place: _Place, value: _Held, other: _Held) -> _Held:
    """The sum of what two segments hold."""
    if not other:
        return value
    joined = dict(other)
    for start, members in value.items():
        if twice := members & joined.get(start, 0):
            raise ScheduleError(f"{schedule.name}: {schedule.describe(*place)} adds the "
                                f"contributions of {_members(twice)} a second time")
        joined[start] = joined.get(start, 0) | members
    return joined


def _check_held(schedule: Schedule, member: int, goal: Goal, held: list[_Held | None],
                segments: _Segments) -> None:
    wanted: _Held = {}
    for contributor, start in goal.terms:
        wanted[start] = wanted.get(start, 0) | 1 << contributor
    for segment in segments.of(member, goal.region):
        region = segments.region(member, segment)
        shift = region.start - goal.region.start
        if held[segment] != {start + shift: members for start, members in wanted.items()}:
            raise ScheduleError(
                f"{schedule.name}: {region} of member {member} ends with the contributions of "
                f"{_terms(held[segment])} instead of "
                f"{_terms({start + shift: members for start, members in wanted.items()})}")


def _check_done(schedule: Schedule, clocks: _Clocks) -> None:
    ends = [(member, len(steps) - 1) for member, steps in enumerate(schedule.lists)]
    for channel, sent in clocks.sent.items():
        end = ends[channel[1]]
        received = clocks.received(end, channel)
        if received < sent:
            late = next(place for place, number in clocks.number.items()
                        if number == received and clocks.channel(place) == channel)
            raise ScheduleError(f"{schedule.name}: {schedule.describe(*end)} does not wait for "
                                f"{schedule.describe(*late)}")
    if schedule.task.kind is Collective.BARRIER:
        for end in ends:
            for member in range(schedule.members):
                if not clocks.begun(member, end):
                    raise ScheduleError(f"{schedule.name}: {schedule.describe(*end)} does not wait "
                                        f"for member {member}")


def _members(mask: int) -> str:
    return ", ".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1) or "nobody"


def _terms(held: _Held | None) -> str:
    if not held:
        return "nobody"
    return " and ".join(f"{_members(members)} from {start} on"
                        for start, members in sorted(held.items()))
