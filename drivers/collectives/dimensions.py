"""Dimension-wise AllReduce, in place: reduce-scatter along one dimension after the other, then
all-gather along them in the reverse order.

After the reduce-scatter of the first dimension each member holds a part of the sums over its line,
and only that part goes through the second dimension, and so on: each member sends as much as in a
ring of all, but in as many steps as the dimensions have together, not as their product has.

A dimension is one *stage*, a ring of all its members, or several: a dimension of 16 may be four
stages of pairs, whose members are 1, 2, 4 and 8 apart. Pairs take log2 n steps, and their paths
share links; rings take n − 1 steps over links of their own. ``shapes`` chooses.

Within a stage of f members, reduce-scatter is a ring: in turn t a member adds the chunk 1 + t below
its own into its successor's, so that after f − 1 turns it holds its own chunk complete. All-gather
turns the same way.

*Order.* A member's chunk gets a contribution in every stage, from another peer each time, and sums
depend on their order. So at the start of a stage a member tells the peer that will add to its
chunks that all of the stage before has arrived. The first such signal also says that the list has
begun.
"""

from __future__ import annotations

from collections.abc import Sequence

from .program import Kind, Move, Program, Slice
from .task import Region

__all__ = ["counters_of", "dimension_allreduce", "moves_of", "slices_of"]


def counters_of(factors: Sequence[int]) -> int:
    """Counters that each member needs per slice: one per stage, and one more where signals and
    data come from different members."""
    return sum(1 if factor == 2 else 2 for factor in factors)


def slices_of(count: int, dims: Sequence[Sequence[int]], slices: int, *, granule: int,
              rails: int = 1) -> tuple[Slice, ...]:
    """Cut ``count`` elements into slices. ``dims`` has the stages of each dimension.

    Slices go over the rails in turn. With several rails each begins with another dimension, and
    every other one goes around rings the other way, so that all links are in use. A rail alone
    sends no more than one link carries: there all slices go the same way, for two ways at once only
    get into each other's.
    """
    found = []
    for number, region in enumerate(Region(0, count).split(slices, granule)):
        rail = number % rails
        first = rail % len(dims) if dims else 0
        stages = tuple(stage for dim in (*dims[first:], *dims[:first]) for stage in dim)
        found.append(Slice(region, stages, -1 if rail % 2 else 1, rail))
    return tuple(found)


def moves_of(number: int, part: Slice, factors: Sequence[int]) -> list[Move]:
    """The moves of one slice, in an order in which each comes after what it waits for. Waits are
    places in this list."""
    base = number * counters_of(factors)
    counter = [base + counters_of(factors[:stage]) for stage in range(len(factors))]
    moves: list[Move] = []
    arrived: tuple[int, ...] = ()
    levels = list(enumerate(part.stages))
    for level, stage in levels:
        factor = factors[stage]
        step = part.direction if factor > 2 else 1
        signal = len(moves)
        moves.append(Move(
            kind=Kind.SIGNAL, slice=number, stage=stage, step=-step, waits=arrived,
            counter=counter[stage] + (factor > 2),
            serves=tuple(range(signal + 1, signal + factor))))
        for turn in range(factor - 1):
            moves.append(Move(
                kind=Kind.REDUCE, slice=number, stage=stage, step=step, level=level,
                chunk=-step * (1 + turn), counter=counter[stage], waits=(*arrived, signal)))
            arrived = (len(moves) - 1,)
    for level, stage in reversed(levels):
        factor = factors[stage]
        step = part.direction if factor > 2 else 1
        for turn in range(factor - 1):
            moves.append(Move(
                kind=Kind.WRITE, slice=number, stage=stage, step=step, level=level,
                chunk=-step * turn, counter=counter[stage], waits=arrived))
            arrived = (len(moves) - 1,)
    return moves


def dimension_allreduce(count: int, factors: Sequence[int], slices: Sequence[Slice],
                        order: Sequence[tuple[int, int]], *, granule: int = 1) -> Program:
    """Sum of ``count`` elements over as many members as the product of ``factors``.

    Parameters
    ----------
    order : sequence
        All moves, as (slice, place in the list of :func:`moves_of`), in the order of the lists.
    """
    sequences = [moves_of(number, part, factors) for number, part in enumerate(slices)]
    places = {key: place for place, key in enumerate(order)}

    def at(number: int, local: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(places[number, index] for index in local)

    moves = []
    for number, index in order:
        move = sequences[number][index]
        moves.append(Move(
            kind=move.kind, slice=number, stage=move.stage, step=move.step, level=move.level,
            chunk=move.chunk, counter=move.counter, waits=at(number, move.waits),
            serves=at(number, move.serves)))
    name = (f"dimension-wise allreduce of {count} elements over "
            f"{'·'.join(map(str, factors)) or '1'}")
    return Program(name, count, tuple(factors), granule, tuple(slices), tuple(moves))
