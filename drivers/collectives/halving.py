"""Halving and doubling: ⌈log2 n⌉ steps for any number of members, with the least data.

The members stand in a circle. *Reduce-scatter* halves distances: with distance d = 2^k, from the
largest below n down to 1, a member hands the partial sums of the blocks that belong to members d …
2d − 1 ahead of it (those that there are) to the member d ahead, who adds them to its own partial
sums of the same blocks. Each member gives n − 1 blocks away, the least possible.

*All-gather* is the same backwards: with d = 1, 2, 4 … a member gives the blocks of itself and the
members behind it, d of them, to the member d ahead, or as many as are missing there.

*All-reduce* is one behind the other. *Doubling*, for little data, exchanges whole vectors instead:
in step k members whose numbers differ in bit k give each other the sum of what they have, and both
end with the sum of both. A member's sum is never in one place before the end: its parts, its own
vector and what came in each step, go to all partners of later steps as soon as they are there, and
are put together at each of them. So nobody has to know whether a partner is ready, and a step takes
one addition's time. Where n is no power of two, the members above the largest one hand their
vectors to partners first and get the result from them at the end.

The order of a sum of block b in reduce-scatter: a tree, in which member m = b + j (counted around)
has the sum of its own share, then what came at the largest distance, then the next; see
``docs/collectives.md``. In doubling each step adds the partner's sum to the own one, and x + y is
y + x to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .build import Arrival, Builder
from .schedule import Schedule
from .setting import AlgorithmError, Setting
from .task import Collective, Region, Task

__all__ = ["doubling", "halving"]

#: A block of a member's: where it lies.
_Place = Callable[[int, int], Region]


def halving(task: Task, setting: Setting) -> Schedule:
    """Reduce_scatter by halving, allgather by doubling, allreduce by both."""
    build = setting.builder(task)
    n = task.members
    if task.kind is Collective.REDUCE_SCATTER:
        _scatter(build, n, task.block, lambda member, block: task.output(member), task)
    elif task.kind is Collective.ALLGATHER:
        for member in range(n):
            build.copy(member, task.input(member), task.place(member, member))
        _gather(build, n, lambda member: (task.input(member), None), task.place)
    elif task.kind is Collective.ALLREDUCE:
        granule = setting.granule if task.total >= n * setting.granule else 1
        chunks = Region(0, task.total).split(n, granule)

        def cut(region: Region) -> _Place:
            return lambda member, block: region.part(chunks[block].start, chunks[block].count)
        outputs = cut(task.output(0))
        done = _scatter(build, n, lambda member, block: cut(task.input(member))(member, block),
                        outputs, task)
        _gather(build, n, lambda member: (outputs(member, member), done[member]), outputs)
    else:
        raise AlgorithmError("halving serves reduce_scatter, allgather and allreduce, not "
                             f"{task.kind}")
    return build.schedule("halving")


def _distances(members: int) -> list[int]:
    return [1 << bit for bit in range((members - 1).bit_length())]


def _runs(regions: Iterable[tuple[Region, ...]]) -> list[tuple[Region, ...]]:
    """Regions side by side, joined where all of them go on in the same buffer."""
    runs: list[tuple[Region, ...]] = []
    for group in regions:
        if not group[0].count:
            continue
        if runs and all(last.end == region.start and last.buffer is region.buffer
                        for last, region in zip(runs[-1], group, strict=True)):
            runs[-1] = tuple(Region(last.start, last.count + region.count, last.buffer)
                             for last, region in zip(runs[-1], group, strict=True))
        else:
            runs.append(group)
    return runs


def _scatter(build: Builder, n: int, entry: _Place, result: _Place,
             task: Task) -> list[Arrival | None]:
    """Reduce-scatter; returns after what each member has its block."""
    #: Where each member's partial sum of a block is, and after what.
    sums = [[entry(member, block) for block in range(n)] for member in range(n)]
    fresh: list[Region | None] = [None] * n
    came: list[list[Arrival | None]] = [[] for _ in range(n)]
    if n == 1:
        return [build.copy(0, entry(0, 0), result(0, 0))]
    for distance in reversed(_distances(n)):
        words: dict[int, Arrival | None] = {}
        if distance != _distances(n)[-1]:
            for member in range(n):
                words[(member - distance) % n] = build.signal(
                    member, (member - distance) % n, after=came[member])
        arrivals: list[list[Arrival | None]] = [[] for _ in range(n)]
        moved: list[tuple[int, int, Region]] = []
        for member in range(n):
            ahead = (member + distance) % n
            groups = []
            for step in range(distance, min(2 * distance, n)):
                block = (member + step) % n
                addend = sums[ahead][block]
                if distance == 1:
                    target = result(ahead, block)
                elif addend == entry(ahead, block):
                    if fresh[ahead] is None:
                        fresh[ahead] = build.scratch(ahead, task.total, like=task.input(ahead))
                    whole = fresh[ahead]
                    assert whole is not None
                    target = whole.part(addend.start - task.input(ahead).start, addend.count)
                else:
                    target = addend
                groups.append((sums[member][block], target, addend))
                moved.append((ahead, block, target))
            after = [*came[member], words.get(member)]
            for source, target, addend in _runs(groups):
                arrivals[ahead].append(build.add(member, ahead, source, target, addend,
                                                 after=after))
        for member, block, target in moved:
            sums[member][block] = target
        came = [[*before, *new] for before, new in zip(came, arrivals, strict=True)]
    return [arrivals[member][-1] if arrivals[member] else None for member in range(n)]


def _gather(build: Builder, n: int, own: Callable[[int], tuple[Region, Arrival | None]],
            place: _Place) -> None:
    came: list[list[Arrival | None]] = [[own(member)[1]] for member in range(n)]
    for distance in _distances(n):
        arrivals: list[list[Arrival | None]] = [[] for _ in range(n)]
        for member in range(n):
            ahead = (member + distance) % n
            groups = []
            for step in range(min(distance, n - distance)):
                block = (member - step) % n
                source = own(member)[0] if step == 0 else place(member, block)
                groups.append((source, place(ahead, block)))
            for source, target in _runs(reversed(groups)):
                arrivals[ahead].append(build.send(member, ahead, source, target,
                                                  after=came[member]))
        came = [[*before, *new] for before, new in zip(came, arrivals, strict=True)]


def doubling(task: Task, setting: Setting) -> Schedule:
    """Allreduce of whole vectors; a barrier of nothing."""
    if task.kind is Collective.BARRIER:
        return _dissemination(task, setting)
    if task.kind is not Collective.ALLREDUCE:
        raise AlgorithmError(f"doubling serves allreduce and barrier, not {task.kind}")
    build, n = setting.builder(task), task.members
    if n == 1:
        build.copy(0, task.input(0), task.output(0))
        return build.schedule("doubling")
    core = 1 << n.bit_length() - 1
    bits = _distances(core)
    #: What is new at a member: its own vector, then what came in each step, and after what.
    fresh: list[list[tuple[Region, Arrival | None]]] = [
        [(task.input(member), None)] for member in range(n)]
    for extra in range(core, n):
        partner = extra - core
        place = build.scratch(partner, task.total)
        arrival = build.send(extra, partner, task.input(extra), place)
        fresh[partner].append((place, arrival))
    #: Where the sum of a member's partner in each step is put together, and last the member's own.
    places = [[build.scratch(member, task.total, like=task.output(member))
               for _ in range(len(bits) + 1)] for member in range(core)]
    came: dict[tuple[int, int], Arrival | None] = {}
    for step in range(len(bits) + 1):
        for member in range(core):
            for part, there in fresh[member]:
                for later in range(step, len(bits) + 1):
                    # To the partners of the steps to come, the next one first, and to itself.
                    peer = member ^ (bits[later] if later < len(bits) else 0)
                    place = places[peer][later]
                    last = later == len(bits) == step and (part, there) == fresh[member][-1]
                    before = came.get((peer, later))
                    came[peer, later] = build.send(
                        member, peer, part, task.output(member) if last else place,
                        after=[there, before if last else None],
                        addend=place if (peer, later) in came else None)
        if step < len(bits):
            fresh = [[(places[member][step], came[member, step])] for member in range(core)]
    for member in range(core, n):
        build.send(member - core, member, task.output(member - core), task.output(member),
                   after=[came[member - core, len(bits)]])
    return build.schedule("doubling", singly=True)


def _dissemination(task: Task, setting: Setting) -> Schedule:
    """In step k everyone tells the member 2^k ahead that it, and all it has heard of, are here."""
    build, n = setting.builder(task), task.members
    came: list[list[Arrival]] = [[] for _ in range(n)]
    for distance in _distances(n):
        fresh = [build.signal((member - distance) % n, member,
                              after=came[(member - distance) % n]) for member in range(n)]
        for member, arrival in enumerate(fresh):
            came[member].append(arrival)
    return build.schedule("doubling")
