"""Rings: reduce-scatter and all-gather around one, and chains to and from a root.

The members form a ring in which neighbours are near each other. In reduce-scatter a chunk starts
behind its owner and goes once around to it; each member on the way adds its own share. In
all-gather each member's chunk goes around the other way of giving: everyone passes on what came
last. Each member sends n − 1 chunks in either, which is the least possible.

A step depends on what the predecessor sent one step earlier. Chunks are cut into *parts* that are
waited for one by one, so that the wait for a part is long over when its turn comes: a part must
arrive while the other parts of the chunk are being sent. The number of parts follows from the
latency of a step; few and large commands are cheaper.

*Bidirectional* rings halve every chunk; the halves go around in opposite directions, each on a rail
of its own where cards have two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hdl.params import CardParams

from .build import Arrival, Builder
from .schedule import Schedule
from .setting import AlgorithmError, Setting
from .task import Collective, Region, Task

__all__ = ["bidirectional", "ring", "ring_shape"]

#: Cycles of a step besides memory and links: command, both NICs, routers, counters.
_STEP_OVERHEAD = 64
#: Chunks have at least so many granules, so that rounding to whole ones costs little.
_GRANULES = 32
#: More parts than this gain nothing: commands begin to cost more than waiting.
_MOST_PARTS = 8
#: A chain has no chunks: it is as long as its group, and its parts are what it overlaps.
_MOST_CHAIN_PARTS = 32


def ring_shape(params: CardParams, members: int, count: int, item_size: int,
               hops: int) -> tuple[int, int]:
    """Return ``(granule, parts)`` for a ring whose neighbours are at most ``hops`` apart.

    Chunk boundaries are multiples of ``granule`` elements: whole packets if chunks have many of
    them, else whole flits, else single elements.
    """
    flit = params.link.flit_bytes
    chunk = count * item_size // max(1, members)
    granule = next((size for size in (params.nic.mtu, flit)
                    if chunk >= _GRANULES * size), item_size) // item_size
    cycles = -(-chunk // flit)
    latency = (2 * params.memory.latency + hops * params.link.latency + _STEP_OVERHEAD)
    # A part may take what a chunk takes, less a step's latency; twice that leaves room for stalls.
    part = max(cycles - 2 * latency, params.nic.mtu // flit, -(-cycles // _MOST_PARTS))
    return max(1, granule), max(1, -(-cycles // part))


def ring(task: Task, setting: Setting) -> Schedule:
    """Once around: allreduce, reduce_scatter, allgather; a chain for reduce and broadcast."""
    return _write("ring", task, setting, [(setting.ring, 0)])


def bidirectional(task: Task, setting: Setting) -> Schedule:
    """:func:`ring` in both directions at once, half of everything each way."""
    return _write("bidirectional ring", task, setting,
                  [(setting.ring, 0), (setting.ring[::-1], 1 % setting.rails)])


@dataclass(frozen=True)
class _Way:
    """One direction around: members in order, and the rail that it takes."""

    order: Sequence[int]
    rail: int
    parts: int
    granule: int

    @property
    def members(self) -> int:
        return len(self.order)

    def at(self, place: int) -> int:
        """Member at a place, modulo the ring's length."""
        return self.order[place % len(self.order)]

    def cut(self, regions: Sequence[Region]) -> list[tuple[Region, ...]]:
        """The same cut through regions of one size: parts that are not empty."""
        return [parts for parts in zip(*(region.split(self.parts, self.granule)
                                         for region in regions), strict=True) if parts[0].count]


#: A way's share of a region.
_Share = Callable[[Region], Region]


