"""Writing schedules: steps in the order of their making, arrivals instead of counters.

An algorithm calls :meth:`Builder.send`, :meth:`Builder.copy` and :meth:`Builder.signal`; each
appends a step to its member's list and returns the :class:`Arrival` that later steps of the
receiver may wait for. Who writes phase after phase, all members of one before any of the next, has
every arrival at hand when it is needed.

What every schedule needs is added here: before a member's first access to a peer's buffers, the
peer's word that its list has begun; and at the end of each list, the waits for all that was sent to
it.

Sums need operands that lie alike in their flits. :meth:`Builder.add` sends where that is so, and
else to scratch that lies like the addend, from where the receiver copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from .schedule import Done, Schedule, Send, Signal, Step, Wait
from .task import Buffer, Region, Task

__all__ = ["Arrival", "Builder"]


@dataclass(frozen=True)
class Arrival:
    """The ``number``-th arrival, from 1 on, at ``counter`` of ``member``."""

    member: int
    counter: str
    number: int


class Builder:
    """A schedule in the making.

    Parameters
    ----------
    task : Task
    granule : int
        Elements of a flit.
    lane : callable
        Of a member and a buffer: the place of its first element in its flit. Scratch has 0.
    """

    def __init__(self, task: Task, *, granule: int = 1,
                 lane: Callable[[int, Buffer], int] = lambda member, buffer: 0) -> None:
        self.task = task
        self._granule, self._lane = granule, lane
        self._lists: list[list[Step]] = [[] for _ in range(task.members)]
        self._scratch = [0] * task.members
        self._arrivals: dict[tuple[int, str], int] = {}
        #: Peers whose buffers a member touches, and those it has heard of before that.
        self._touched: dict[tuple[int, int], int] = {}
        self._heard: set[tuple[int, int]] = set()
        #: Who notifies a counter.
        self._senders: dict[tuple[int, str], set[int]] = {}

    # --- steps

    def send(self, member: int, peer: int, source: Region, target: Region, *,
             after: Iterable[Arrival | None] = (), addend: Region | None = None,
             counter: str | None = None, rail: int = 0) -> Arrival | None:
        """Let ``member`` write ``source`` to ``target`` of ``peer``, added to ``addend`` there if
        there is one. Nothing happens if they are empty.

        Without a ``counter`` the arrival is one of those from this member on this rail, which can
        be waited for one by one.
        """
        if not source.count:
            return None
        waits = self._waits(member, after)
        name, arrival = self._arrival(member, peer, counter, rail)
        if peer != member and (member, peer) not in self._heard:
            self._touched.setdefault((member, peer), len(self._lists[member]))
        self._lists[member].append(Send(peer=peer, source=source, target=target, addend=addend,
                                        notify=name, waits=waits, rail=rail))
        return arrival

    def copy(self, member: int, source: Region, target: Region, *,
             after: Iterable[Arrival | None] = (), rail: int = 0) -> Arrival | None:
        """Let a member copy ``source`` to its own ``target``, unless they are the same."""
        if source == target:
            return None
        return self.send(member, member, source, target, after=after, rail=rail)

    def add(self, member: int, peer: int, source: Region, target: Region, addend: Region, *,
            after: Iterable[Arrival | None] = (), counter: str | None = None,
            rail: int = 0) -> Arrival | None:
        """:meth:`send` with an addend, wherever it lies."""
        if self.alike(peer, target, addend):
            return self.send(member, peer, source, target, addend=addend, after=after,
                             counter=counter, rail=rail)
        place = self.scratch(peer, addend.count, like=addend)
        arrival = self.send(member, peer, source, place, addend=addend, after=after,
                            counter=counter, rail=rail)
        return self.copy(peer, place, target, after=[arrival], rail=rail)

    def signal(self, member: int, peer: int, *, after: Iterable[Arrival | None] = (),
               counter: str | None = None, rail: int = 0) -> Arrival:
        """Let ``member`` tell ``peer`` that it has come so far."""
        name, arrival = self._arrival(member, peer, counter, rail)
        self._lists[member].append(Signal(peer=peer, notify=name, rail=rail,
                                          waits=self._waits(member, after)))
        return arrival

    # --- memory

    def scratch(self, member: int, count: int, like: Region | None = None) -> Region:
        """``count`` elements of scratch for one use, in flits of their own, that lie in them like
        ``like`` does."""
        start = -(-self._scratch[member] // self._granule) * self._granule
        start += self.place(member, like) if like else 0
        self._scratch[member] = start + count
        return Region(start, count, Buffer.SCRATCH)

    def alike(self, member: int, first: Region, second: Region) -> bool:
        """Whether two regions of a member lie alike in their flits, or are empty."""
        return not first.count or self.place(member, first) == self.place(member, second)

    def place(self, member: int, region: Region) -> int:
        """Where in its flit a region starts."""
        lane = 0 if region.buffer is Buffer.SCRATCH else self._lane(member, region.buffer)
        return (lane + region.start) % self._granule

    def accumulator(self, member: int, entry: Region, result: Region) -> Region:
        """Where to add to ``entry`` what comes: ``result`` if that lies alike, else scratch."""
        if self.alike(member, entry, result):
            return result
        return self.scratch(member, entry.count, like=entry)

    # --- the end

    def schedule(self, name: str, *, singly: bool = False) -> Schedule:
        """The schedule so far. With ``singly`` a member waits for the word of each peer before it
        first touches its buffers, for a counter per peer, and else for that of all of them before
        it touches any."""
        lists = [list(steps) for steps in self._lists]
        arrivals = dict(self._arrivals)
        # Members that touch each other's buffers unheard: the owner says first that it is there,
        # to those first who need it first.
        ready: list[list[Step]] = [[] for _ in lists]
        first: dict[tuple[int, str], int] = {}
        for (member, peer), place in sorted(self._touched.items(), key=lambda item: item[1]):
            counter = f"ready {peer}" if singly else "ready"
            ready[peer].append(Signal(peer=member, notify=counter))
            arrivals[member, counter] = arrivals.get((member, counter), 0) + 1
            first.setdefault((member, counter), place)
        for (member, counter), place in first.items():
            step = lists[member][place]
            wait = Wait(counter, arrivals[member, counter])
            lists[member][place] = replace(step, waits=(wait, *step.waits))
        lists = [signals + steps for signals, steps in zip(ready, lists, strict=True)]
        for member, steps in enumerate(lists):
            steps.append(Done(waits=tuple(Wait(counter, number)
                                          for (owner, counter), number in arrivals.items()
                                          if owner == member)))
        return Schedule(f"{name} {self.task}", self.task, tuple(map(tuple, lists)),
                        tuple(self._scratch))

    # --- inner

    def _arrival(self, member: int, peer: int, counter: str | None,
                 rail: int) -> tuple[str, Arrival]:
        name = counter or (f"from {member}" if not rail else f"from {member} on {rail}")
        number = self._arrivals.get((peer, name), 0) + 1
        self._arrivals[peer, name] = number
        self._senders.setdefault((peer, name), set()).add(member)
        return name, Arrival(peer, name, number)

    def _waits(self, member: int, after: Iterable[Arrival | None]) -> tuple[Wait, ...]:
        latest: dict[str, int] = {}
        for arrival in after:
            if arrival is None:
                continue
            if arrival.member != member:
                raise ValueError(f"member {member} cannot wait for an arrival at "
                                 f"{arrival.member}")
            latest[arrival.counter] = max(latest.get(arrival.counter, 0), arrival.number)
            self._heard |= {(member, sender) for sender in self._senders[member, arrival.counter]}
        return tuple(Wait(counter, number) for counter, number in latest.items())

