"""Programs: schedules in which every member does the same, each relative to its own place.

The members of a group are numbered by *digits*, one per *stage*; a stage joins the members that
differ in its digit alone. A program is one list of moves for all of them: a move's peer is the
member whose digit of a stage is so much larger (modulo the stage's size), and its region is a chunk
of the slice that the member's own digits name. So a program of 8,192 members is as long as that of
two, its lists come out of numpy, and what holds for one chunk holds for all (see ``symmetry``).

*Regions.* The buffer is cut into slices. A slice has an order of the stages: it is cut into as many
chunks as its first stage has members, each of these into as many as the second has, and so on. The
last chunks, the *leaves*, number as many as there are members, and each member owns one.

*Empty chunks.* With few elements some chunks are empty. What would carry nothing is left out of the
list of that member, and nobody waits for it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from .schedule import Done, Schedule, Send, Signal, Step, Wait
from .task import Collective, Region, Task

__all__ = ["Kind", "Move", "Program", "Slice"]


class Kind(enum.Enum):
    """What a move does at the peer."""

    #: Counts an arrival, no more.
    SIGNAL = "signal"
    #: Adds the own chunk to the peer's.
    REDUCE = "reduce"
    #: Writes the own chunk over the peer's.
    WRITE = "write"


@dataclass(frozen=True)
class Slice:
    """A part of the buffer, with the order in which the stages cut it.

    Rings of a stage lead to the next higher digit, or to the next lower one if ``direction`` is −1.
    """

    region: Region
    stages: tuple[int, ...]
    direction: int = 1
    rail: int = 0


@dataclass(frozen=True, kw_only=True)
class Move:
    """One step of every member.

    Attributes
    ----------
    kind : Kind
    slice : int
    stage, step : int
        The peer's digit of ``stage`` is ``step`` above the own one.
    level, chunk : int
        Of a move with data: the chunk of the slice that is named by the own digits of the stages
        before ``level`` in the slice's order, and there by the own digit plus ``chunk``.
    counter : int
        Of the peer, at which it arrives.
    waits : tuple of int
        Moves, by their place in the program, whose arrival is awaited before this one starts.
    serves : tuple of int
        Of a signal: the moves of its peer that wait for it. It is left out where these are.
    """

    kind: Kind
    slice: int
    stage: int
    step: int
    level: int = 0
    chunk: int = 0
    counter: int = 0
    waits: tuple[int, ...] = ()
    serves: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A collective over ``members`` = product of ``factors`` members, in place.

    Attributes
    ----------
    name : str
        For messages.
    count : int
        Elements of each member's buffer.
    factors : tuple of int
        Sizes of the stages. The digit of stage 0 counts fastest in a member's position.
    granule : int
        Chunks are cut at multiples of so many elements, as far as they have them.
    slices : tuple of Slice
    moves : tuple of Move
        In the order of every member's list.
    """

    name: str
    count: int
    factors: tuple[int, ...]
    granule: int
    slices: tuple[Slice, ...]
    moves: tuple[Move, ...]

    @property
    def members(self) -> int:
        return prod(self.factors)

    @property
    def counters(self) -> int:
        """Counters that each member needs."""
        return 1 + max((move.counter for move in self.moves), default=-1)

    @cached_property
    def digits(self) -> np.ndarray:
        """Digit of each stage of each member: stages × members."""
        positions, digits = np.arange(self.members), []
        for factor in self.factors:
            digits.append(positions % factor)
            positions = positions // factor
        return np.array(digits, np.int32).reshape(len(self.factors), self.members)

    def shifted(self, stage: int, step: int) -> np.ndarray:
        """Of each member the one whose digit of ``stage`` is ``step`` above its own."""
        stride, factor = prod(self.factors[:stage]), self.factors[stage]
        digit = self.digits[stage]
        return np.arange(self.members) + stride * ((digit + step) % factor - digit)

    @cached_property
    def _leaves(self) -> list[np.ndarray]:
        """Of each slice: the starts of its leaves in their order, and its end."""
        bounds = []
        for part in self.slices:
            starts, counts = np.array([part.region.start]), np.array([part.region.count])
            for stage in part.stages:
                starts, counts = _split(starts, counts, self.factors[stage], self.granule)
            bounds.append(np.append(starts, part.region.end))
        return bounds

    def regions(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Start and number of elements of a move's chunk, for each member."""
        move = self.moves[place]
        stages = self.slices[move.slice].stages
        width = self.members
        leaf = np.zeros(self.members, np.int64)
        for level in range(move.level + 1):
            factor = self.factors[stages[level]]
            width //= factor
            digit = self.digits[stages[level]]
            leaf += width * ((digit + (move.chunk if level == move.level else 0)) % factor)
        bounds = self._leaves[move.slice]
        return bounds[leaf], bounds[leaf + width] - bounds[leaf]

    @cached_property
    def there(self) -> np.ndarray:
        """Whether a move is in a member's list: moves × members."""
        there = np.zeros((len(self.moves), self.members), bool)
        for place, move in enumerate(self.moves):
            if move.kind is not Kind.SIGNAL:
                there[place] = self.regions(place)[1] > 0
        for place, move in enumerate(self.moves):
            if move.kind is Kind.SIGNAL and move.serves:
                served = np.any(there[list(move.serves)], axis=0)
                there[place] = np.take(served, self.shifted(move.stage, move.step))
        return there

    @cached_property
    def arrivals(self) -> dict[int, list[int]]:
        """The moves that notify each counter, in their order."""
        found: dict[int, list[int]] = {}
        for place, move in enumerate(self.moves):
            found.setdefault(move.counter, []).append(place)
        return found

    @cached_property
    def numbers(self) -> np.ndarray:
        """Arrivals at the move's counter up to and with the move, at each member: moves ×
        members."""
        numbers = np.zeros((len(self.moves), self.members), np.int32)
        for places in self.arrivals.values():
            total = np.zeros(self.members, np.int32)
            for place in places:
                move = self.moves[place]
                total = total + self.there[place][self.shifted(move.stage, -move.step)]
                numbers[place] = total
        return numbers

    @property
    def last(self) -> tuple[int, ...]:
        """The last arrival at each counter: what a member waits for before it is done."""
        return tuple(places[-1] for places in self.arrivals.values())

    def describe(self, place: int) -> str:
        """Name a move for messages."""
        move = self.moves[place]
        after = f" after moves {', '.join(map(str, move.waits))}" if move.waits else ""
        what = "" if move.kind is Kind.SIGNAL else (
            f" of the chunk {move.chunk:+d} on level {move.level} of slice {move.slice}")
        return (f"move {place} ({move.kind.value}{what} to {move.step:+d} in stage {move.stage}"
                f"{after})")

    def expand(self) -> Schedule:
        """The same collective as lists of steps, for any number of members that is not large."""
        lists: list[list[Step]] = [[] for _ in range(self.members)]

        def waits(places: tuple[int, ...], member: int) -> tuple[Wait, ...]:
            return tuple(Wait(str(self.moves[place].counter), int(self.numbers[place, member]))
                         for place in places if self.numbers[place, member])

        for place, move in enumerate(self.moves):
            peers = self.shifted(move.stage, move.step)
            starts, counts = self.regions(place)
            for member in np.flatnonzero(self.there[place]).tolist():
                step: Step
                peer, after = int(peers[member]), waits(move.waits, member)
                if move.kind is Kind.SIGNAL:
                    step = Signal(peer=peer, notify=str(move.counter), waits=after)
                else:
                    region = Region(int(starts[member]), int(counts[member]))
                    step = Send(peer=peer, source=region, target=region, waits=after,
                                notify=str(move.counter),
                                addend=region if move.kind is Kind.REDUCE else None)
                lists[member].append(step)
        for member, steps in enumerate(lists):
            steps.append(Done(waits=waits(self.last, member)))
        task = Task(Collective.ALLREDUCE, self.members, (self.count,), in_place=True)
        return Schedule(self.name, task, tuple(map(tuple, lists)), (0,) * self.members)


def _split(starts: np.ndarray, counts: np.ndarray, parts: int,
           granule: int) -> tuple[np.ndarray, np.ndarray]:
    """:meth:`Region.split` of many regions at once."""
    granules, rest = np.divmod(counts, granule)
    base, more = np.divmod(granules, parts)
    part = np.arange(parts)
    sizes = (base[:, None] + (part < more[:, None])) * granule
    sizes[:, -1] += rest
    ends = starts[:, None] + np.cumsum(sizes, axis=1)
    return (ends - sizes).reshape(-1), sizes.reshape(-1)
