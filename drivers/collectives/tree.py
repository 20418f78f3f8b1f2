"""Binomial trees: ⌈log2 n⌉ steps to and from a root, for all that is small.

Members are counted from the root along the ring of neighbours: member v's parent is v without its
lowest bit. Towards the root, a parent takes its children in the order of their distance, the
nearest first: it adds the first one's sum to its own share, then the second one's to that, and so
on. The others wait for its word, since two additions to the same bytes would race.
"""

from __future__ import annotations

from .build import Arrival, Builder
from .schedule import Schedule
from .setting import AlgorithmError, Setting
from .task import Collective, Region, Task

__all__ = ["tree"]


def tree(task: Task, setting: Setting) -> Schedule:
    """Broadcast, reduce, gather, scatter, barrier; allreduce as reduce and broadcast."""
    build = setting.builder(task)
    first = setting.ring.index(task.root)
    order = [setting.ring[(first + place) % task.members] for place in range(task.members)]
    kind = task.kind
    if kind is Collective.BROADCAST:
        _down(build, task, order, task.input(task.root), None)
        build.copy(task.root, task.input(task.root), task.output(task.root))
    elif kind is Collective.REDUCE:
        _up(build, task, order)
    elif kind is Collective.ALLREDUCE:
        sums, arrival = _up(build, task, order)
        _down(build, task, order, sums, arrival)
    elif kind is Collective.GATHER:
        _gather(build, task, order)
    elif kind is Collective.SCATTER:
        _scatter(build, task, order)
    elif kind is Collective.BARRIER:
        _barrier(build, order)
    else:
        raise AlgorithmError("a tree serves broadcast, reduce, gather, scatter, barrier and "
                             f"allreduce, not {kind}")
    return build.schedule("tree")


def _bits(members: int) -> list[int]:
    """Powers of two below ``members``."""
    return [1 << bit for bit in range((members - 1).bit_length())]


def _edges(members: int, bit: int) -> list[tuple[int, int]]:
    """(parent, child) of the pairs that are ``bit`` apart."""
    return [(place, place + bit) for place in range(0, members - bit, 2 * bit)]


def _down(build: Builder, task: Task, order: list[int], source: Region,
          arrival: Arrival | None) -> None:
    """From the first member, who has it at ``source`` after ``arrival``, to the outputs of all."""
    came = {0: arrival}
    for bit in reversed(_bits(len(order))):
        for parent, child in _edges(len(order), bit):
            start = source if parent == 0 else task.output(order[parent])
            came[child] = build.send(order[parent], order[child], start, task.output(order[child]),
                                     after=[came[parent]])


def _up(build: Builder, task: Task, order: list[int]) -> tuple[Region, Arrival | None]:
    """Sums to the first member's output; returns where a source for all is, and after what."""
    sums = {place: task.input(member) for place, member in enumerate(order)}
    came: dict[int, Arrival | None] = dict.fromkeys(sums)
    for bit in _bits(len(order)):
        for parent, child in _edges(len(order), bit):
            owner, peer = order[parent], order[child]
            addend, target, word = sums[parent], sums[parent], None
            if came[parent] is None:  # nothing has been added here yet
                output = task.output(owner)
                target = (build.accumulator(owner, addend, output) if output.count
                          else build.scratch(owner, addend.count, like=addend))
            else:
                word = build.signal(owner, peer, after=[came[parent]])
            came[parent] = build.send(peer, owner, sums[child], target, addend=addend,
                                      after=[came[child], word])
            sums[parent] = target
    if root_copy := build.copy(order[0], sums[0], task.output(order[0]), after=[came[0]]):
        return task.output(order[0]), root_copy
    return sums[0], came[0]


def _gather(build: Builder, task: Task, order: list[int]) -> None:
    """Each child hands on the blocks of its branch, in one message each."""
    root = order[0]
    #: Of each member: the blocks that it holds, by their owner.
    held: list[dict[int, tuple[Region, Arrival | None]]] = [
        {member: (task.input(member), None)} for member in order]
    build.copy(root, task.input(root), task.place(root, root))
    for bit in _bits(len(order)):
        for parent, child in _edges(len(order), bit):
            for owner, (source, arrival) in held[child].items():
                target = (task.place(root, owner) if parent == 0
                          else build.scratch(order[parent], source.count))
                held[parent][owner] = target, build.send(order[child], order[parent], source,
                                                         target, after=[arrival])


def _scatter(build: Builder, task: Task, order: list[int]) -> None:
    root = order[0]
    held: dict[int, dict[int, tuple[Region, Arrival | None]]] = {0: {
        place: (task.block(root, member), None) for place, member in enumerate(order)}}
    for bit in reversed(_bits(len(order))):
        for parent, child in _edges(len(order), bit):
            held[child] = {}
            for place in range(child, min(child + bit, len(order))):
                source, arrival = held[parent][place]
                target = (task.output(order[child]) if place == child
                          else build.scratch(order[child], source.count))
                held[child][place] = target, build.send(order[parent], order[child], source,
                                                        target, after=[arrival])
    if task.output(root).count:
        build.copy(root, task.block(root, root), task.output(root))


def _barrier(build: Builder, order: list[int]) -> None:
    came: dict[int, list[Arrival]] = {place: [] for place in range(len(order))}
    for bit in _bits(len(order)):
        for parent, child in _edges(len(order), bit):
            came[parent].append(build.signal(order[child], order[parent], after=came[child]))
    for bit in reversed(_bits(len(order))):
        for parent, child in _edges(len(order), bit):
            came[child].append(build.signal(order[parent], order[child], after=came[parent]))
