"""Everyone to everyone: one message per pair, for machines whose cards reach each other directly.

Member p gives to p + 1, p + 2 … in turn, so that at any time everyone receives from one other.
Sums are formed where they belong, one addition after the other: the owner of a block tells the next
giver when the share of the one before has been added. Chunks are cut into parts, so that one is
added while word of another is under way.

*Pairwise* all-to-all gives to p + k only when what p − k gives has come: one exchange at a time.
*Bruck's* takes ⌈log2 n⌉ steps: what has to go j members ahead goes by the bits of j, and each block
rests on the way in a place of its own, from which it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .build import Arrival, Builder
from .schedule import Schedule
from .setting import AlgorithmError, Setting
from .task import Collective, Region, Task

__all__ = ["bruck", "direct", "pairwise"]

#: Parts of a block that is summed, where it has so many packets.
_PARTS = 4


def direct(task: Task, setting: Setting) -> Schedule:
    """Any collective but a barrier, one message per pair."""
    build = setting.builder(task)
    kind = task.kind
    if kind is Collective.ALLTOALL:
        _exchange(build, task, setting, in_turn=False)
    elif kind is Collective.ALLGATHER:
        for member, peer, rail in _pairs(task, setting):
            build.send(member, peer, task.input(member), task.place(peer, member), counter="data",
                       rail=rail)
        for member in range(task.members):
            build.copy(member, task.input(member), task.place(member, member))
    elif kind in (Collective.BROADCAST, Collective.SCATTER):
        for peer in _others(task):
            build.send(task.root, peer, task.block(task.root, peer), task.output(peer))
        if task.output(task.root).count:
            build.copy(task.root, task.block(task.root, task.root), task.output(task.root))
    elif kind is Collective.GATHER:
        for member in _others(task):
            build.send(member, task.root, task.input(member), task.place(task.root, member),
                       counter="data")
        build.copy(task.root, task.input(task.root), task.place(task.root, task.root))
    elif kind is Collective.REDUCE:
        _sum(build, setting, [task.root], lambda member, owner: task.input(member), task.output)
    elif kind is Collective.REDUCE_SCATTER:
        _sum(build, setting, range(task.members), task.block, task.output)
    elif kind is Collective.ALLREDUCE:
        _allreduce(build, task, setting)
    else:
        raise AlgorithmError(f"direct messages serve every collective but {kind}")
    return build.schedule("direct")


def pairwise(task: Task, setting: Setting) -> Schedule:
    """All-to-all, one exchange after the other."""
    if task.kind is not Collective.ALLTOALL:
        raise AlgorithmError(f"pairwise serves alltoall, not {task.kind}")
    build = setting.builder(task)
    _exchange(build, task, setting, in_turn=True)
    return build.schedule("pairwise")


def bruck(task: Task, setting: Setting) -> Schedule:
    """All-to-all in ⌈log2 n⌉ steps."""
    if task.kind is not Collective.ALLTOALL:
        raise AlgorithmError(f"bruck serves alltoall, not {task.kind}")
    build, n = setting.builder(task), task.members
    #: Of each (member, distance still to go and gone): where the block is, and after what.
    held: dict[tuple[int, int], tuple[Region, Arrival | None]] = {
        (member, step): (task.block(member, (member + step) % n), None)
        for member in range(n) for step in range(1, n)}
    staged = _Stage(build, task)
    for bit in range((n - 1).bit_length()):
        distance = 1 << bit
        moved: dict[tuple[int, int], tuple[Region, Arrival | None]] = {}
        for step in range(1, n):
            if not step & distance:
                continue
            for member in range(n):
                ahead, origin = (member + distance) % n, (member - step % distance) % n
                source, arrival = held[member, step]
                if step < 2 * distance:  # its last hop
                    target, final = staged.target(ahead, origin), True
                else:
                    target, final = build.scratch(ahead, source.count), False
                came = build.send(member, ahead, source, target, after=[arrival])
                if final:
                    staged.came(ahead, origin, came)
                moved[ahead, step] = target, came
        held |= moved
    staged.finish()
    return build.schedule("bruck")


def _others(task: Task) -> list[int]:
    """All but the root, those behind it first."""
    return [(task.root + step) % task.members for step in range(1, task.members)]


def _pairs(task: Task, setting: Setting) -> list[tuple[int, int, int]]:
    """(member, peer, rail) of every pair, turn by turn."""
    n = task.members
    return [(member, (member + step) % n, step % setting.rails)
            for step in range(1, n) for member in range(n)]


class _Stage:
    """Where blocks of an all-to-all arrive: at their places, or, in place, in scratch until all of
    the member's own blocks have left."""

    def __init__(self, build: Builder, task: Task) -> None:
        self._build, self._task = build, task
        self._rests: dict[tuple[int, int], Region] = {}
        self._arrivals: dict[tuple[int, int], Arrival | None] = {}

    def target(self, member: int, origin: int) -> Region:
        """Where the block from ``origin`` is to arrive at ``member``."""
        place = self._task.place(member, origin)
        if not self._task.in_place:
            return place
        return self._rests.setdefault((member, origin), self._build.scratch(member, place.count))

    def came(self, member: int, origin: int, arrival: Arrival | None) -> None:
        """The block from ``origin`` comes to ``member`` with ``arrival``."""
        self._arrivals[member, origin] = arrival

    def finish(self) -> None:
        """Put everything where it belongs, and each member's own block."""
        build, task = self._build, self._task
        if not task.in_place:
            for member in range(task.members):
                build.copy(member, task.block(member, member), task.place(member, member))
            return
        # A block that has come to its end has been read where it was.
        read: dict[int, list[Arrival]] = {}
        for (member, origin), arrival in self._arrivals.items():
            if arrival and member != origin:
                read.setdefault(origin, []).append(
                    build.signal(member, origin, after=[arrival], counter="read"))
        for member in range(task.members):
            own, place = task.block(member, member), task.place(member, member)
            if own != place and own.count:
                rest = build.scratch(member, own.count)
                self._arrivals[member, member] = build.copy(member, own, rest)
                self._rests[member, member] = rest
        for (member, origin), rest in self._rests.items():
            build.copy(member, rest, task.place(member, origin), after=(
                *read.get(member, ()), self._arrivals[member, origin],
                self._arrivals.get((member, member))))


