"""How far a card's queues have come, and with which commands: for reports of what is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hdl.layouts import NO_COUNTER, Op, field_slices
from hdl.layouts import Command as CommandLayout
from hdl.nic.commands import PREFETCH

from .commands import COMMAND_BYTES, Command

__all__ = ["Posted", "QueueState", "direct_state", "ring_state"]

_FIELDS = field_slices(CommandLayout)


@dataclass(frozen=True)
class Posted:
    """A command that was posted, by its number among those of its queue, from 0 on."""

    card: int
    queue: str
    index: int
    command: Command

    @property
    def name(self) -> str:
        return f"command {self.index} of {self.queue}"


@dataclass(frozen=True)
class QueueState:
    """How far a queue has come.

    Attributes
    ----------
    card, name :
        Whose it is, and what messages call it.
    first : int
        Number of the first command of ``raw``.
    raw : ndarray
        Its latest commands, a row of bytes each.
    end : int
        Number of the first command that has not begun, as far as that is known.
    unfetched : int
        Commands that the card has not fetched.
    wait : tuple or None
        Counter that the next command waits for, and the total.
    held : bool
        The next command waits for earlier ones to end, or for a slot.
    known : bool
        The next command is the one called ``end``.
    """

    card: int
    name: str
    first: int
    raw: np.ndarray
    end: int
    unfetched: int
    wait: tuple[int, int] | None
    held: bool
    known: bool

    def posted(self, index: int) -> Posted:
        """Command ``index`` of ``raw``."""
        return Posted(self.card, self.name, index,
                      Command.parse(self.raw[index - self.first].tobytes()))

    @property
    def next(self) -> Posted | None:
        """The command that is held, where that is known."""
        return self.posted(self.end) if self.known else None

    @property
    def begun(self) -> list[Posted]:
        """Commands that have ended or are under way."""
        return [self.posted(index) for index in range(self.first, self.end)]

    def raisers(self, node: int, card: int, counter: int) -> list[Posted]:
        """Commands that add to ``counter`` of ``card``, whose node id is ``node``."""
        moves = np.isin(self._field("op"), (Op.WRITE.value, Op.REDUCE.value))
        adds = moves & (self._field("target_counter") == counter) & (
            self._field("target.node") == node)
        if card == self.card and counter != NO_COUNTER:
            adds |= self._field("local_counter") == counter
        return [self.posted(self.first + int(row)) for row in np.flatnonzero(adds)]

    def _field(self, name: str) -> np.ndarray:
        """A field of whole bytes, of every command."""
        first, width = _FIELDS[name]
        places = self.raw[:, first // 8:(first + width) // 8].astype(np.int64)
        return places @ (1 << 8 * np.arange(width // 8))


def _wait(word: int) -> tuple[tuple[int, int] | None, bool]:
    """What register ``queue_wait`` says."""
    return (word >> 8 & 0xFF, word >> 32) if word & 1 else None, bool(word & 2)


def ring_state(card: int, name: str, ring: np.ndarray, tail: int, fetched: int,
               word: int) -> QueueState:
    """State of a queue whose ring in memory is ``ring``, a row per entry, after ``tail`` commands
    were posted; ``word`` is its ``queue_wait``."""
    first = max(0, tail - len(ring))
    raw = ring[np.arange(first, tail) % len(ring)]
    wait, held = _wait(word)
    state = QueueState(card, name, first, raw, fetched, tail - fetched, wait, held, False)
    # The register does not name the command, but says what it waits for.
    for index in range(max(first, fetched - PREFETCH), fetched):
        command = state.posted(index).command
        if (command.wait == wait) if wait else held and command.op == Op.FENCE:
            return QueueState(card, name, first, raw, index, tail - fetched, wait, held, True)
    return state


def direct_state(card: int, recent: Sequence[bytes], tail: int, taken: int,
                 word: int) -> QueueState:
    """State of the direct queue, whose latest commands were ``recent``."""
    raw = np.frombuffer(b"".join(recent), np.uint8).reshape(-1, COMMAND_BYTES)
    return QueueState(card, "the direct queue", tail - len(raw), raw, taken, 0, *_wait(word),
                      known=taken < tail)
