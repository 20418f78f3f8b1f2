"""The shape of a dimension-wise AllReduce: rings and pairs in each dimension, how many slices, and
the order of every member's list.

Choices are judged by a model of one card, which stands for all since all do the same at the same
time: it starts a command every few cycles, sends a flit a cycle and rail, and what it sends arrives
a known latency later. Where paths share a link, sending takes as many times longer. The model's
order of starts becomes the order of the list; a model that is wrong costs cycles, never a result.

Among moves that could start at once signals go first, since a peer waits for them and they cost
next to nothing; then what could have started earliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from hdl.params import CardParams
from hdl.topology import Topology

from .dimensions import counters_of, dimension_allreduce, moves_of, slices_of
from .lines import Line, lines_of
from .program import Kind, Move, Program, Slice

__all__ = ["NoShapeError", "Shape", "dimension_shape"]

#: Cycles from one command of a list to the next.
_ISSUE = 5
#: Cycles of a message besides memory, links and its own flits: NICs at both ends, counters.
_OVERHEAD = 22
#: Cycles that an adder takes besides the reading of memory.
_ADDER = 6
_SLICES = (1, 2, 4, 6, 8)
#: A way that the model finds better by less than this is no better.
_WORTH = 0.99
#: Chunks have at least so many granules, so that rounding to whole ones costs little.
_GRANULES = 32


class Shape(NamedTuple):
    """A program, the card of each of its members, and the cycles that the model gives it."""

    program: Program
    cards: tuple[int, ...]
    cycles: float


class NoShapeError(ValueError):
    """The group or the cards do not allow a dimension-wise AllReduce."""


@dataclass(frozen=True)
class _Stage:
    """What the model knows of a stage."""

    factor: int
    flight: int
    load: int


@dataclass(frozen=True)
class _Way:
    """One way to run a dimension: its stages, and its coordinates in the order of their digits."""

    stages: tuple[_Stage, ...]
    order: tuple[int, ...]


@lru_cache(maxsize=16)
def dimension_shape(topology: Topology, params: CardParams, ranks: tuple[int, ...], count: int,
                    item_size: int, *, counters: int, entries: int) -> Shape:
    """Choose the shape of an AllReduce of ``count`` elements over the cards ``ranks``.

    Parameters
    ----------
    counters : int
        That each card has to spare.
    entries : int
        Commands of a list, not more than these if there is a choice.

    Raises
    ------
    NoShapeError
        If the group is no box, or cards have too few counters.
    """
    lines = lines_of(topology, ranks)
    if lines is None:
        raise NoShapeError(f"a dimension-wise allreduce takes a whole machine or a box of it, and "
                           f"these {len(ranks)} cards of {topology.spec} are none")
    base = min(ranks, default=0) - sum(line.places[0] * line.stride for line in lines)
    best: tuple[float, Program, tuple[_Way, ...]] | None = None
    fewest = 0
    for ways in product(*(_ways(topology, params, line, base) for line in lines)):
        stages = [stage for way in ways for stage in way.stages]
        factors = tuple(stage.factor for stage in stages)
        granule = _granule(params, count * item_size, prod(factors), item_size)
        need = counters_of(factors)
        fewest = min(fewest or need, need)
        for slices in _SLICES if count and factors else _SLICES[:1]:
            commands = slices * 3 * sum(factor - 1 for factor in factors)
            # Half of the counters at the most, for others that are under way or have failed.
            if slices * need > (counters if slices == 1 else counters // 2) or (
                    commands > entries and best is not None):
                break
            parts = slices_of(count, _numbered(ways), slices, granule=granule, rails=params.rails)
            cycles, order = _run(params, stages, parts, count * item_size / slices)
            if best is None or cycles < _WORTH * best[0]:
                best = cycles, dimension_allreduce(count, factors, parts, order,
                                                   granule=granule), ways
    if best is None:
        raise NoShapeError(f"a dimension-wise allreduce of {len(ranks)} cards of {topology.spec} "
                           f"needs {fewest} counters of each, and one has {counters} free")
    ranks_of = [base]
    for line, way in zip(lines, best[2], strict=True):
        ranks_of = [rank + place * line.stride for place in way.order for rank in ranks_of]
    return Shape(best[1], tuple(ranks_of), best[0])


def _ways(topology: Topology, params: CardParams, line: Line, base: int) -> list[_Way]:
    """Rings of neighbours and, above them, pairs (or rings of other primes), near to far."""
    found = []
    for ring in range(2, line.size + 1):
        if line.size % ring:
            continue
        order, stages, stride = line.rings(ring), [], 1
        for factor in (ring, *_primes(line.size // ring)):
            stages.append(_Stage(
                factor, line.flight(topology, order, stride, factor, base, params.link.latency),
                line.load(order, stride, factor)))
            stride *= factor
        found.append(_Way(tuple(stages), order))
    return found


def _primes(number: int) -> list[int]:
    found, prime = [], 2
    while number > 1:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return found


def _numbered(ways: Sequence[_Way]) -> list[tuple[int, ...]]:
    """The numbers of the stages of each dimension."""
    found, first = [], 0
    for way in ways:
        found.append(tuple(range(first, first + len(way.stages))))
        first += len(way.stages)
    return found


def _granule(params: CardParams, size: int, members: int, item_size: int) -> int:
    """Elements at whose multiples chunks are cut: whole packets if leaves have many of them, else
    whole flits, else single elements."""
    leaf = size // max(1, members)
    return max(1, next((each for each in (params.nic.mtu, params.link.flit_bytes)
                        if leaf >= _GRANULES * each), item_size) // item_size)


def _run(params: CardParams, stages: Sequence[_Stage], parts: Sequence[Slice],
         size: float) -> tuple[float, list[tuple[int, int]]]:
    """The model: cycles until everything has arrived, and the order of starts."""
    factors = [stage.factor for stage in stages]
    waiting = [moves_of(number, part, factors) for number, part in enumerate(parts)]
    arrival: list[list[float]] = [[] for _ in parts]
    free = [0.0] * params.rails
    retired = [0.0] * params.rails
    now = 0.0
    order: list[tuple[int, int]] = []
    alive = [number for number, moves in enumerate(waiting) if moves]

    def ready(number: int) -> float:
        done = arrival[number]
        return max((done[wait] for wait in waiting[number][len(done)].waits), default=0.0)

    def signals(number: int) -> bool:
        return waiting[number][len(arrival[number])].kind is Kind.SIGNAL

    starts = {number: ready(number) for number in alive}
    while alive:
        # A command may start while others are being sent: memory is read ahead.
        horizon = max(now, min(free) - params.memory.latency)
        able = [each for each in alive if starts[each] <= horizon]
        number = min(able or alive, key=lambda each: (bool(able) and not signals(each),
                                                      starts[each]))
        index = len(arrival[number])
        move, part = waiting[number][index], parts[number]
        start = max(now, starts[number])
        sent, arrived = _sends(params, stages[move.stage], move,
                               size / prod(factors[stage] for stage in
                                           part.stages[:move.level + 1]), start, free[part.rail])
        # Receivers retire packets in the order in which they come.
        arrived = retired[part.rail] = max(arrived, retired[part.rail] + 1)
        free[part.rail] = sent
        now = start + _ISSUE
        arrival[number].append(arrived)
        order.append((number, index))
        if index + 1 == len(waiting[number]):
            alive.remove(number)
        else:
            starts[number] = ready(number)
    return max((done[-1] for done in arrival if done), default=0.0), order


def _sends(params: CardParams, stage: _Stage, move: Move, size: float, start: float,
           free: float) -> tuple[float, float]:
    """When the rail is free again, and when the message has arrived."""
    memory = params.memory.latency
    if move.kind is Kind.SIGNAL:
        sent = max(start, free) + 1
        return sent, sent + stage.flight + _OVERHEAD
    flits = size / params.link.flit_bytes + max(1.0, size / params.nic.mtu)
    sent = max(start + memory, free) + max(flits, 2.0) * stage.load
    after = memory + _ADDER if move.kind is Kind.REDUCE else 0
    return sent, sent + stage.flight + _OVERHEAD + after
