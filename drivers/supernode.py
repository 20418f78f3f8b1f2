"""The public face of a machine: memory on every card, remote writes, GEMMs and collectives.

Everything that starts work returns a :class:`~drivers.handle.Handle`, except ``write`` and
``reduce_into``, which wait. Work on several cards is posted at one instant. Operations start in the
order of the calls, on each card; one that is never waited for progresses too, as far as its
commands fit into the rings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from hdl.layouts import DType, Op, ReduceOp
from hdl.params import CardParams
from hdl.topology import Bound, Topology, gemm_bound, p2p_bound

from .autosave import AutoSave, saving_backend
from .backend import Backend, Completions, StallError, WaitTimeout
from .commands import DESCRIPTOR_BYTES, Command, Gemm, packet_count
from .device import DIRECT, LIST_QUEUE, Device, Operation, refresh, start_devices
from .dtypes import ElementType, element_type
from .faults import LINK_STATUSES, dead_links
from .gemm import describe_gemm
from .group import Group, reduction
from .handle import DEFAULT_TIMEOUT, Handle, OperationError, Result
from .lease import Lease
from .memory import Array
from .routes import RouteTable, check_routes, route_words
from .spmd import GroupRank
from .stalls import explain_stall
from .state import machine_state, take_machine_state

__all__ = ["Pass", "Rank", "SuperNode"]

#: Cycles beyond the deadline in which the cards of a failed operation report: what they do before
#: their last wait, and the watchdogs' own time.
_GRACE = 4096
#: Instants of the host between two looks at how far a card has taken a list that is too long.
_POLL_QUANTA = 4


@dataclass(frozen=True)
class Pass:
    """Time that passes within the wait for an operation: until every card in ``awaited`` has
    written so many completion records, at most until cycle ``until``; without ``awaited`` until
    that cycle. The wait as a whole ends at ``deadline``."""

    operation: Operation
    deadline: int
    until: int
    awaited: tuple[Completions, ...] = ()


class SuperNode:
    """A machine of many cards.

    Parameters
    ----------
    backend : Backend
        The machine, fresh from reset.
    queue_entries, completion_entries : int
        Sizes of each card's rings.
    deadline : int
        Cycles after which a card gives up on a transfer that is not complete, and on a wait for a
        counter: a part of an operation may wait for all that comes before it. 0 for never.
    """

    def __init__(self, backend: Backend, *, queue_entries: int = 256,
                 completion_entries: int = 256, deadline: int = 0) -> None:
        self._prepare(backend, {"queue_entries": queue_entries,
                                "completion_entries": completion_entries, "deadline": deadline})
        start_devices(backend, self.devices)

    def _prepare(self, backend: Backend, options: Mapping[str, int]) -> None:
        self._backend, self._options, self._deadline = backend, dict(options), options["deadline"]
        self.devices = [Device(backend, rank, **options)
                        for rank in range(backend.topology.cards)]
        #: The group of all cards, to which :meth:`rank` belongs.
        self.world = Group(self, range(backend.topology.cards))
        self.active: list[Handle] = []
        self.routes: dict[int, RouteTable] = {}
        #: What is saved with the machine and is here again after a restore, by name: arrays,
        #: handles, numbers, text, and lists and dictionaries of them.
        self.kept: dict[str, Any] = {}
        #: Time that is to pass, or passes, within a wait.
        self.passing: Pass | None = None
        self._autosave: AutoSave | None = None

    # --- the machine

    @property
    def cards(self) -> int:
        """Number of cards."""
        return len(self.devices)

    @property
    def topology(self) -> Topology:
        return self._backend.topology

    @property
    def params(self) -> CardParams:
        return self._backend.params

    @property
    def cycle(self) -> int:
        """The host's present."""
        return self._backend.cycle

    @property
    def backend(self) -> Backend:
        return self._backend

    @property
    def queue_entries(self) -> int:
        """Commands that a card's ring holds."""
        return self._options["queue_entries"]

    def rank(self, rank: int) -> Rank:
        """The view of one card."""
        return Rank(self, self.topology.check_rank(rank))

    def close(self) -> None:
        """Release the machine."""
        self._backend.close()

    def __enter__(self) -> SuperNode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    # --- checkpoints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole machine to a file: the cards, what is on its way, the drivers, and what
        :attr:`kept` names. :func:`emu.restore` makes a machine of it that goes on from here.

        Raises
        ------
        CheckpointError
            If the file cannot be written. What was there is unchanged, and the machine can go on.
        ValueError
            If this machine cannot be saved, or something is kept that cannot.
        """
        saving_backend(self._backend).save(path, host={
            "options": self._options, "machine": machine_state(self)})

    def save_every(self, cycles: int, save: Callable[[], None]) -> None:
        """From now on, while operations are waited for, call ``save`` whenever ``cycles`` cycles
        have passed; it may :meth:`save`. What the machine does does not depend on it. 0 ends it.

        Raises
        ------
        ValueError
            If this machine cannot be saved.
        """
        saving_backend(self._backend)
        self._autosave = AutoSave(cycles, save, self.cycle + cycles) if cycles else None

    @classmethod
    def restored(cls, backend: Backend, host: Mapping[str, Any]) -> SuperNode:
        """The machine that :meth:`save` saved, on a backend that was restored from the file, with
        what came out of it for the host."""
        machine = cls.__new__(cls)
        machine._prepare(backend, host["options"])
        take_machine_state(machine, host["machine"])
        return machine

    # --- memory

    def malloc(self, shape: int | Sequence[int], dtype: str | ElementType, card: int) -> Array:
        """Return an array in the memory of ``card``; its contents are undefined.

        Raises
        ------
        ValueError
            If the card or the type does not exist, or a size is negative.
        OutOfMemoryError
            If the card has no room.
        """
        kind = element_type(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if min(sizes, default=0) < 0:
            raise ValueError(f"sizes must be at least 0, not {list(sizes)}")
        device = self.devices[self.topology.check_rank(card)]
        array = Array(card, 0, sizes, kind, self.topology.node_id(card), self._backend)
        return Array(card, device.memory.allocate(array.nbytes), sizes, kind, array.node,
                     self._backend)

    def free(self, *arrays: Array) -> None:
        """Give back arrays that :meth:`malloc` returned (not views of them)."""
        for array in arrays:
            self.devices[array.card].memory.free(array.offset)

    # --- remote writes

    def write(self, source: Array, target: Array, *, ack: bool = True, path: int = 0,
              timeout: int = DEFAULT_TIMEOUT) -> Result:
        """Write ``source`` over ``target``, on any two cards, and wait.

        The result's last stamp is the arrival of the last acknowledgement at the source card, or,
        without ``ack``, the instant at which the target card knows that all has arrived. In a full
        mesh, ``path`` p > 0 sends it over the card with coordinate p − 1.

        Raises
        ------
        ValueError
            If shapes or types differ.
        """
        return self.start_write(source, target, ack=ack, path=path).wait(timeout)

    def start_write(self, source: Array, target: Array, *, ack: bool = True,
                    path: int = 0) -> Handle:
        """Start what :meth:`write` waits for."""
        return self._move(Op.WRITE, source, target, ack, path)

    def reduce_into(self, source: Array, target: Array, *, op: str = "sum", ack: bool = True,
                    timeout: int = DEFAULT_TIMEOUT) -> Result:
        """Reduce ``source`` into ``target`` at the target card by ``op`` (sum, min or max), and
        wait. As :meth:`write` in all else."""
        redop = reduction(source.dtype, op)
        return self._move(Op.REDUCE, source, target, ack, redop=redop).wait(timeout)

    def _move(self, op: Op, source: Array, target: Array, ack: bool, path: int = 0,
              redop: ReduceOp = ReduceOp.SUM) -> Handle:
        if source.shape != target.shape or source.dtype != target.dtype:
            raise ValueError(f"source {source.dtype}{list(source.shape)} and target {target.dtype}"
                             f"{list(target.shape)} differ")
        bound = p2p_bound(self.topology, self.params, source.card, target.card, source.nbytes)
        move = Command(op=op, source=source.offset, node=target.node, address=target.offset,
                       length=source.nbytes, dtype=source.dtype.code or DType.F32, redop=redop,
                       signal=True, path=path)
        operation = Operation(f"{op.name.lower()} from card {source.card} to card {target.card}")
        sender, receiver = self.devices[source.card], self.devices[target.card]
        if ack:
            sender.stage(operation, DIRECT, [replace(move, ack=True)])
            return self.launch(operation, bound, Lease(self.devices))
        lease = Lease(self.devices)
        counter = lease.counter(target.card)
        receiver.counters.expect(counter, packet_count(target.offset, source.nbytes,
                                                       self.params.nic.mtu))
        sender.stage(operation, DIRECT, [replace(move, target_counter=counter)])
        receiver.stage(operation, LIST_QUEUE, [
            Command(op=Op.NOP, signal=True, wait=(counter, receiver.counters.total(counter)))])
        return self.launch(operation, bound, lease)

    # --- routes

    def set_routes(self, tables: Mapping[int, RouteTable], *,
                   timeout: int = DEFAULT_TIMEOUT) -> Result:
        """Write the route tables of cards, and wait until they are in force. Cards that are not
        named keep theirs; an empty table gives a card its computed routes back. The machine must
        be idle: nothing that was started may be unfinished.

        Raises
        ------
        DeadlockError
            If packets could wait for each other in a circle; nothing is written then.
        ValueError
            If a packet would not reach its destination, cards have no tables, or the machine is
            not idle; nothing is written then.
        """
        self._progress()
        if self.active:
            raise ValueError("routes change while the machine is idle, and "
                             f"{self.active[0].operation.name} is not finished")
        wanted = {**self.routes, **tables}
        check_routes(self.topology, self.params, wanted)
        operation = Operation(f"route tables of card {', '.join(map(str, tables))}")
        for card, table in tables.items():
            writes = [Command(op=Op.ROUTE, source=word)
                      for word in route_words(table.levels, table.entries)]
            self.devices[card].stage(operation, DIRECT, [*writes[:-1], writes[-1].signalling()])
        result = self.launch(operation, Bound({}), Lease(self.devices)).wait(timeout)
        self.routes = wanted
        return result

    # --- GEMM

    def gemm(self, a: Array, b: Array, c: Array, *, b_transposed: bool = False) -> Handle:
        """Start C = A · B on the card that holds all three: A m×k and B k×n (n×k if
        ``b_transposed``) of e4m3 or e5m2, C m×n of f32.

        Raises
        ------
        ValueError
            If shapes, types or cards do not fit.
        """
        return self.gemms([(a, b, c)], b_transposed=b_transposed)

    def gemms(self, products: Iterable[tuple[Array, Array, Array]], *,
              b_transposed: bool = False) -> Handle:
        """Start several GEMMs, on as many cards as they are spread over, at one instant."""
        described = [(a.card, describe_gemm(a, b, c, b_transposed=b_transposed))
                     for a, b, c in products]
        if not described:
            raise ValueError("gemms needs at least one product")
        per_card: dict[int, list[Gemm]] = {}
        for card, gemm in described:
            per_card.setdefault(card, []).append(gemm)
        operation = Operation(f"gemm on card {', '.join(map(str, per_card))}")
        with Lease(self.devices) as lease:
            places: list[tuple[Device, int]] = []
            for card, gemms in per_card.items():
                for gemm in gemms:
                    place = lease.memory(card, DESCRIPTOR_BYTES)
                    self._backend.memory_write(card, place, gemm.pack())
                    places.append((self.devices[card], place))
        for device, place in places:
            device.stage(operation, DIRECT, [Command(op=Op.GEMM, source=place, signal=True)])
        # A card works through its GEMMs one after the other: what each keeps busy adds up.
        bounds = [_sequence([gemm_bound(self.params, gemm.m, gemm.n, gemm.k) for gemm in gemms])
                  for gemms in per_card.values()]
        return self.launch(operation, max(bounds, key=lambda item: item.cycles), lease)

    # --- collectives

    def group(self, cards: Sequence[int] | None = None) -> Group:
        """The group of ``cards``, or of all, for collectives.

        Raises
        ------
        ValueError
            If a card is named twice or does not exist.
        """
        return Group(self, range(self.cards) if cards is None else cards)

    def allreduce(self, arrays: Sequence[Array], outputs: Sequence[Array] | None = None, *,
                  op: str = "sum", algorithm: str = "auto") -> Handle:
        """Start the sum of ``arrays``, one on each card of a group, to ``outputs`` or in place: see
        :meth:`Group.allreduce`.

        Raises
        ------
        ValueError
            If arrays share a card, or differ in size or type; if the operator or the algorithm is
            not there, or the group does not allow it; or if cards do not reduce this type.
        """
        if not arrays:
            raise ValueError("allreduce needs at least one array")
        return self.group([array.card for array in arrays]).allreduce(
            arrays, outputs, op=op, algorithm=algorithm)

    # --- running

    def launch(self, operation: Operation, bound: Bound, lease: Lease) -> Handle:
        """Post what was staged for an operation, on all cards at one instant."""
        handle = Handle(operation, bound, self, lease)
        self.active.append(handle)
        devices = [self.devices[card] for card in operation.pending]
        if full := [device for device in devices if not device.fits()]:
            refresh(self._backend, full)
        for device in devices:
            device.post()
        return handle

    def wait_for(self, handle: Handle, timeout: int) -> None:
        """Let time pass until ``handle``'s operation has ended: see :meth:`Handle.wait`."""
        operation = handle.operation
        trouble: WaitTimeout | StallError | None = None
        # A wait for it that a checkpoint cut goes on first: nobody looks at the cards before.
        passing, self.passing = self.passing, None
        if passing and passing.operation is not operation:
            passing = None
        deadline = passing.deadline if passing else self.cycle + timeout
        while True:
            if passing:
                trouble, passing = self._let_pass(passing), None
                continue
            self._progress()
            if operation.errors:
                raise self._error(operation)
            if operation.done:
                return
            if trouble is None and self.cycle >= deadline:
                trouble = WaitTimeout(f"not done after {timeout} cycles")
            if trouble is not None:
                report = explain_stall(self._backend, self.devices, operation)
                raise type(trouble)("\n  ".join([f"{operation.name}: {trouble}", *report])) \
                    from trouble
            passing = self._next_pass(operation, deadline)

    @property
    def _look(self) -> int:
        """Most cycles between two looks at an operation: with a deadline, errors of some of its
        cards are to be noticed while others wait."""
        return max(self.params.host_quantum, self._deadline // 4) if self._deadline else 1 << 62

    def _error(self, operation: Operation) -> OperationError:
        """What went wrong with an operation that failed on some card. With a deadline, the others
        are given the time to end or to fail too."""
        end = self.cycle + self._deadline + _GRACE
        while self._deadline and operation.silent and self.cycle < end:
            waited = [Completions(card, self.devices[card].consumed + 1 & 0xFFFF_FFFF)
                      for card in operation.silent]
            try:
                self._backend.wait(waited, min(self._look, end - self.cycle))
            except WaitTimeout:
                pass
            except StallError:
                break
            for card in operation.pending:
                self.devices[card].drain()
        suspect = any(record.status in LINK_STATUSES for record in operation.errors)
        return OperationError(self.topology, operation,
                              dead_links(self._backend) if suspect else ())

    def _next_pass(self, operation: Operation, deadline: int) -> Pass:
        most = min(deadline - self.cycle, self._look)
        if any(device.backlog for device in self.devices):
            most = min(most, _POLL_QUANTA * self.params.host_quantum)
            return Pass(operation, deadline, self.cycle + most)
        return Pass(operation, deadline, self.cycle + most, tuple(
            Completions(card, self.devices[card].consumed + 1 & 0xFFFF_FFFF)
            for card in operation.unfinished))

    def _let_pass(self, passing: Pass) -> WaitTimeout | StallError | None:
        """Let time pass; return what ends the wait, unless what has come in the meantime explains
        it."""
        self.passing = passing
        most = passing.until - self.cycle
        try:
            with self._saving():
                if passing.awaited:
                    self._backend.wait(passing.awaited, most)
                else:
                    self._backend.advance(most)
        except WaitTimeout as error:
            return error if passing.until == passing.deadline else None
        except StallError as error:
            return error
        finally:
            self.passing = None
        if not passing.awaited:
            refresh(self._backend, [device for device in self.devices if device.backlog])
        return None

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Within it, the backend interrupts what it does for the next checkpoint."""
        if self._autosave is None:
            yield
            return
        backend = saving_backend(self._backend)
        backend.interruption = self._autosave
        try:
            yield
        finally:
            backend.interruption = None

    def _progress(self) -> None:
        """Take in completions, end what has ended, post what there is room for now."""
        cards = {card for handle in self.active for card in handle.operation.pending}
        for card in sorted(cards):
            self.devices[card].drain()
        for handle in [handle for handle in self.active if handle.done]:
            self.active.remove(handle)
            failed = bool(handle.operation.errors)
            for card in handle.operation.pending:
                device = self.devices[card]
                (device.abandon if failed else device.forget)(handle.operation)
            if not failed:
                handle.lease.release()
        for device in self.devices:
            if device.backlog:
                device.post()

    def waited(self, cards: Iterable[int] | Mapping[int, int]) -> int:
        """Cycles that commands of ``cards`` waited for counters since this was last asked; time
        passes."""
        devices = [self.devices[card] for card in cards]
        totals = self._backend.read_registers([device.waited_register for device in devices])
        return sum(device.waited(total) for device, total in zip(devices, totals, strict=True))


class Rank(GroupRank):
    """One card, for code written from its point of view: a member of the group of all cards."""

    def __init__(self, supernode: SuperNode, rank: int) -> None:
        super().__init__(supernode.world, rank)
        self.supernode = supernode

    @property
    def node(self) -> int:
        """Node id."""
        return self.supernode.topology.node_id(self.rank)

    def malloc(self, shape: int | Sequence[int], dtype: str | ElementType) -> Array:
        """Return an array in this card's memory."""
        return self.supernode.malloc(shape, dtype, self.rank)


def _sequence(bounds: Sequence[Bound]) -> Bound:
    terms: dict[str, int] = {}
    for bound in bounds:
        for name, cycles in bound.terms.items():
            terms[name] = max(terms[name], cycles) if name == "latency" and name in terms else (
                terms.get(name, 0) + cycles)
    return Bound(terms)
