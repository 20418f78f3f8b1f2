"""The proof of a program: for one leaf of each slice, and so for all.

*Why one leaf is enough.* Say that every chunk has elements. Then the program looks the same from
every member: add a constant to the digits of all members, and to those of all leaves, and each
move is a move of the same place in the list, of the member and with the leaves that were moved.
So a fault that concerns some leaf concerns the leaf 0 of its slice too. Two leaves share no
element, and no two slices do.

*Why empty chunks change nothing.* What carries no elements is left out, and with it what only it
waited for. The proof for a leaf uses nothing but the order of one member's moves with that leaf,
their own waits, arrivals of moves with that leaf and the signals which these wait for. As long as
the leaf has elements, all of these are there.

Checked, and refused with the move named:

1. Moves stay within the program; what a move waits for comes earlier in the list, so the lists
   come to their end. All arrivals of a counter come from one peer, so their numbers name them.
2. A member adds to a peer's chunk, or writes over it, only where it may: for a REDUCE its own waits
   include a signal of the peer; what a WRITE brings must contain the peer's own contribution.
   Either way the peer's list has begun.
3. Of accesses to the leaf at one member each is over before the next one starts:

   * an arrival before the member sends the leaf on: the member's moves with the leaf wait for it;
   * an arrival before the next REDUCE: the signal for that REDUCE waits for it;
   * sending it on before a WRITE comes: the member has sent the leaf once only, so its
     contribution, which the WRITE contains, left with that move, and reached the writer through
     arrivals that were awaited, one after the other.

4. Every member ends with each contribution once.

That a member is done only when it has received everything is no question: the last step of each
list waits for all arrivals at all counters.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .checker import ScheduleError
from .program import Kind, Move, Program

__all__ = ["check_program"]


@lru_cache(maxsize=16)
def check_program(program: Program) -> None:
    """Prove ``program``.

    Raises
    ------
    ScheduleError
        If it cannot be proved.
    """
    _check_slices(program)
    _check_moves(program)
    for number in range(len(program.slices)):
        _Leaf(program, number).check()


def _refuse(program: Program, place: int, why: str) -> ScheduleError:
    return ScheduleError(f"{program.name}: {program.describe(place)} {why}")


def _check_slices(program: Program) -> None:
    end = 0
    for number, part in enumerate(program.slices):
        if part.region.start != end or part.region.count < 0:
            raise ScheduleError(f"{program.name}: slice {number} is {part.region} and does not "
                                f"begin at {end}")
        if sorted(part.stages) != list(range(len(program.factors))):
            raise ScheduleError(f"{program.name}: slice {number} does not name each stage once")
        end = part.region.end
    if end != program.count and program.moves:
        raise ScheduleError(f"{program.name}: slices end at {end} and not at {program.count}")


def _check_moves(program: Program) -> None:
    for place, move in enumerate(program.moves):
        if not (0 <= move.slice < len(program.slices) and 0 <= move.stage < len(program.factors)
                and 0 <= move.level < len(program.factors) and move.counter >= 0):
            raise _refuse(program, place, "names a slice, stage, level or counter that is not "
                                          "there")
        if move.step % program.factors[move.stage] == 0:
            raise _refuse(program, place, "has its own member as peer")
        first = program.moves[program.arrivals[move.counter][0]]
        rails = {program.slices[each.slice].rail for each in (first, move)}
        if not _same_peer(program, first, move) or len(rails) > 1:
            raise _refuse(program, place, "shares a counter with moves from another peer or rail, "
                                          "and their order is open")
        for awaited in move.waits:
            if not 0 <= awaited < place:
                raise _refuse(program, place, f"waits for move {awaited}, which does not come "
                                              "before it")
        for served in move.serves:
            if not 0 <= served < len(program.moves):
                raise _refuse(program, place, f"serves move {served}, which is not there")


def _same_peer(program: Program, a: Move, b: Move, sign: int = 1) -> bool:
    """Whether two moves go to the same peer, or from it if ``sign`` is −1."""
    return a.stage == b.stage and (a.step - sign * b.step) % program.factors[a.stage] == 0


class _Leaf:
    """Leaf 0 of a slice, at every member, while the program runs."""

    def __init__(self, program: Program, number: int) -> None:
        self._program, self._number = program, number
        members = program.members
        #: Contributions in each member's leaf, a bit each.
        self._held = np.zeros((members, -(-members // 8)), np.uint8)
        each = np.arange(members)
        self._held[each, each >> 3] = 0x80 >> (each & 7)
        #: Of each member: the move that arrived last, −1 for none, and whether the member has
        #: waited for it.
        self._arrived = np.full(members, -1)
        self._known = np.ones(members, bool)
        #: How often each member has sent the leaf, and whether it was written over.
        self._sent = np.zeros(members, np.int32)
        self._written = np.zeros(members, bool)

    def check(self) -> None:
        program = self._program
        for place, move in enumerate(program.moves):
            if move.slice != self._number or move.kind is Kind.SIGNAL:
                continue
            senders = np.flatnonzero(self._carries(move))
            receivers = program.shifted(move.stage, move.step)[senders]
            if np.intersect1d(senders, receivers).size:
                raise _refuse(program, place, "sends a chunk that it may get at the same time")
            self._sends(place, move, senders)
            if move.kind is Kind.REDUCE:
                self._reduce(place, move, senders, receivers)
            else:
                self._write(place, senders, receivers)
            self._arrived[receivers], self._known[receivers] = place, False
        everyone = np.packbits(np.ones(program.members, bool))
        short = np.flatnonzero((self._held != everyone).any(axis=1))
        if short.size:
            member = int(short[0])
            raise ScheduleError(
                f"{program.name}: leaf 0 of slice {self._number} ends at member {member} with "
                f"{np.bitwise_count(self._held[member]).sum()} of {program.members} contributions")

    def _carries(self, move: Move) -> np.ndarray:
        """The members whose chunk of ``move`` has leaf 0."""
        program = self._program
        stages = program.slices[self._number].stages
        carries = np.ones(program.members, bool)
        for level in range(move.level + 1):
            offset = move.chunk if level == move.level else 0
            factor = program.factors[stages[level]]
            carries &= (program.digits[stages[level]] + offset) % factor == 0
        return carries

    def _awaits(self, place: int, awaited: int) -> bool:
        """Whether the own waits of a move cover the arrival of another one: arrivals at a counter
        are numbered in the order of the list."""
        counter = self._program.moves[awaited].counter
        return any(self._program.moves[wait].counter == counter and wait >= awaited
                   for wait in self._program.moves[place].waits)

    def _sends(self, place: int, move: Move, senders: np.ndarray) -> None:
        open_ = senders[~self._known[senders]]
        for arrived in np.unique(self._arrived[open_]).tolist():
            if not self._awaits(place, arrived):
                raise _refuse(self._program, place, f"races with the arrival of move {arrived}, "
                                                    "for which it does not wait")
        self._known[senders] = True
        self._sent[senders] += 1

    def _reduce(self, place: int, move: Move, senders: np.ndarray, receivers: np.ndarray) -> None:
        program = self._program
        if self._sent[receivers].any() or self._written[receivers].any():
            raise _refuse(program, place, "adds to a chunk that its member has passed on")
        signals = [wait for wait in move.waits
                   if program.moves[wait].kind is Kind.SIGNAL
                   and place in program.moves[wait].serves
                   and _same_peer(program, program.moves[wait], move, sign=-1)]
        if not signals:
            raise _refuse(program, place, "touches the buffer of a peer that has not signalled "
                                          "that it is ready")
        for arrived in np.unique(self._arrived[receivers]).tolist():
            if arrived >= 0 and not any(self._awaits(signal, arrived) for signal in signals):
                raise _refuse(program, place, f"races with the arrival of move {arrived} at its "
                                              "peer, for which the peer's signal does not wait")
        if (self._held[receivers] & self._held[senders]).any():
            raise _refuse(program, place, "adds a contribution a second time")
        self._held[receivers] |= self._held[senders]

    def _write(self, place: int, senders: np.ndarray, receivers: np.ndarray) -> None:
        program = self._program
        if self._written[receivers].any():
            raise _refuse(program, place, "writes over a chunk a second time")
        if (self._sent[receivers] != 1).any():
            raise _refuse(program, place, "writes over a chunk that its member has not passed on "
                                          "just once")
        own = self._held[senders, receivers >> 3] >> (7 - (receivers & 7)) & 1
        if not own.all():
            raise _refuse(program, place, "races with its peer, whose contribution it does not "
                                          "have")
        self._held[receivers] = self._held[senders]
        self._written[receivers] = True
