"""A group of cards and the collectives that it runs.

Collectives take one array per member, in the order of the group's cards, and start at one instant
on all of them. What each does with inputs and outputs is NCCL's: see the table of
:mod:`drivers.collectives.task`. In place means that the input *is* (a part of) the output: leave
``outputs`` (or ``inputs``) out.

Everything that software decides is decided before anything starts, so an error leaves the machine
as it was. Results are the same to the bit whenever inputs, group, algorithm, sizes and rails are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hdl.layouts import ReduceOp

from .collectives import (
    LARGEST,
    AlgorithmError,
    Buffer,
    Collective,
    NoShapeError,
    Placement,
    Program,
    Schedule,
    Setting,
    Shape,
    Task,
    algorithm_names,
    check_program,
    collective_bound,
    compile_program,
    compile_schedule,
    dimension_shape,
    fastest,
    proved_schedule,
)
from .device import DIRECT, LIST_QUEUE, Operation
from .dtypes import ElementType, reducible
from .handle import Handle
from .lease import Lease
from .memory import Array
from .spmd import GroupRank, Rounds

if TYPE_CHECKING:
    from .supernode import SuperNode

__all__ = ["OPERATORS", "Group", "reduction"]

#: Operators by name.
OPERATORS = {"sum": ReduceOp.SUM, "min": ReduceOp.MIN, "max": ReduceOp.MAX}
Arrays = Sequence[Array]


def reduction(dtype: ElementType, op: str) -> ReduceOp:
    """The operator called ``op``, for elements of ``dtype``.

    Raises
    ------
    ValueError
        If there is none, or cards do not reduce that type, with what they accept.
    """
    if op not in OPERATORS:
        raise ValueError(f"unknown operator {op!r}: accepted are {', '.join(OPERATORS)}")
    if dtype.name not in reducible():
        raise ValueError(f"cards reduce no {dtype}: accepted are {', '.join(reducible())}")
    return OPERATORS[op]


class _Plan(NamedTuple):
    """An algorithm, its proved schedule, the member of each of its lists, and why it."""

    algorithm: str
    schedule: Schedule | Program
    order: Sequence[int]
    reason: str


class Group:
    """Some cards of a machine, in an order that numbers them: member 0, 1, ….

    Parameters
    ----------
    supernode : SuperNode
    cards : sequence of int
        Ranks; all different.

    Raises
    ------
    ValueError
        If there are none, or one is named twice or does not exist.
    """

    def __init__(self, supernode: SuperNode, cards: Sequence[int]) -> None:
        supernode.topology.check_group(cards)
        self.supernode, self.cards = supernode, tuple(cards)
        #: What ranks have called, one by one.
        self.rounds = Rounds(self)

    def rank(self, member: int) -> GroupRank:
        """The view of one member, for code that every rank runs."""
        return GroupRank(self, self._member(member))

    def __len__(self) -> int:
        return len(self.cards)

    # --- collectives

    def allreduce(self, inputs: Arrays, outputs: Arrays | None = None, *, op: str = "sum",
                  algorithm: str = "auto") -> Handle:
        """Start the sum (or what else ``op`` says) of all inputs, to every output."""
        size = self._sizes(inputs)[0]
        task = Task(Collective.ALLREDUCE, len(self), (size,), in_place=outputs is None)
        return self.start(task, inputs, outputs or inputs, op, algorithm)

    def reduce(self, inputs: Arrays, output: Array | None = None, *, root: int = 0,
               op: str = "sum", algorithm: str = "auto") -> Handle:
        """Start the sum of all inputs, to ``output`` on member ``root``, or over its input."""
        size, place = self._sizes(inputs)[0], self._member(root)
        task = Task(Collective.REDUCE, len(self), (size,), root=place, in_place=output is None)
        return self.start(task, inputs, self._only(place, output or inputs[place]), op, algorithm)

    def broadcast(self, source: Array | None, outputs: Arrays, *, root: int = 0,
                  algorithm: str = "auto") -> Handle:
        """Start giving ``source`` on member ``root``, or its output as it is if that is ``None``,
        to all outputs."""
        size, place = self._sizes(outputs)[0], self._member(root)
        task = Task(Collective.BROADCAST, len(self), (size,), root=place, in_place=source is None)
        return self.start(task, self._only(place, source or outputs[place]), outputs, None,
                           algorithm)

    def allgather(self, inputs: Arrays | None, outputs: Arrays, *,
                  counts: Sequence[int] | None = None, algorithm: str = "auto") -> Handle:
        """Start giving every member's block to all: outputs hold all blocks, one behind the other.
        If ``inputs`` is ``None`` each member's block is in its output already. Blocks have
        ``counts`` elements, or are all alike."""
        counts = self._blocks(outputs, inputs, counts)
        task = Task(Collective.ALLGATHER, len(self), counts, in_place=inputs is None)
        return self.start(task, inputs or outputs, outputs, None, algorithm)

    def reduce_scatter(self, inputs: Arrays, outputs: Arrays | None = None, *,
                       counts: Sequence[int] | None = None, op: str = "sum",
                       algorithm: str = "auto") -> Handle:
        """Start the sum of all inputs, of which every member gets its block. Without ``outputs``
        the block replaces that of the input; the rest of it stays."""
        counts = self._blocks(inputs, outputs, counts)
        task = Task(Collective.REDUCE_SCATTER, len(self), counts, in_place=outputs is None)
        return self.start(task, inputs, outputs or inputs, op, algorithm)

    def gather(self, inputs: Arrays | Sequence[Array | None], output: Array, *, root: int = 0,
               counts: Sequence[int] | None = None, algorithm: str = "auto") -> Handle:
        """Start bringing every member's block to ``output`` on member ``root``, whose own may be
        ``None`` if it is there already."""
        place = self._member(root)
        counts = self._blocks([output], inputs, counts)
        task = Task(Collective.GATHER, len(self), counts, root=place,
                    in_place=inputs[place] is None)
        return self.start(task, inputs, self._only(place, output), None, algorithm)

    def scatter(self, source: Array, outputs: Arrays | Sequence[Array | None], *, root: int = 0,
                counts: Sequence[int] | None = None, algorithm: str = "auto") -> Handle:
        """Start giving every member its block of ``source`` on member ``root``, whose own output
        may be ``None`` if it needs no copy."""
        place = self._member(root)
        counts = self._blocks([source], outputs, counts)
        task = Task(Collective.SCATTER, len(self), counts, root=place,
                    in_place=outputs[place] is None)
        return self.start(task, self._only(place, source), outputs, None, algorithm)

    def alltoall(self, inputs: Arrays, outputs: Arrays | None = None, *,
                 counts: Sequence[Sequence[int]] | None = None,
                 algorithm: str = "auto") -> Handle:
        """Start giving from every member to every member a block. ``counts[p][q]`` are the elements
        from p to q; without it all are alike."""
        n = len(self)
        if counts is None:
            size = self._sizes(inputs)[0]
            if size % n:
                raise ValueError(f"{size} elements are no {n} blocks of one size")
            counts = ((size // n,) * n,) * n
        elif len(counts) != n or any(len(row) != n for row in counts):
            raise ValueError(f"counts must be {n} rows of {n} numbers")
        flat = tuple(int(count) for row in counts for count in row)
        task = Task(Collective.ALLTOALL, n, flat, in_place=outputs is None)
        return self.start(task, inputs, outputs or inputs, None, algorithm)

    def barrier(self, *, algorithm: str = "auto") -> Handle:
        """Start a barrier: it ends on no card before all cards have begun it."""
        task = Task(Collective.BARRIER, len(self), ())
        return self.start(task, [None] * len(self), [None] * len(self), None, algorithm)

    # --- arguments

    def _member(self, root: int) -> int:
        if not 0 <= root < len(self):
            raise ValueError(f"members are numbered from 0 to {len(self) - 1}, and {root} is none")
        return root

    def _only(self, member: int, array: Array) -> list[Array | None]:
        return [array if place == member else None for place in range(len(self))]

    def _sizes(self, arrays: Arrays) -> list[int]:
        if len(arrays) != len(self):
            raise ValueError(f"{len(arrays)} arrays for {len(self)} cards")
        return [array.size for array in arrays]

    def _blocks(self, whole: Arrays, parts: Sequence[Array | None] | None,
                counts: Sequence[int] | None) -> tuple[int, ...]:
        """Elements of each block, from what is there to tell."""
        if counts is not None:
            return tuple(map(int, counts))
        total = whole[0].size
        if parts is not None and all(array is not None for array in parts):
            return tuple(array.size for array in parts if array is not None)
        if total % len(self):
            raise ValueError(f"{total} elements are no {len(self)} blocks of one size")
        return (total // len(self),) * len(self)

    def _check(self, task: Task, inputs: Sequence[Array | None],
               outputs: Sequence[Array | None]) -> ElementType | None:
        """Check that arrays are where and what the task needs; return their type."""
        dtype: ElementType | None = None
        for name, arrays, buffer in (("input", inputs, Buffer.INPUT),
                                     ("output", outputs, Buffer.OUTPUT)):
            if len(arrays) != len(self):
                raise ValueError(f"{len(arrays)} {name}s for {len(self)} cards")
            for member, (card, array) in enumerate(zip(self.cards, arrays, strict=True)):
                size = task.size(member, buffer)
                if array is None:
                    if size:
                        raise ValueError(f"{task.kind}: member {member} has no {name}")
                    continue
                if dtype is None:
                    dtype = array.dtype
                if array.card != card or array.dtype != dtype:
                    raise ValueError(f"{task.kind}: the {name} of member {member} is "
                                     f"{array.dtype} on card {array.card}, and should be {dtype} "
                                     f"on card {card}")
                if size and array.size != size:
                    raise ValueError(f"{task.kind}: the {name} of member {member} has "
                                     f"{array.size} elements instead of {size}")
        return dtype

    # --- running

    def start(self, task: Task, inputs: Sequence[Array | None], outputs: Sequence[Array | None],
              op: str | None = None, algorithm: str = "auto") -> Handle:
        """Start any task: each member's buffers are as large as it says, and ``None`` or empty
        where it has none."""
        if algorithm not in algorithm_names():
            raise ValueError(f"unknown algorithm {algorithm!r}: accepted are "
                             f"{', '.join(algorithm_names())}")
        dtype = self._check(task, inputs, outputs)
        redop = ReduceOp.SUM
        if dtype and task.kind.reduces:
            redop = reduction(dtype, op or "sum")
        item = dtype.size if dtype else 1
        plan = self._plan(task, inputs, outputs, item, algorithm)
        name = f"{plan.algorithm} {task.kind}" + (f" of {task.total} {dtype}" if dtype else "")
        operation = Operation(f"{name} on {len(self)} cards")
        if isinstance(plan.schedule, Program):
            lease = self._stage_program(operation, plan.schedule,
                                        [outputs[member] for member in plan.order], redop)
        else:
            lease = self._stage_lists(operation, plan.schedule, inputs, outputs, dtype, redop)
        supernode = self.supernode
        bound = collective_bound(supernode.topology, supernode.params, self.cards, task, item)
        handle = supernode.launch(operation, bound, lease)
        handle.schedule, handle.algorithm = plan.schedule, plan.algorithm
        handle.reason = plan.reason
        handle.order = tuple(self.cards[member] for member in plan.order)
        return handle

    def _plan(self, task: Task, inputs: Sequence[Array | None], outputs: Sequence[Array | None],
              item: int, algorithm: str) -> _Plan:
        """What runs: the algorithm that is asked for, or the one that a model finds fastest."""
        shape = self._shape(task, item, algorithm)
        if algorithm == "dimensions":
            assert shape is not None
            return self._program(shape, "asked for")
        setting = self._setting(task, inputs, outputs, item)
        reason = "asked for"
        if algorithm == "auto":
            if len(self) > LARGEST and shape:
                return self._program(shape, f"the only one for more than {LARGEST} cards")
            supernode = self.supernode
            choice = fastest(
                task, setting, supernode.topology, supernode.params, self.cards,
                counters=min(supernode.devices[card].counters.free for card in self.cards),
                program=int(shape.cycles) if shape else None)
            algorithm, reason = choice.algorithm, choice.reason
            if algorithm == "dimensions":
                assert shape is not None
                return self._program(shape, reason)
        return _Plan(algorithm, proved_schedule(algorithm, task, setting), range(len(self)), reason)

    def _shape(self, task: Task, item: int, algorithm: str) -> Shape | None:
        """A dimension-wise program for ``task``; ``None`` if there is none, or none is wanted."""
        if task.kind is not Collective.ALLREDUCE or not task.in_place:
            if algorithm == "dimensions":
                raise AlgorithmError("dimensions serve allreduce in place")
            return None
        if algorithm not in ("auto", "dimensions"):
            return None
        supernode = self.supernode
        try:
            return dimension_shape(
                supernode.topology, supernode.params, tuple(sorted(self.cards)), task.total, item,
                counters=min(supernode.devices[card].counters.free for card in self.cards),
                entries=supernode.queue_entries)
        except NoShapeError:
            if algorithm != "auto":
                raise
            return None

    def _program(self, shape: Shape, reason: str) -> _Plan:
        check_program(shape.program)
        return _Plan("dimensions", shape.program,
                     [self.cards.index(card) for card in shape.cards], reason)

    def _setting(self, task: Task, inputs: Sequence[Array | None],
                 outputs: Sequence[Array | None], item: int) -> Setting:
        supernode = self.supernode
        flit = supernode.params.link.flit_bytes
        lanes = [tuple(array.offset % flit // item if array else 0 for array in pair)
                 for pair in zip(inputs, outputs, strict=True)]
        return Setting.of(supernode.topology, supernode.params, self.cards, item,
                          [(first, second) for first, second in lanes])

    def _stage_lists(self, operation: Operation, schedule: Schedule,
                     inputs: Sequence[Array | None], outputs: Sequence[Array | None],
                     dtype: ElementType | None, redop: ReduceOp) -> Lease:
        """Stage the lists of a schedule; return its counters and scratch."""
        supernode, devices = self.supernode, self.supernode.devices
        counters: dict[tuple[int, str], tuple[int, int]] = {}
        scratch = [0] * len(self)
        item = dtype.size if dtype else 1
        with Lease(devices) as lease:
            for position, name in schedule.arrivals:
                card = self.cards[position]
                counter = lease.counter(card)
                counters[position, name] = (counter, devices[card].counters.total(counter))
            for member, count in enumerate(schedule.scratch):
                if count:
                    scratch[member] = lease.memory(self.cards[member], count * item)
        placements = [
            Placement(supernode.topology.node_id(card), {
                Buffer.INPUT: entry.offset if entry else 0,
                Buffer.OUTPUT: result.offset if result else 0, Buffer.SCRATCH: place})
            for card, entry, result, place in zip(self.cards, inputs, outputs, scratch,
                                                  strict=True)]
        compiled = compile_schedule(schedule, placements, dtype, redop=redop,
                                    mtu=supernode.params.nic.mtu, counters=counters)
        for (position, name), packets in compiled.packets.items():
            devices[self.cards[position]].counters.expect(counters[position, name][0], packets)
        for card, commands, openings in zip(self.cards, compiled.lists, compiled.openings,
                                            strict=True):
            # What tells the peers that they may begin need not wait for the list to be fetched.
            apart = min(openings, devices[card].window)
            devices[card].stage(operation, DIRECT, commands[:apart])
            devices[card].stage(operation, LIST_QUEUE, commands[apart:])
        return lease

    def _stage_program(self, operation: Operation, program: Program,
                       members: Sequence[Array | None], redop: ReduceOp) -> Lease:
        """Stage the lists of a program; return its counters."""
        supernode, arrays = self.supernode, [array for array in members if array is not None]
        pools = [supernode.devices[array.card].counters for array in arrays]
        with Lease(supernode.devices) as lease:
            taken = [lease.counters(array.card, program.counters) for array in arrays]
        compiled = compile_program(
            program, [array.node for array in arrays], [array.offset for array in arrays],
            arrays[0].dtype, redop=redop, mtu=supernode.params.nic.mtu, counters=np.array(taken),
            before=np.array([[pool.total(counter) for counter in numbers]
                             for pool, numbers in zip(pools, taken, strict=True)]))
        for pool, numbers, packets in zip(pools, taken, compiled.packets.tolist(), strict=True):
            for counter, total in zip(numbers, packets, strict=True):
                pool.expect(counter, total)
        for array, commands in zip(arrays, compiled.lists, strict=True):
            supernode.devices[array.card].stage(operation, LIST_QUEUE, commands)
        return lease