def _write(name: str, task: Task, setting: Setting,
           orders: Sequence[tuple[Sequence[int], int]]) -> Schedule:
    """Each of ``orders`` takes its share of every block."""
    writers = {Collective.ALLREDUCE: _allreduce, Collective.REDUCE_SCATTER: _reduce_scatter,
               Collective.ALLGATHER: _allgather, Collective.REDUCE: _reduce,
               Collective.BROADCAST: _broadcast}
    if task.kind not in writers:
        raise AlgorithmError(f"a ring serves {', '.join(map(str, writers))}, not {task.kind}")
    build = setting.builder(task)
    chain = task.kind in (Collective.REDUCE, Collective.BROADCAST)
    largest = task.total if task.kind.whole else max(task.counts) * task.members
    granule, parts = ring_shape(setting.params, 1 if chain else task.members,
                                largest // len(orders), setting.item_size, setting.hops)
    if chain:
        parts = _chain_parts(setting, task)
    for share, (order, rail) in enumerate(orders):
        way = _Way(order, rail, parts, granule)

        def mine(region: Region, share: int = share) -> Region:
            return region.split(len(orders), granule)[share]
        writers[task.kind](build, task, way, mine)
    return build.schedule(name)


def _chain_parts(setting: Setting, task: Task) -> int:
    """A chain of n members and P parts takes (n − 2 + P) times a part's cycles and latency; the
    best P is the root of what that trades."""
    cycles = -(-task.total * setting.item_size // setting.params.link.flit_bytes)
    latency = (2 * setting.params.memory.latency + setting.hops * setting.params.link.latency
               + _STEP_OVERHEAD)
    smallest = max(1, cycles * setting.params.link.flit_bytes // setting.params.nic.mtu)
    best = round((max(0, task.members - 2) * cycles / latency) ** 0.5)
    return max(1, min(best, smallest, _MOST_CHAIN_PARTS))


def _allreduce(build: Builder, task: Task, way: _Way, mine: _Share) -> None:
    n, everyone = way.members, range(way.members)
    whole = mine(Region(0, task.total))
    #: Of each chunk: where in the vector its parts are. Chunk c ends at the member at c − 1.
    chunks = [[(part.start, part.count) for part in chunk.split(way.parts, way.granule)
               if part.count] for chunk in whole.split(n, way.granule)]
    sums = [build.accumulator(member, task.input(member), task.output(member))
            for member in range(n)]
    came: dict[tuple[int, int, int], Arrival | None] = {}
    for turn in range(n - 1):
        for place in everyone:
            member, after = way.at(place), way.at(place + 1)
            for part, cut in enumerate(chunks[(place - turn) % n]):
                source = task.input(member) if turn == 0 else sums[member]
                came[turn, place, part] = build.send(
                    member, after, source.part(*cut), sums[after].part(*cut), rail=way.rail,
                    addend=task.input(after).part(*cut),
                    after=[came.get((turn - 1, (place - 1) % n, part))])
    gathered: dict[tuple[int, int, int], Arrival | None] = {}
    for turn in range(n - 1):
        for place in everyone:
            member, after = way.at(place), way.at(place + 1)
            for part, cut in enumerate(chunks[(place + 1 - turn) % n]):
                source = sums[member] if turn == 0 else task.output(member)
                previous = (came[n - 2, (place - 1) % n, part] if turn == 0
                            else gathered[turn - 1, (place - 1) % n, part])
                gathered[turn, place, part] = build.send(
                    member, after, source.part(*cut), task.output(after).part(*cut),
                    rail=way.rail, after=[previous])
                if turn == 0:
                    build.copy(member, source.part(*cut), task.output(member).part(*cut),
                               rail=way.rail)
    if n == 1:
        build.copy(0, mine(task.input(0)), mine(task.output(0)))


def _reduce_scatter(build: Builder, task: Task, way: _Way, mine: _Share) -> None:
    n = way.members
    if n == 1:
        build.copy(0, mine(task.block(0, 0)), mine(task.output(0)))
    came: dict[tuple[int, int, int], Arrival | None] = {}
    #: Partial sums of (member, block), part by part, while they are on their way.
    held: dict[tuple[int, int], list[Region]] = {}
    for turn in range(n - 1):
        for place in range(n):
            member, after = way.at(place), way.at(place + 1)
            block = way.at(place - 1 - turn)
            own = [part for part, in way.cut([mine(task.block(member, block))])]
            addends = [part for part, in way.cut([mine(task.block(after, block))])]
            sources = own if turn == 0 else held[member, block]
            last = turn == n - 2
            if last:
                targets = [part for part, in way.cut([mine(task.output(after))])]
            else:
                targets = [build.scratch(after, part.count, like=part) for part in addends]
                held[after, block] = targets
            for part, (source, target, addend) in enumerate(
                    zip(sources, targets, addends, strict=True)):
                came[turn, place, part] = build.add(
                    member, after, source, target, addend, rail=way.rail,
                    after=[came.get((turn - 1, (place - 1) % n, part))])


def _allgather(build: Builder, task: Task, way: _Way, mine: _Share) -> None:
    n = way.members
    came: dict[tuple[int, int, int], Arrival | None] = {}
    for turn in range(n - 1):
        for place in range(n):
            member, after = way.at(place), way.at(place + 1)
            block = way.at(place - turn)
            source = task.input(member) if turn == 0 else task.place(member, block)
            for part, (give, take) in enumerate(way.cut([mine(source),
                                                         mine(task.place(after, block))])):
                came[turn, place, part] = build.send(
                    member, after, give, take, rail=way.rail,
                    after=[came.get((turn - 1, (place - 1) % n, part))])
        if turn == 0:
            _copy_own(build, task, way, mine)
    if n == 1:
        _copy_own(build, task, way, mine)


def _copy_own(build: Builder, task: Task, way: _Way, mine: _Share) -> None:
    for member in range(way.members):
        build.copy(member, mine(task.input(member)), mine(task.place(member, member)),
                   rail=way.rail)


def _reduce(build: Builder, task: Task, way: _Way, mine: _Share) -> None:
    """Along the ring, and to the root at its end."""
    n = way.members
    first = list(way.order).index(task.root) + 1
    chain = [way.at(first + place) for place in range(n)]
    sources = [part for part, in way.cut([mine(task.input(chain[0]))])]
    arrivals: list[Arrival | None] = [None] * len(sources)
    for member, after in itertools.pairwise(chain):
        addends = [part for part, in way.cut([mine(task.input(after))])]
        targets = ([part for part, in way.cut([mine(task.output(after))])]
                   if after == task.root else
                   [build.scratch(after, part.count, like=part) for part in addends])
        arrivals = [build.add(member, after, source, target, addend, after=[arrival],
                              rail=way.rail)
                    for source, target, addend, arrival in zip(sources, targets, addends, arrivals,
                                                               strict=True)]
        sources = targets
    if n == 1:
        build.copy(0, mine(task.input(0)), mine(task.output(0)))


def _broadcast(build: Builder, task: Task, way: _Way, mine: _Share) -> None:
    n = way.members
    first = list(way.order).index(task.root)
    chain = [way.at(first + place) for place in range(n)]
    sources = [part for part, in way.cut([mine(task.input(task.root))])]
    arrivals: list[Arrival | None] = [None] * len(sources)
    for member, after in itertools.pairwise(chain):
        targets = [part for part, in way.cut([mine(task.output(after))])]
        arrivals = [build.send(member, after, source, target, after=[arrival], rail=way.rail)
                    for source, target, arrival in zip(sources, targets, arrivals, strict=True)]
        sources = targets
    build.copy(task.root, mine(task.input(task.root)), mine(task.output(task.root)))
