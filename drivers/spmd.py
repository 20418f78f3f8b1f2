"""Code from one card's point of view: every rank calls the same collectives in the same order.

A rank's call names its own arrays only. The k-th call of each rank of a group belongs to the k-th
call of the others: when the last one has come, they are compared, and the collective starts on all
cards at one instant. Ranks that call different things, other sizes, types, operators or roots get
an error, all of them, that names both calls; a rank that waits for a collective which some have not
called gets one that names those. Nothing hangs, and nothing runs with a part of its arguments.
Messages are matched in the same way, the k-th that one rank sends to another with the k-th that the
other receives from it.

::

    for rank in (sn.rank(card) for card in range(sn.cards)):
        handles.append(rank.allreduce(gradients[rank.rank]))
    for handle in handles:
        handle.wait()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .collectives import Collective, Task
from .handle import DEFAULT_TIMEOUT, Handle, Result
from .memory import Array

if TYPE_CHECKING:
    from .group import Group

__all__ = ["CollectiveMismatchError", "GroupRank", "RankHandle", "Rounds"]


class CollectiveMismatchError(RuntimeError):
    """Ranks of a group have not called the same collective."""


@dataclass(frozen=True)
class _Call:
    """One rank's call. What stands in ``what`` must be the same on all ranks."""

    what: str
    task: Task
    input: Array | None
    output: Array | None
    op: str
    algorithm: str


@dataclass(eq=False)
class RankHandle:
    """A rank's part of a collective, or of a message."""

    rank: int
    what: str
    #: Ranks that take part and have not called.
    _missing: set[int] = field(repr=False)
    handle: Handle | None = None
    error: Exception | None = field(default=None, repr=False)

    @property
    def done(self) -> bool:
        """Whether it has ended, as far as the host has seen."""
        return self.handle is not None and self.handle.done

    def wait(self, timeout: int = DEFAULT_TIMEOUT) -> Result:
        """Let time pass until it has ended on all cards; return its numbers.

        Raises
        ------
        CollectiveMismatchError
            If ranks have called different things, or some have not called yet.
        OperationError, WaitTimeout, StallError
            As of :meth:`drivers.handle.Handle.wait`.
        """
        if self.error is not None:
            raise self.error
        if self.handle is None:
            raise CollectiveMismatchError(
                f"rank {self.rank} waits for {self.what}, which rank "
                f"{', '.join(map(str, sorted(self._missing)))} has not called")
        return self.handle.wait(timeout)


@dataclass(eq=False)
class _Round:
    """The k-th calls of a group's members, as far as they have come."""

    calls: dict[int, _Call]
    handles: dict[int, RankHandle]
    missing: set[int]
    error: CollectiveMismatchError | None = None


class Rounds:
    """What the members of a group have called and not all of them."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._open: deque[_Round] = deque()
        #: Of each member, how many of the open rounds it has called.
        self._place = [0] * len(group)
        #: Of each (sender, receiver): messages that one of them has called.
        self._messages: dict[tuple[int, int], deque[tuple[bool, Array, RankHandle]]] = {}

    @property
    def open(self) -> bool:
        """Whether some members have called what others have not."""
        return bool(self._open) or any(self._messages.values())

    def message(self, sender: int, receiver: int, sends: bool, array: Array) -> RankHandle:
        """Take one end of a message between two members; start it with the other one."""
        cards = self._group.cards
        caller, other = (sender, receiver) if sends else (receiver, sender)
        what = (f"{'send' if sends else 'recv'} of {array.size} {array.dtype} "
                f"{'to' if sends else 'from'} rank {cards[other]}")
        handle = RankHandle(cards[caller], what, {cards[other]})
        waiting = self._messages.setdefault((sender, receiver), deque())
        if not waiting or waiting[0][0] == sends:
            waiting.append((sends, array, handle))
            return handle
        _, first, peer = waiting.popleft()
        if first.size != array.size or first.dtype != array.dtype:
            handle.error = peer.error = CollectiveMismatchError(
                f"rank {peer.rank} calls {peer.what}, and rank {handle.rank} calls {what}")
            return handle
        source, target = (array, first) if sends else (first, array)
        handle.handle = peer.handle = self._group.supernode.start_write(
            source.view(0, source.size), target.view(0, target.size), ack=False)
        return handle

    def call(self, member: int, call: _Call) -> RankHandle:
        """Take a member's next call; start the collective with the last one."""
        place, group = self._place[member], self._group
        if place == len(self._open):
            self._open.append(_Round({}, {}, set(group.cards)))
        turn = self._open[place]
        self._place[member] += 1
        handle = RankHandle(group.cards[member], call.what, turn.missing)
        turn.missing.discard(group.cards[member])
        for other, first in turn.calls.items():
            if first.what != call.what and turn.error is None:
                turn.error = CollectiveMismatchError(
                    f"rank {group.cards[other]} calls {first.what}, and rank "
                    f"{group.cards[member]} calls {call.what}")
        turn.calls[member], turn.handles[member] = call, handle
        if turn.error is not None:
            for each in turn.handles.values():
                each.error = turn.error
        if not turn.missing:
            self._open.popleft()
            self._place = [number - 1 for number in self._place]
            if turn.error is None:
                self._start(turn)
        return handle

    def _start(self, turn: _Round) -> None:
        calls = [turn.calls[member] for member in range(len(self._group))]
        task = calls[calls[0].task.root].task
        if task.kind is Collective.ALLTOALL:
            # Each rank knows what it gives; together they know what each gets.
            n = task.members
            task = Task(task.kind, n, tuple(
                count for member, call in enumerate(calls)
                for count in call.task.counts[member * n:(member + 1) * n]),
                in_place=task.in_place)
        try:
            handle = self._group.start(task, [call.input for call in calls],
                                       [call.output for call in calls],
                                       calls[0].op if task.kind.reduces else None,
                                       calls[0].algorithm)
        except ValueError as error:
            for each in turn.handles.values():
                each.error = error
        else:
            for each in turn.handles.values():
                each.handle = handle


