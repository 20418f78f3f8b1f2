"""One card: its command ring, doorbell window, completion ring and counters.

Flow control, all of it on the host's side:

* *Command ring*: a command is written only where the card has fetched the old one; what does not
  fit stays in ``waiting`` until :func:`refresh` has seen the card's total of fetched
  commands move. Completions move it too, without asking: a command that is done was fetched.
* *Doorbell window*: the same with the total of direct commands taken.
* *Completion ring*: never more signalling commands are under way than the ring has records. (The
  card holds completions while its ring is full, so errors of commands that do not signal are not
  lost either.)

Posting has two steps, so that many cards start at one instant: :meth:`Device.stage` gathers
commands, :meth:`Device.post` writes and rings, and lets no time pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from hdl.layouts import CYCLE_BITS
from hdl.params import NicParams
from hdl.registers import IDENT, RegisterMap

from .backend import Backend
from .commands import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    Command,
    CommandList,
    CompletionRecord,
)
from .counters import TOTAL_MASK, CounterPool
from .faults import describe_error
from .memory import Allocator
from .queues import QueueState, direct_state, ring_state

__all__ = ["DIRECT", "LIST_QUEUE", "Device", "Operation", "refresh", "start_devices"]

#: Queue of command lists.
LIST_QUEUE = 0
#: Stands for the direct queue behind the doorbell window.
DIRECT = -1


@dataclass(eq=False)
class Operation:
    """Commands on one or more cards that belong together.

    Attributes
    ----------
    name : str
        For messages.
    pending : dict
        Of each card that takes part: completion records still to come.
    records : list
        Completion records that have come.
    """

    name: str
    pending: dict[int, int] = field(default_factory=dict)
    records: list[CompletionRecord] = field(default_factory=list)

    @property
    def errors(self) -> list[CompletionRecord]:
        return [record for record in self.records if not record.ok]

    @property
    def silent(self) -> list[int]:
        """Cards from which records are still to come, and that have reported no error."""
        failed = {record.card for record in self.errors}
        return [card for card in self.unfinished if card not in failed]

    @property
    def unfinished(self) -> list[int]:
        """Cards from which records are still to come."""
        return [card for card, left in self.pending.items() if left]

    @property
    def done(self) -> bool:
        """Whether the operation has ended, in success or with an error."""
        return not self.unfinished or bool(self.errors)


@dataclass(eq=False)
class _Staged:
    """What one call has staged: a list under one tag, of which ``taken`` commands are posted."""

    operation: Operation
    tag: int
    commands: CommandList
    taken: int = 0

    @property
    def left(self) -> int:
        return len(self.commands) - self.taken

    def take(self, room: int, signals: int) -> tuple[np.ndarray, int]:
        """The next commands, not more than ``room`` and not more than ``signals`` of them
        signalling; and how many of them signal."""
        end = self.taken + min(room, self.left)
        places = np.flatnonzero(self.commands.signals[self.taken:end])
        if len(places) > signals:
            end = self.taken + int(places[signals])
        rows = self.commands.raw[self.taken:end]
        self.taken = end
        return rows, min(len(places), signals)


@dataclass
class _Queue:
    """A command ring, or the doorbell window, from the host's side. Totals modulo 2^32."""

    index: int
    entries: int
    base: int
    tail: int = 0
    #: Total that the card is known to have taken.
    head: int = 0
    waiting: deque[_Staged] = field(default_factory=deque)

    @property
    def backlog(self) -> int:
        """Commands that wait to be posted."""
        return sum(staged.left for staged in self.waiting)

    @property
    def room(self) -> int:
        return self.entries - ((self.tail - self.head) & TOTAL_MASK)

    def taken(self, total: int) -> None:
        """Note that the card has taken ``total`` commands; older news changes nothing."""
        if (total - self.head) & TOTAL_MASK <= self.entries:
            self.head = total