def _exchange(build: Builder, task: Task, setting: Setting, *, in_turn: bool) -> None:
    staged = _Stage(build, task)
    came: dict[int, Arrival | None] = {}
    before: dict[int, Arrival | None] = {}
    for number, (member, peer, rail) in enumerate(_pairs(task, setting)):
        if number % task.members == 0:
            before, came = came, {}
        came[peer] = build.send(member, peer, task.block(member, peer),
                                staged.target(peer, member), rail=rail,
                                after=[before.get(member)] if in_turn else ())
        staged.came(peer, member, came[peer])
    staged.finish()


def _sum(build: Builder, setting: Setting, owners: Sequence[int],
         entry: Callable[[int, int], Region],
         result: Callable[[int], Region]) -> dict[int, list[tuple[Region, Arrival | None]]]:
    """The sum over all members of ``entry(member, owner)`` to ``result(owner)``, for each owner.
    Returns the parts of the results and after what they are there."""
    n = setting.members
    whole = {owner: build.accumulator(owner, entry(owner, owner), result(owner))
             for owner in owners}
    cuts = {owner: _parts(setting, region) for owner, region in whole.items()}
    came: dict[tuple[int, int], Arrival | None] = {}
    for turn in range(1, n):
        for owner in owners:
            giver = (owner - turn) % n
            for part, cut in enumerate(cuts[owner]):
                total = whole[owner].part(*cut)
                word = (build.signal(owner, giver, after=[came[owner, part]]) if turn > 1
                        else None)
                came[owner, part] = build.send(
                    giver, owner, entry(giver, owner).part(*cut), total, after=[word],
                    addend=entry(owner, owner).part(*cut) if turn == 1 else total)
    parts: dict[int, list[tuple[Region, Arrival | None]]] = {}
    for owner in owners:
        parts[owner] = []
        for part, cut in enumerate(cuts[owner]):
            arrival, place = came.get((owner, part)), result(owner).part(*cut)
            total = whole[owner].part(*cut) if n > 1 else entry(owner, owner).part(*cut)
            parts[owner].append((place, build.copy(owner, total, place, after=[arrival])
                                 or arrival))
    return parts


def _parts(setting: Setting, region: Region) -> list[tuple[int, int]]:
    """Start and size of the parts of a block within it."""
    packets = region.count * setting.item_size // setting.params.nic.mtu
    granule = setting.granule if packets else 1
    return [(part.start - region.start, part.count)
            for part in region.split(max(1, min(_PARTS, packets)), granule) if part.count]


def _allreduce(build: Builder, task: Task, setting: Setting) -> None:
    """Each member sums a chunk, and gives the result to all."""
    n = task.members
    granule = setting.granule if task.total >= n * setting.granule else 1
    chunks = [(chunk.start, chunk.count) for chunk in Region(0, task.total).split(n, granule)]

    done = _sum(build, setting, range(n),
                lambda member, owner: task.input(member).part(*chunks[owner]),
                lambda owner: task.output(owner).part(*chunks[owner]))
    for member, peer, rail in _pairs(task, setting):
        for source, arrival in done[member]:
            build.send(member, peer, source, source, counter="result", after=[arrival], rail=rail)
