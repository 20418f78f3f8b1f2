"""From a schedule to command lists: cards, addresses, counter numbers, packet totals, flags.

A wait for arrivals becomes a wait for a counter's total: its value before the collective plus the
packets of those arrivals, which addresses and lengths determine exactly. A step that waits for more
than one counter is preceded by NOPs that wait for the others; a wait that an earlier one of the
list covers is left out. The last command of each list is a FENCE that waits for all that the member
receives and signals its host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from drivers.commands import Command, packet_count
from drivers.dtypes import DTYPES, ElementType
from hdl.layouts import DType, Op, ReduceOp

from .schedule import Schedule, Send, Signal, Step, Wait
from .task import Buffer, Region

__all__ = ["CompiledSchedule", "Placement", "compile_schedule"]


@dataclass(frozen=True)
class Placement:
    """Where a member is: its node, and the offsets of its buffers in that card's memory."""

    node: int
    buffers: Mapping[Buffer, int]

    def address(self, region: Region, item_size: int) -> int:
        """Offset of a region's first byte."""
        return self.buffers[region.buffer] + region.start * item_size


@dataclass(frozen=True)
class CompiledSchedule:
    """Command list of each member, and packets that each (member, counter) receives in all.

    The first ``openings`` commands of a list only say that the member has begun. They may be posted
    apart from the others, at the same instant: nothing is in the order of the list with them.
    """

    lists: tuple[tuple[Command, ...], ...]
    openings: tuple[int, ...]
    packets: Mapping[tuple[int, str], int]


def compile_schedule(schedule: Schedule, placements: Sequence[Placement],
                     dtype: ElementType | None, *, mtu: int,
                     counters: Mapping[tuple[int, str], tuple[int, int]],
                     redop: ReduceOp = ReduceOp.SUM) -> CompiledSchedule:
    """Compile ``schedule``; ``dtype`` is ``None`` if it moves nothing.

    Parameters
    ----------
    placements : sequence of Placement
        Of each member.
    mtu : int
        Where packets split.
    counters : mapping
        Of each (member, counter name) in ``schedule.arrivals``: number of the counter on that
        member's card, and its total before the collective.
    """
    dtype = dtype or DTYPES["u8"]
    # Running packet totals of each counter's arrivals.
    totals = {key: list(accumulate(
        _packets(schedule.lists[position][index], placements, dtype, mtu)
        for position, index in arrivals)) for key, arrivals in schedule.arrivals.items()}

    def wait_of(position: int, wait: Wait) -> tuple[int, int]:
        number, before = counters[position, wait.counter]
        return number, before + totals[position, wait.counter][wait.sends - 1]

    lists = []
    for position, steps in enumerate(schedule.lists):
        commands: list[Command] = []
        passed: dict[str, int] = {}
        for step in steps:
            waits = [wait_of(position, wait) for wait in step.waits
                     if passed.get(wait.counter, 0) < wait.sends]
            passed.update((wait.counter, max(wait.sends, passed.get(wait.counter, 0)))
                          for wait in step.waits)
            commands += [Command(op=Op.NOP, wait=wait) for wait in waits[:-1]]
            commands.append(_command(step, position, placements, dtype, redop, counters,
                                     waits[-1] if waits else None))
        lists.append(tuple(commands))
    openings = tuple(len(list(takewhile(_opens, steps))) for steps in schedule.lists)
    return CompiledSchedule(tuple(lists), openings,
                            {key: total[-1] for key, total in totals.items()})


def _opens(step: Step) -> bool:
    return isinstance(step, Signal) and not step.waits


def _packets(step: Step, placements: Sequence[Placement], dtype: ElementType, mtu: int) -> int:
    if not isinstance(step, Send):
        return 1
    address = placements[step.peer].address(step.target, dtype.size)
    return packet_count(address, step.target.count * dtype.size, mtu)


def _command(step: Step, position: int, placements: Sequence[Placement], dtype: ElementType,
             redop: ReduceOp, counters: Mapping[tuple[int, str], tuple[int, int]],
             wait: tuple[int, int] | None) -> Command:
    if isinstance(step, Send):
        peer = placements[step.peer]
        return Command(op=Op.REDUCE if step.addend else Op.WRITE, wait=wait, rail=step.rail,
                       source=placements[position].address(step.source, dtype.size),
                       node=peer.node, address=peer.address(step.target, dtype.size),
                       length=step.source.count * dtype.size, dtype=dtype.code or DType.F32,
                       redop=redop,
                       addend=(None if step.addend in (None, step.target)
                               else peer.address(step.addend, dtype.size)),
                       target_counter=counters[step.peer, step.notify][0])
    if isinstance(step, Signal):
        peer = placements[step.peer]
        return Command(op=Op.WRITE, wait=wait, node=peer.node, address=peer.buffers[Buffer.OUTPUT],
                       rail=step.rail, target_counter=counters[step.peer, step.notify][0])
    return Command(op=Op.FENCE, wait=wait, signal=True)
