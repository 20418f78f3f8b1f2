"""What a collective must do, whatever the algorithm: buffers of each member, and what they hold.

A *task* names members by their rank in the group and counts elements. Each member has up to two
buffers, ``input`` and ``output``; in place, the input lies in the output where NCCL puts it. The
input is never written, except where it is the output too.

=================  =========================================  ====================================
kind               input of member p                          output of member q
=================  =========================================  ====================================
allreduce          vector                                     sum of all vectors
reduce             vector                                     sum of all vectors, on the root only
broadcast          vector, on the root only                   the root's vector
allgather          block p                                    all blocks, one behind the other
reduce_scatter     all blocks                                 sum of everyone's block q
gather             block p                                    all blocks, on the root only
scatter            all blocks, on the root only               block q
alltoall           a block for each member                    a block from each member
barrier            nothing                                    nothing
=================  =========================================  ====================================

Blocks may differ in size, and be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate

__all__ = ["COLLECTIVES", "Buffer", "Collective", "Goal", "Region", "Task", "alltoall_counts"]


class Buffer(Enum):
    """Where elements of a member lie."""

    INPUT = "input"
    OUTPUT = "output"
    #: For the time of the collective; holds nothing at its start.
    SCRATCH = "scratch"

    def __str__(self) -> str:
        return self.value


class Collective(Enum):
    """A collective by its name."""

    ALLREDUCE = "allreduce"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    ALLGATHER = "allgather"
    REDUCE_SCATTER = "reduce_scatter"
    GATHER = "gather"
    SCATTER = "scatter"
    ALLTOALL = "alltoall"
    BARRIER = "barrier"

    def __str__(self) -> str:
        return self.value

    @property
    def reduces(self) -> bool:
        """Whether it adds."""
        return self in (Collective.ALLREDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER)

    @property
    def rooted(self) -> bool:
        """Whether one member has a part of its own."""
        return self in (Collective.REDUCE, Collective.BROADCAST, Collective.GATHER,
                        Collective.SCATTER)

    @property
    def whole(self) -> bool:
        """Whether it is about one vector, and not about a block per member."""
        return self in (Collective.ALLREDUCE, Collective.REDUCE, Collective.BROADCAST)


COLLECTIVES = tuple(kind.value for kind in Collective)


@dataclass(frozen=True)
class Region:
    """``count`` elements of one of a member's buffers, from ``start`` on."""

    start: int
    count: int
    buffer: Buffer = Buffer.OUTPUT

    @property
    def end(self) -> int:
        return self.start + self.count

    def part(self, start: int, count: int) -> Region:
        """``count`` elements of it, from its element ``start`` on."""
        return Region(self.start + start, count, self.buffer)

    def split(self, parts: int, granule: int = 1) -> list[Region]:
        """Cut into ``parts`` consecutive regions whose sizes are as equal as whole granules allow;
        some may be empty, and the last one takes what is no whole granule."""
        granules, rest = divmod(self.count, granule)
        base, more = divmod(granules, parts)
        regions, start = [], 0
        for part in range(parts):
            count = (base + (part < more)) * granule + (rest if part == parts - 1 else 0)
            regions.append(self.part(start, count))
            start += count
        return regions

    def __str__(self) -> str:
        return f"{self.buffer}[{self.start}:{self.end}]"