class Device:
    """The driver of one card. :func:`start_devices` is called before anything else.

    Parameters
    ----------
    backend : Backend
        The machine, fresh from reset: all totals are 0.
    rank : int
        The card.
    queue_entries, completion_entries : int
        Sizes of the rings in card memory, powers of two.
    deadline : int
        Cycles after which the card gives up on a command, 0 for never.

    Attributes
    ----------
    memory : Allocator
        All of the card's memory but the rings, which lie at its top.
    counters : CounterPool

    Raises
    ------
    ValueError
        If a size is no power of two, or memory is too small for the rings.
    """

    def __init__(self, backend: Backend, rank: int, *, queue_entries: int = 256,
                 completion_entries: int = 256, deadline: int = 0) -> None:
        for name, value in (("queue_entries", queue_entries),
                            ("completion_entries", completion_entries)):
            if value < 2 or value & value - 1:
                raise ValueError(f"{name} must be a power of two from 2 on, not {value}")
        if not 0 <= deadline < 1 << CYCLE_BITS:
            raise ValueError(f"deadline must be from 0 to 2**{CYCLE_BITS} - 1, not {deadline}")
        nic = backend.params.nic
        self.backend = backend
        self.rank = rank
        self._registers = _register_map(nic, backend.params.router.links)
        size = queue_entries * COMMAND_BYTES + completion_entries * COMPLETION_BYTES
        top = (backend.memory_bytes - size) // COMMAND_BYTES * COMMAND_BYTES
        if top < 0:
            raise ValueError(f"{backend.memory_bytes} bytes of memory cannot hold rings of {size}")
        self.memory = Allocator(f"card {rank}", 0, top, align=nic.mtu)
        self.counters = CounterPool(f"card {rank}", nic.counters)
        self._lists = _Queue(LIST_QUEUE, queue_entries, top)
        self._direct = _Queue(nic.queues, nic.direct_depth, 0)
        #: Direct commands that may not have ended: memory does not hold them.
        self._recent: deque[bytes] = deque(maxlen=nic.direct_depth + nic.slots)
        self._records = top + queue_entries * COMMAND_BYTES
        self._record_count = completion_entries
        #: Total of completion records consumed.
        self.consumed = 0
        #: Signalling commands that were posted and have not completed.
        self._signals = 0
        self._operations: dict[int, Operation] = {}
        self._next_tag = 0
        #: Of each tag under way, and each of the two queues that it was posted to: the queue's tail
        #: after its last command so far. The second is whether it is the direct queue.
        self._tails: dict[tuple[int, bool], int] = {}
        self._waited = 0
        self._deadline = deadline

    def identity(self) -> list[tuple[int, int]]:
        """Card and offset of the registers that say what the card is."""
        return [(self.rank, self._registers.ident.at()), (self.rank, self._registers.node.at())]

    def start(self, ident: int, node: int) -> None:
        """Set up the rings, knowing what the card says it is.

        Raises
        ------
        RuntimeError
            If it does not identify itself as this card.
        """
        if ident != IDENT:
            raise RuntimeError(f"card {self.rank} identifies itself as {ident:#x}, not {IDENT:#x}: "
                               f"it has another register map")
        expected = self.backend.topology.node_id(self.rank)
        if node != expected:
            raise RuntimeError(f"card {self.rank} has node id {node:#x} instead of {expected:#x}")
        ring = self._record_count * COMPLETION_BYTES
        self.backend.memory_write(self.rank, self._records, np.zeros(ring, np.uint8))
        self.write(self._registers.deadline.at(), self._deadline)
        self.write(self._registers.completion_base.at(), self._records)
        self.write(self._registers.completion_size.at(), self._record_count)
        self.write(self._registers.queue_base.at(LIST_QUEUE), self._lists.base)
        self.write(self._registers.queue_size.at(LIST_QUEUE), self._lists.entries)

    def read(self, offset: int) -> int:
        """Read a register; time passes."""
        return self.backend.register_read(self.rank, offset)

    def write(self, offset: int, value: int) -> None:
        """Write a register, posted."""
        self.backend.register_write(self.rank, offset, value)

    # --- posting

    def stage(self, operation: Operation, queue: int,
              commands: Sequence[Command] | CommandList) -> None:
        """Append ``commands``, in order, to what waits to be posted in ``queue``
        (:data:`LIST_QUEUE` or :data:`DIRECT`). All of them carry one tag."""
        tag = self._tag(operation)
        staged = commands if isinstance(commands, CommandList) else CommandList.of(commands)
        staged.label(tag)
        signals = int(staged.signals.sum())
        operation.pending[self.rank] = operation.pending.get(self.rank, 0) + signals
        where = self._direct if queue == DIRECT else self._lists
        if len(staged):
            where.waiting.append(_Staged(operation, tag, staged))

    def _tag(self, operation: Operation) -> int:
        for tag, owner in self._operations.items():
            if owner is operation:
                return tag
        while self._next_tag in self._operations:
            self._next_tag = self._next_tag + 1 & 0xFFFF
        tag = self._next_tag
        self._next_tag = tag + 1 & 0xFFFF
        self._operations[tag] = operation
        return tag

    @property
    def backlog(self) -> bool:
        """Whether staged commands wait for room."""
        return bool(self._lists.waiting or self._direct.waiting)

    def post(self) -> None:
        """Post what fits of what is staged, now."""
        if self._direct.waiting:
            self._post_direct()
        if self._lists.waiting:
            self._post_list()

    def _post_direct(self) -> None:
        queue = self._direct
        while queue.waiting and queue.room:
            staged = queue.waiting[0]
            rows, signals = staged.take(1, self._free_records)
            if not len(rows):
                return
            self._recent.append(rows[0].tobytes())
            for word, value in enumerate(rows[0].view("<u8").tolist()):
                self.write(self._registers.direct.at(word), value)
            self._signals += signals
            queue.tail = queue.tail + 1 & TOTAL_MASK
            self._tails[staged.tag, True] = queue.tail
            if not staged.left:
                queue.waiting.popleft()

    def _post_list(self) -> None:
        queue = self._lists
        room, batch = queue.room, []
        while queue.waiting and room:
            staged = queue.waiting[0]
            if not staged.taken and staged.left > room and self._free_records:
                # It begins now and is continued by a later doorbell, and what is fetched after that
                # bears that one's stamp: let the first command report when the list began.
                staged.operation.pending[self.rank] += staged.commands.signal(0)
            rows, signals = staged.take(room, self._free_records)
            if not len(rows):
                break
            self._signals += signals
            batch.append(rows)
            room -= len(rows)
            queue.tail = queue.tail + len(rows) & TOTAL_MASK
            self._tails[staged.tag, False] = queue.tail
            if staged.left:
                break
            queue.waiting.popleft()
        if not batch:
            return
        raw = (batch[0] if len(batch) == 1 else np.concatenate(batch)).reshape(-1)
        slot = queue.tail - len(raw) // COMMAND_BYTES & queue.entries - 1
        fits = (queue.entries - slot) * COMMAND_BYTES
        self.backend.memory_write(self.rank, queue.base + slot * COMMAND_BYTES, raw[:fits])
        if fits < len(raw):
            self.backend.memory_write(self.rank, queue.base, raw[fits:])
        self.write(self._registers.queue_tail.at(LIST_QUEUE), queue.tail)

    @property
    def _free_records(self) -> int:
        """Signalling commands that may be posted before completions are consumed."""
        return self._record_count - self._signals

    def _blocked(self) -> list[tuple[_Queue, int]]:
        """Queues with a backlog, and the register that says how far the card has taken each."""
        return [(queue, offset) for queue, offset in (
            (self._lists, self._registers.queue_head.at(LIST_QUEUE)),
            (self._direct, self._registers.direct_taken.at())) if queue.waiting]

    @property
    def window(self) -> int:
        """Direct commands that could be posted now."""
        return 0 if self._direct.waiting else self._direct.room

    def fits(self) -> bool:
        """Whether all that is staged could be posted now."""
        return all(queue.backlog <= queue.room for queue in (self._lists, self._direct))

    # --- completions

    def drain(self) -> list[Operation]:
        """Consume the completion records that are there; return operations that got one.

        Raises
        ------
        RuntimeError
            If a record belongs to no operation under way: a late error.
        """
        touched: list[Operation] = []
        before = self.consumed
        strays: list[CompletionRecord] = []
        while True:
            slot = self.consumed & self._record_count - 1
            raw = self.backend.memory_read(
                self.rank, self._records + slot * COMPLETION_BYTES, COMPLETION_BYTES)
            if CompletionRecord.phase(raw) == self.consumed // self._record_count & 1:
                break  # left by the pass before
            record = CompletionRecord.parse(self.rank, bytes(raw))
            self.consumed = self.consumed + 1 & TOTAL_MASK
            operation = self._operations.get(record.tag)
            if operation is None:
                strays.append(record)
                continue
            self._complete(operation, record)
            if operation not in touched:
                touched.append(operation)
        if self.consumed != before:
            self.write(self._registers.completion_head.at(), self.consumed)
        if strays:
            raise RuntimeError("; ".join(
                describe_error(self.backend.topology, record) for record in strays)
                + ": no operation under way has this tag")
        return touched

    def _complete(self, operation: Operation, record: CompletionRecord) -> None:
        operation.records.append(record)
        self._signals = max(0, self._signals - 1)  # failed commands report unasked
        operation.pending[self.rank] -= 1
        if operation.pending[self.rank] == 0 and record.ok:
            # The last command of a list ends after all before it were fetched, and after what was
            # posted apart from it, which the peers of the list wait for.
            for queue, direct in ((self._lists, False), (self._direct, True)):
                if (tail := self._tails.get((record.tag, direct))) is not None:
                    queue.taken(tail)

    def forget(self, operation: Operation) -> None:
        """Drop an operation that has ended: its tag may be used again."""
        for tag in self.tags(operation):
            del self._operations[tag]
            self._tails.pop((tag, False), None)
            self._tails.pop((tag, True), None)

    def abandon(self, operation: Operation) -> None:
        """Drop what a failed operation has not posted. Its tag stays taken, since commands under
        way may still report."""
        for queue in (self._lists, self._direct):
            queue.waiting = deque(staged for staged in queue.waiting
                                  if staged.operation is not operation)

    # --- checkpoints

    def to_state(self, number: Callable[[Operation], int]) -> dict[str, Any]:
        """What :meth:`take_state` needs, as plain data; ``number`` names operations."""
        return {
            "memory": self.memory.to_state(), "counters": self.counters.to_state(),
            "queues": [{"tail": queue.tail, "head": queue.head, "waiting": [
                {"operation": number(staged.operation), "tag": staged.tag, "taken": staged.taken,
                 "commands": staged.commands.to_state()} for staged in queue.waiting]}
                for queue in (self._lists, self._direct)],
            "consumed": self.consumed, "signals": self._signals, "next_tag": self._next_tag,
            "operations": [[tag, number(owner)] for tag, owner in self._operations.items()],
            "tails": [[tag, direct, tail] for (tag, direct), tail in self._tails.items()],
            "waited": self._waited, "recent": [raw.hex() for raw in self._recent]}

    def take_state(self, state: Mapping[str, Any], operations: Sequence[Operation]) -> None:
        """Be as the driver was whose :meth:`to_state` this is, in place of a start."""
        self.memory.take_state(state["memory"])
        self.counters.take_state(state["counters"])
        queues = (self._lists, self._direct)
        for queue, saved in zip(queues, state["queues"], strict=True):
            queue.tail, queue.head = saved["tail"], saved["head"]
            queue.waiting = deque(
                _Staged(operations[staged["operation"]], staged["tag"],
                        CommandList.from_state(staged["commands"]), staged["taken"])
                for staged in saved["waiting"])
        self.consumed, self._signals = state["consumed"], state["signals"]
        self._next_tag = state["next_tag"]
        self._operations = {tag: operations[owner] for tag, owner in state["operations"]}
        self._tails = {(tag, direct): tail for tag, direct, tail in state["tails"]}
        self._waited = state["waited"]
        self._recent.extend(bytes.fromhex(raw) for raw in state["recent"])

    # --- reports

    @property
    def waited_register(self) -> tuple[int, int]:
        """Card and offset of the register whose value :meth:`waited` takes."""
        return self.rank, self._registers.waited.at()

    def waited(self, total: int) -> int:
        """Cycles that this card's commands waited for counters since the last call."""
        difference, self._waited = total - self._waited, total
        return difference

    def counter(self, index: int) -> int:
        """Total of a counter; time passes."""
        return self.read(self._registers.counter.at(index))

    def queue_states(self) -> list[QueueState]:
        """How far the queues that this driver posts to have come; time passes."""
        registers, lists = self._registers, self._lists
        offsets = [registers.queue_wait.at(LIST_QUEUE), registers.queue_head.at(LIST_QUEUE),
                   registers.queue_wait.at(registers.queue_wait.count - 1),
                   registers.direct_taken.at()]
        list_word, fetched, direct_word, taken = self.backend.read_registers(
            [(self.rank, offset) for offset in offsets])
        ring = self.backend.memory_read(self.rank, lists.base, lists.entries * COMMAND_BYTES)
        return [ring_state(self.rank, f"queue {LIST_QUEUE}", ring.reshape(-1, COMMAND_BYTES),
                           lists.tail, fetched, list_word),
                direct_state(self.rank, self._recent, self._direct.tail, taken, direct_word)]

    def tags(self, operation: Operation) -> list[int]:
        """Tags of an operation under way."""
        return [tag for tag, owner in self._operations.items() if owner is operation]

    @property
    def unposted(self) -> int:
        """Commands that wait for room."""
        return self._lists.backlog + self._direct.backlog


def start_devices(backend: Backend, devices: Sequence[Device]) -> None:
    """Ask all cards at once what they are, and set up their rings; time passes.

    Raises
    ------
    RuntimeError
        If a card does not identify itself as the one that it should be.
    """
    answers = backend.read_registers([each for device in devices for each in device.identity()])
    for number, device in enumerate(devices):
        device.start(*answers[2 * number:2 * number + 2])


def refresh(backend: Backend, devices: Sequence[Device]) -> None:
    """Ask all cards at once how far they have taken commands; time passes."""
    asked = [(device.rank, *queue) for device in devices for queue in device._blocked()]
    totals = backend.read_registers([(rank, offset) for rank, _, offset in asked])
    for (_, queue, _), total in zip(asked, totals, strict=True):
        queue.taken(total & TOTAL_MASK)


@lru_cache(maxsize=16)
def _register_map(nic: NicParams, links: int) -> RegisterMap:
    return RegisterMap(nic, links)
