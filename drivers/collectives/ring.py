"""Ring AllReduce in place: reduce-scatter with REDUCE, then all-gather with WRITE.

The buffer is cut into one chunk per member. In reduce-scatter step s member p adds its chunk p − s
into its successor's; after n − 1 steps member p holds chunk p + 1 complete, and in all-gather step
s passes chunk p + 1 − s on. Each member sends 2 (n − 1) chunks, which is the least possible.

A step depends on what the predecessor sent one step earlier. Chunks are cut into *parts* that are
waited for one by one, so that the wait for a part is long over when its turn comes: a part must
arrive while the other parts of the chunk are being sent. The number of parts follows from the
latency of a step; few and large commands are cheaper.

Before anything is sent, each member tells its predecessor that its own list has begun: its buffer
may be touched from then on.
"""

from __future__ import annotations

from functools import lru_cache

from hdl.params import CardParams

from .schedule import Done, Region, Schedule, Send, Signal, Step, Wait

__all__ = ["ring_allreduce", "ring_shape"]

#: Cycles of a step besides memory and links: command, both NICs, routers, counters.
_STEP_OVERHEAD = 64
#: Chunks have at least so many granules, so that rounding to whole ones costs little.
_GRANULES = 32
#: More parts than this gain nothing: commands begin to cost more than waiting.
_MOST_PARTS = 8


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


@lru_cache(maxsize=64)
def ring_allreduce(members: int, count: int, *, granule: int = 1, parts: int = 1) -> Schedule:
    """Sum of ``count`` elements over ``members`` in the order of the ring, in place.

    Parameters
    ----------
    members : int
        Size of the group; member p sends to p + 1.
    count : int
        Elements; any number, also fewer than members.
    granule : int
        Chunk and part boundaries are multiples of this many elements.
    parts : int
        Parts per chunk.
    """
    chunks = [[part for part in chunk.split(parts, granule) if part.count]
              for chunk in Region(0, count).split(members, granule)]
    turns = range(members - 1)

    def numbering(position: int, first: int) -> dict[tuple[int, int], int]:
        """Number, from 1 on, of each (turn, part) that a member sends in one of the halves."""
        keys = [(turn, part) for turn in turns
                for part in range(len(chunks[(position + first - turn) % members]))]
        return {key: number for number, key in enumerate(keys, 1)}

    def member(position: int) -> tuple[Step, ...]:
        before, after = (position - 1) % members, (position + 1) % members
        reduced, gathered = numbering(before, 0), numbering(before, 1)
        steps: list[Step] = []
        if members > 1 and count:
            steps.append(Signal(peer=before, notify="ready"))
        touched = False
        for reduce, first, arrived in ((True, 0, reduced), (False, 1, gathered)):
            for turn in turns:
                for part, region in enumerate(chunks[(position + first - turn) % members]):
                    name = "reduce" if reduce else "gather"
                    waits = [] if touched else [Wait("ready", 1)]
                    if turn:
                        waits.append(Wait(name, arrived[turn - 1, part]))
                    elif not reduce:
                        waits.append(Wait("reduce", reduced[members - 2, part]))
                    steps.append(Send(peer=after, source=region, target=region, reduce=reduce,
                                      notify=name, waits=tuple(waits)))
                    touched = True
        ends = (("ready", int(members > 1 and count > 0)), ("reduce", len(reduced)),
                ("gather", len(gathered)))
        steps.append(Done(waits=tuple(Wait(name, sends) for name, sends in ends if sends)))
        return tuple(steps)

    everyone = ((Region(0, count), frozenset(range(members))),)
    return Schedule(f"ring allreduce of {count} elements over {members}", count,
                    tuple(member(position) for position in range(members)), (everyone,) * members)