@dataclass(frozen=True)
class Goal:
    """At the end element i of ``region`` is the sum over ``terms`` (member, start) of element
    start + i of the member's input, each once."""

    region: Region
    terms: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Task:
    """One collective.

    Attributes
    ----------
    kind : Collective
    members : int
    counts : tuple of int
        Elements: of the vector; or of each block, ``members`` numbers; or, for ``alltoall``, of the
        block from p to q at ``p * members + q``; or none.
    root : int
        Of the kinds that have one.
    in_place : bool
        The input lies in the output: the whole of it, or at the member's own block. Of ``scatter``
        the root's output is its block of the input.

    Raises
    ------
    ValueError
        If there are no members, or counts or root do not fit.
    """

    kind: Collective
    members: int
    counts: tuple[int, ...]
    root: int = 0
    in_place: bool = False

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ValueError(f"a group has at least 1 member, not {self.members}")
        numbers = (1 if self.kind.whole else 0 if self.kind is Collective.BARRIER
                   else self.members ** (2 if self.kind is Collective.ALLTOALL else 1))
        if len(self.counts) != numbers:
            raise ValueError(f"{self.kind} of {self.members} members takes {numbers} counts, not "
                             f"{len(self.counts)}")
        if min(self.counts, default=0) < 0:
            raise ValueError(f"counts must be at least 0, not {min(self.counts)}")
        if not 0 <= self.root < self.members:
            raise ValueError(f"root must be from 0 to {self.members - 1}, not {self.root}")

    @property
    def total(self) -> int:
        """Elements of the vector, or of all blocks together."""
        return sum(self.counts)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """Where each block starts, among those of all members."""
        return tuple(accumulate(self.counts, initial=0))

    @cached_property
    def _sent(self) -> tuple[tuple[int, ...], ...]:
        """Of ``alltoall``: where the block for each member starts in the input."""
        n = self.members
        return tuple(tuple(accumulate(self.counts[p * n:(p + 1) * n], initial=0))
                     for p in range(n))

    @cached_property
    def _received(self) -> tuple[tuple[int, ...], ...]:
        """Of ``alltoall``: where the block from each member starts in the output."""
        return tuple(tuple(accumulate(self.counts[q::self.members], initial=0))
                     for q in range(self.members))

    def input(self, member: int) -> Region:
        """What a member brings, all of it; empty if nothing."""
        n, kind, own = self.members, self.kind, member == self.root
        here = Buffer.OUTPUT if self.in_place else Buffer.INPUT
        if kind is Collective.ALLREDUCE or kind is Collective.REDUCE_SCATTER:
            return Region(0, self.total, here)
        if kind is Collective.REDUCE:
            return Region(0, self.total, here if own else Buffer.INPUT)
        if kind is Collective.BROADCAST:
            return Region(0, self.total if own else 0, here if own else Buffer.INPUT)
        if kind is Collective.ALLGATHER or kind is Collective.GATHER:
            there = self.in_place and (own or kind is Collective.ALLGATHER)
            return Region(self._starts[member] if there else 0, self.counts[member],
                          Buffer.OUTPUT if there else Buffer.INPUT)
        if kind is Collective.SCATTER:
            return Region(0, self.total if own else 0, Buffer.INPUT)
        if kind is Collective.ALLTOALL:
            return Region(0, self._sent[member][n], here)
        return Region(0, 0, Buffer.INPUT)

    def block(self, member: int, peer: int) -> Region:
        """The part of a member's input that is about ``peer``: its whole vector or block, of
        ``reduce_scatter``, ``scatter`` and ``alltoall`` what ``peer`` is to get."""
        whole = self.input(member)
        if self.kind in (Collective.REDUCE_SCATTER, Collective.SCATTER) and whole.count:
            return whole.part(self._starts[peer], self.counts[peer])
        if self.kind is Collective.ALLTOALL:
            return whole.part(self._sent[member][peer], self.counts[member * self.members + peer])
        return whole

    def output(self, member: int) -> Region:
        """What a member is to have at the end, all of it; empty if nothing."""
        kind, own = self.kind, member == self.root
        if kind.whole or kind in (Collective.ALLGATHER, Collective.GATHER):
            nothing = kind in (Collective.REDUCE, Collective.GATHER) and not own
            return Region(0, 0 if nothing else self.total)
        if kind is Collective.REDUCE_SCATTER:
            return Region(self._starts[member] if self.in_place else 0, self.counts[member])
        if kind is Collective.SCATTER:
            return Region(0, 0 if own and self.in_place else self.counts[member])
        if kind is Collective.ALLTOALL:
            return Region(0, self._received[member][self.members])
        return Region(0, 0)

    def place(self, member: int, peer: int) -> Region:
        """The part of a member's output that is about ``peer``: of ``allgather``, ``gather`` and
        ``alltoall`` the block that comes from it, else all."""
        whole = self.output(member)
        if self.kind in (Collective.ALLGATHER, Collective.GATHER) and whole.count:
            return whole.part(self._starts[peer], self.counts[peer])
        if self.kind is Collective.ALLTOALL:
            return whole.part(self._received[member][peer],
                              self.counts[peer * self.members + member])
        return whole

    def size(self, member: int, buffer: Buffer) -> int:
        """Elements of a member's input or output buffer: 0 if it has none."""
        regions = [self.input(member), self.output(member)]
        return max((region.end for region in regions if region.buffer is buffer and region.count),
                   default=0)

    @cached_property
    def goal(self) -> tuple[tuple[Goal, ...], ...]:
        """What each member holds at the end."""
        return tuple(tuple(goal for goal in self._goals(member) if goal.region.count)
                     for member in range(self.members))

    def _goals(self, member: int) -> Sequence[Goal]:
        everyone = range(self.members)
        if self.kind.reduces:
            region = self.output(member)
            start = self._starts[member] if self.kind is Collective.REDUCE_SCATTER else 0
            return [Goal(region, frozenset((peer, start) for peer in everyone))]
        if self.kind is Collective.BROADCAST:
            return [Goal(self.output(member), frozenset({(self.root, 0)}))]
        if self.kind is Collective.SCATTER:
            return [Goal(self.output(member), frozenset({(self.root, self._starts[member])}))]
        if self.kind is Collective.BARRIER:
            return []
        if not self.output(member).count:
            return []
        return [Goal(self.place(member, peer), frozenset({
            (peer, self._sent[peer][member] if self.kind is Collective.ALLTOALL else 0)}))
            for peer in everyone]

    def __str__(self) -> str:
        what = "" if self.kind is Collective.BARRIER else f" of {self.total} elements"
        root = f" from root {self.root}" if self.kind.rooted else ""
        return f"{self.kind}{what} over {self.members}{root}"


def alltoall_counts(members: int, count: int) -> tuple[int, ...]:
    """Counts of an ``alltoall`` in which all blocks have ``count`` elements."""
    return (count,) * members**2
