"""From a program to packed command lists, all members at once.

The rules are those of ``compiler``: a wait for arrivals becomes a wait for a counter's total, a
move with more than one open wait is preceded by NOPs, a wait that an earlier one of the list covers
is left out, and a FENCE that waits for everything ends each list and signals the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drivers.commands import COMMAND_BYTES, Command, CommandList, put_field
from drivers.dtypes import ElementType
from hdl.layouts import Op, ReduceOp

from .program import Kind, Program

__all__ = ["CompiledProgram", "compile_program"]


@dataclass(frozen=True)
class CompiledProgram:
    """Command list of each member, and packets that each of its counters receives: members ×
    counters."""

    lists: list[CommandList]
    packets: np.ndarray


def compile_program(program: Program, nodes: Sequence[int], addresses: Sequence[int],
                    dtype: ElementType, *, mtu: int, counters: np.ndarray, before: np.ndarray,
                    redop: ReduceOp = ReduceOp.SUM) -> CompiledProgram:
    """Compile ``program``.

    Parameters
    ----------
    nodes, addresses : sequence of int
        Of each member: its node, and the offset of its buffer in that card's memory.
    mtu : int
        Where packets split.
    counters, before : ndarray
        Members × counters: number of each counter on that member's card, and its total before the
        collective.
    """
    return _Compiler(program, nodes, addresses, dtype, redop, mtu, counters,
                     before).compile()


class _Compiler:
    def __init__(self, program: Program, nodes: Sequence[int], addresses: Sequence[int],
                 dtype: ElementType, redop: ReduceOp, mtu: int, counters: np.ndarray,
                 before: np.ndarray) -> None:
        self._program, self._dtype, self._redop = program, dtype, redop
        self._nodes, self._addresses = np.array(nodes), np.array(addresses)
        self._counters, self._before = counters, before
        members = program.members
        #: Packets at the move's counter up to and with the move, at each member.
        self._totals = np.zeros((len(program.moves), members), np.int64)
        for places in program.arrivals.values():
            total = np.zeros(members, np.int64)
            for place in places:
                move = program.moves[place]
                total = total + self._packets(place, mtu)[program.shifted(move.stage, -move.step)]
                self._totals[place] = total
        #: Arrivals at each counter that the list has waited for so far.
        self._passed = np.zeros((program.counters, members), np.int32)
        #: Rows of commands: which members have them, and what.
        self._there: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []

    def compile(self) -> CompiledProgram:
        program = self._program
        for place in range(len(program.moves)):
            self._move(place)
        end = np.ones(program.members, bool)
        fence = self._commands(Command(op=Op.FENCE, signal=True))
        self._waits(program.last, end, fence)
        self._add(end, fence)
        there = np.array(self._there)
        lengths = there.sum(axis=0)
        raw = np.empty((program.members, lengths.max(), COMMAND_BYTES), np.uint8)
        places = np.cumsum(there, axis=0) - 1
        for has, place, rows in zip(there, places, self._rows, strict=True):
            members = np.flatnonzero(has)
            raw[members, place[members]] = rows
        lists = []
        for member, length in enumerate(lengths.tolist()):
            signals = np.zeros(length, bool)
            signals[-1] = True
            lists.append(CommandList(raw[member, :length], signals))
        packets = np.zeros((program.members, program.counters), np.int64)
        for counter, arriving in program.arrivals.items():
            packets[:, counter] = self._totals[arriving[-1]]
        return CompiledProgram(lists, packets)

    def _packets(self, place: int, mtu: int) -> np.ndarray:
        """Packets that each member's move makes."""
        program, move = self._program, self._program.moves[place]
        there = program.there[place]
        if move.kind is Kind.SIGNAL:
            return there.astype(np.int64)
        starts, counts = program.regions(place)
        targets = self._addresses[program.shifted(move.stage, move.step)]
        offset = (targets + starts * self._dtype.size) % mtu
        return np.where(there, -(-(offset + counts * self._dtype.size) // mtu), 0)

    def _commands(self, command: Command) -> np.ndarray:
        raw = np.frombuffer(command.pack(), np.uint8)
        return np.tile(raw, (self._program.members, 1))

    def _add(self, there: np.ndarray, rows: np.ndarray) -> None:
        self._there.append(there)
        self._rows.append(rows[there])

    def _move(self, place: int) -> None:
        program, move = self._program, self._program.moves[place]
        there = program.there[place]
        if not there.any():
            return
        assert self._dtype.code is not None
        rows = self._commands(Command(
            op=Op.REDUCE if move.kind is Kind.REDUCE else Op.WRITE, dtype=self._dtype.code,
            redop=self._redop, rail=program.slices[move.slice].rail))
        peers = program.shifted(move.stage, move.step)
        starts = np.zeros(program.members, np.int64)
        if move.kind is not Kind.SIGNAL:
            starts, counts = program.regions(place)
            put_field(rows, ("length",), counts * self._dtype.size)
            put_field(rows, ("source",), self._addresses + starts * self._dtype.size)
        put_field(rows, ("target", "node"), self._nodes[peers])
        put_field(rows, ("target", "offset"), self._addresses[peers] + starts * self._dtype.size)
        put_field(rows, ("target_counter",), self._counters[peers, move.counter])
        self._waits(move.waits, there, rows)
        self._add(there, rows)

    def _waits(self, waits: Sequence[int], there: np.ndarray, rows: np.ndarray) -> None:
        """Let commands wait; all but the last wait of each are NOPs before it."""
        program = self._program
        open_ = []
        for wait in waits:
            passed, number = self._passed[program.moves[wait].counter], program.numbers[wait]
            open_.append(there & (number > passed))
            np.maximum(passed, number, out=passed, where=there)
        later = np.zeros(program.members, bool)
        nops = []
        for wait, needed in reversed(list(zip(waits, open_, strict=True))):
            self._wait(wait, needed & ~later, rows)
            if (both := needed & later).any():
                nop = self._commands(Command(op=Op.NOP))
                self._wait(wait, both, nop)
                nops.append((both, nop))
            later |= needed
        for both, nop in reversed(nops):
            self._add(both, nop)

    def _wait(self, place: int, where: np.ndarray, rows: np.ndarray) -> None:
        counter = self._program.moves[place].counter
        members = np.flatnonzero(where)
        part = rows[members]
        put_field(part, ("flags", "wait"), 1)
        put_field(part, ("wait_counter",), self._counters[members, counter])
        put_field(part, ("wait_value",), self._before[members, counter]
                  + self._totals[place, members] & 0xFFFF_FFFF)
        rows[members] = part