class GroupRank:
    """A member of a group. Its methods are those of :class:`~drivers.group.Group` with this
    member's arrays alone, and return a :class:`RankHandle`."""

    def __init__(self, group: Group, member: int) -> None:
        self._group, self.member = group, member
        self.rank = group.cards[member]

    @property
    def size(self) -> int:
        """Members of the group."""
        return len(self._group)

    def allreduce(self, array: Array, output: Array | None = None, *, op: str = "sum",
                  algorithm: str = "auto") -> RankHandle:
        """Join in the sum of all ranks' arrays."""
        task = Task(Collective.ALLREDUCE, self.size, (array.size,), in_place=output is None)
        return self._call(task, array, output or array, op, algorithm)

    def reduce(self, array: Array, output: Array | None = None, *, root: int = 0, op: str = "sum",
               algorithm: str = "auto") -> RankHandle:
        """Join in the sum of all ranks' arrays; the root gets it in ``output``, or over its own."""
        own = self.member == root
        task = Task(Collective.REDUCE, self.size, (array.size,), root, in_place=output is None)
        return self._call(task, array, (output or array) if own else None, op, algorithm)

    def broadcast(self, output: Array, source: Array | None = None, *, root: int = 0,
                  algorithm: str = "auto") -> RankHandle:
        """Get the root's ``source``, or its output as it is, in ``output``."""
        task = Task(Collective.BROADCAST, self.size, (output.size,), root, in_place=source is None)
        own = self.member == root
        return self._call(task, (source or output) if own else None, output, "", algorithm)

    def allgather(self, array: Array | None, output: Array, *,
                  counts: Sequence[int] | None = None, algorithm: str = "auto") -> RankHandle:
        """Give this rank's block to all, and get those of all; ``None``: it is in place."""
        task = Task(Collective.ALLGATHER, self.size, self._blocks(output.size, counts),
                    in_place=array is None)
        return self._call(task, array or output, output, "", algorithm)

    def reduce_scatter(self, array: Array, output: Array | None = None, *,
                       counts: Sequence[int] | None = None, op: str = "sum",
                       algorithm: str = "auto") -> RankHandle:
        """Join in the sum of all ranks' arrays, and get this rank's block of it."""
        task = Task(Collective.REDUCE_SCATTER, self.size, self._blocks(array.size, counts),
                    in_place=output is None)
        return self._call(task, array, output or array, op, algorithm)

    def alltoall(self, array: Array, output: Array | None = None, *,
                 counts: Sequence[int] | None = None, algorithm: str = "auto") -> RankHandle:
        """Give every rank its block of ``array``, of ``counts`` elements, and get one from each."""
        row = self._blocks(array.size, counts)
        task = Task(Collective.ALLTOALL, self.size, row * self.size, in_place=output is None)
        return self._call(task, array, output or array, "", algorithm,
                          size="" if counts is not None else None)

    def send(self, array: Array, peer: int) -> RankHandle:
        """Send ``array`` to member ``peer``, who receives as many elements of its type."""
        return self._group.rounds.message(self.member, self._peer(peer), True, array)

    def recv(self, array: Array, peer: int) -> RankHandle:
        """Receive into ``array`` what member ``peer`` sends."""
        return self._group.rounds.message(self._peer(peer), self.member, False, array)

    def _peer(self, peer: int) -> int:
        if not 0 <= peer < self.size:
            raise ValueError(f"members are numbered from 0 to {self.size - 1}, and {peer} is none")
        return peer

    def barrier(self, *, algorithm: str = "auto") -> RankHandle:
        """Join in a barrier."""
        return self._call(Task(Collective.BARRIER, self.size, ()), None, None, "", algorithm)

    def _blocks(self, total: int, counts: Sequence[int] | None) -> tuple[int, ...]:
        if counts is not None:
            return tuple(map(int, counts))
        if total % self.size:
            raise ValueError(f"{total} elements are no {self.size} blocks of one size")
        return (total // self.size,) * self.size

    def _call(self, task: Task, entry: Array | None, result: Array | None, op: str,
              algorithm: str, size: str | None = None) -> RankHandle:
        array = entry if entry is not None else result
        parts = [str(task.kind)]
        if array is not None:
            counted = f"{task.total}" if size is None else size
            if task.kind is Collective.ALLTOALL and size is None:
                counted = f"{sum(task.counts[:task.members])}"
            parts.append(f"of {counted} {array.dtype}".replace("  ", " "))
            if not task.kind.whole and len(set(task.counts)) > 1 and size is None:
                parts.append(f"in blocks of {list(task.counts)}")
        if op:
            parts.append(f"by {op}")
        if task.kind.rooted:
            parts.append(f"with root {task.root}")
        elif task.in_place:
            parts.append("in place")
        if algorithm != "auto":
            parts.append(f"by algorithm {algorithm}")
        return self._group.rounds.call(
            self.member, _Call(" ".join(parts), task, entry, result, op, algorithm))
