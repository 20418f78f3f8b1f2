"""The scheduler: takes commands from the heads of their queues to rails and compute.

::

    cycle t      select    one queue with a command and no known reason to hold it, in turn
    cycle t + 1  judge     its head is out: refuse, hold, or dispatch it and take it from its queue

A held queue notes its reason, and is not looked at again before the reason may be gone:

* *counter*: until an increment of the awaited counter comes along,
* *fence*: until every earlier command of the queue is complete,
* *slot*: until a slot is free,
* *port*: until the register before the command's rail, or before compute, is free.

A command whose wait has expired (see ``watchdog``) and still is not over when it is judged again
ends with TIMEOUT. In a ring it takes with it the commands right behind it that have its tag: they
are the rest of a list whose data will not come. They end with TIMEOUT too, and write a record only
if they signal.

Judging starts over each time, so a reason is a hint and never a promise. Only the head of a queue
is judged: commands of a queue are dispatched in order, queues do not wait for each other.

Latency law: a queue whose head is present in cycle t, and whose turn it is, has its transfer
offered in t + 2. An increment in cycle t that ends a wait has the waiting transfer offered in
t + 3. One command per cycle is judged, of one queue every other cycle.

Flow-control invariant: a command is dispatched only with a free slot and a free register before its
port, and is taken from its queue in that very cycle.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter
from hdl.layouts import (
    ADDRESS_BITS,
    CYCLE_BITS,
    Command,
    Op,
    PacketOp,
    RouteWrite,
    StartedCommand,
    Status,
    queue_activity,
)
from hdl.nic.check import CommandCheck
from hdl.nic.interfaces import Transfer
from hdl.nic.slots import Dispatch
from hdl.nic.totals import TotalRead
from hdl.params import CardParams
from hdl.ports import GemmRequest, ValidSignature

__all__ = ["Scheduler"]


class Scheduler(wiring.Component):
    """Dispatches the commands of ``params.nic.queues`` rings and the direct queue.

    Members
    -------
    now, memory_bytes : inputs
    present : ``In(queues + 1)``
        Queues with a command.
    select, take : ``Out(queues + 1)``
        One-hot or 0: the head to bring out for the next cycle; the head to drop.
    command, posted : ``In(Command)``, ``In(48)``
        The head that was selected in the cycle before.
    counter : ``Out(TotalRead())``
    increments : ``In(ValidSignature(unsigned(8))).array(rails + 1)``
        As they enter the counters.
    free, slot, generation : ``In(1)``, ``In(4)``, ``In(3)``
        There is a free slot, its number, and the generation of its next command.
    drained : ``In(queues + 1)``
        Queues of which every dispatched command is complete.
    dispatch : ``Out(ValidSignature(Dispatch))``
        The free slot is taken.
    transfers : ``Out(stream.Signature(Transfer)).array(rails)``
    gemm : ``Out(stream.Signature(GemmRequest))``
    table : ``Out(ValidSignature(RouteWrite))``
        A write to the route table, one cycle after its command was dispatched.
    awaiting, since : ``Out(queues + 1)``, ``Out(48).array(queues + 1)``
        Queues whose head waits for a counter, and since when.
    expire : ``In(queues + 1)``
        Queues whose head has waited for too long.
    queue_wait : ``Out(64).array(queues + 1)``
        The registers of that name.
    waited : ``Out(64)``
        Cycles between the first look at a command that had to wait for a counter and the look that
        found the wait over, in total.
    active : ``Out(1)``
        A queue may go on, or an offer is being taken.
    last_started : ``Out(StartedCommand)``
        A register.
    activity : ``Out(queue_activity(queues + 1))``
        What heads wait for, a function of registers.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        queues, rails = params.nic.queues + 1, params.rails
        super().__init__({
            "now": In(CYCLE_BITS),
            "memory_bytes": In(ADDRESS_BITS + 1),
            "present": In(queues),
            "select": Out(queues),
            "take": Out(queues),
            "command": In(Command),
            "posted": In(CYCLE_BITS),
            "counter": Out(TotalRead()),
            "increments": In(ValidSignature(unsigned(8))).array(rails + 1),
            "free": In(1),
            "slot": In(4),
            "generation": In(3),
            "drained": In(queues),
            "dispatch": Out(ValidSignature(Dispatch)),
            "transfers": Out(stream.Signature(Transfer)).array(rails),
            "gemm": Out(stream.Signature(GemmRequest)),
            "table": Out(ValidSignature(RouteWrite)),
            "awaiting": Out(queues),
            "since": Out(CYCLE_BITS).array(queues),
            "expire": In(queues),
            "queue_wait": Out(64).array(queues),
            "waited": Out(64),
            "active": Out(1),
            "last_started": Out(StartedCommand),
            "activity": Out(queue_activity(queues)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        command = self.command
        queues, ports = len(self.present), [*self.transfers, self.gemm]

        # --- select
        on_counter, at_fence, for_slot = Signal(queues), Signal(queues), Signal(queues)
        for_port = [Signal(queues, name=f"for_port_{port}") for port in range(len(ports))]
        judged, ready = Signal(queues), Signal(queues)
        held = on_counter | (at_fence & ~self.drained) | Mux(self.free, 0, for_slot)
        for port, waiting in zip(ports, for_port, strict=True):
            held = held | Mux(port.valid, waiting, 0)
        m.submodules.turn = turn = Arbiter(queues)
        m.d.comb += [ready.eq(self.present & ~held & ~judged),
                     turn.request.eq(ready), turn.accept.eq(ready.any()),
                     self.select.eq(turn.grant)]
        m.d.sync += judged.eq(turn.grant)

        # --- judge
        m.submodules.check = check = CommandCheck(self._params)
        m.d.comb += [check.command.eq(command), check.memory_bytes.eq(self.memory_bytes),
                     self.counter.index.eq(command.wait_counter)]
        refused, behind, starved = Signal(), Signal(32), Signal()
        expired, rest, status = Signal(queues), Signal(), Signal(Status)
        hold_counter, hold_fence, hold_slot, dispatched = Signal(), Signal(), Signal(), Signal()
        to_port, hold_port = Signal(len(ports)), Signal(len(ports))
        m.d.comb += [
            status.eq(check.status),
            refused.eq(status != Status.OK),
            behind.eq(self.counter.total - command.wait_value),
            starved.eq((check.status == Status.OK) & command.flags.wait & behind[31]),
            hold_counter.eq(~refused & starved),
            hold_fence.eq(~refused & check.fence & ~(self.drained & judged).any()),
            hold_slot.eq(~self.free),
            to_port.eq(Mux(refused, 0, Cat(
                *[check.moves & (command.rail == rail) for rail in range(len(self.transfers))],
                check.gemm))),
            hold_port.eq(to_port & Cat(port.valid for port in ports)),
        ]
        waiting, watched = Signal(queues), [Signal(8, name=f"watched_{q}") for q in range(queues)]
        awaited = [Signal(32, name=f"awaited_{queue}") for queue in range(queues)]
        m.d.comb += self.awaiting.eq(waiting)
        #: The counter of the judged command moves in this very cycle: judge it again.
        moving = Signal()
        woken = Signal(queues)
        for increment in self.increments:
            with m.If(increment.valid):
                with m.If(increment.payload == command.wait_counter):
                    m.d.comb += moving.eq(1)
                for queue in range(queues):
                    with m.If(increment.payload == watched[queue]):
                        m.d.comb += woken[queue].eq(1)

        holds = Signal(queues)
        m.d.comb += holds.eq(Mux(hold_counter & ~moving, judged, 0))
        with m.If(judged.any() | woken.any() | self.expire.any()):
            m.d.sync += [
                on_counter.eq(((on_counter & ~woken & ~judged) | holds) & ~self.expire),
                expired.eq((expired | self.expire) & ~self.take)]
        self._expire(m, judged, (starved & (expired & judged).any()), status, rest, dispatched)
        with m.If(judged.any()):
            m.d.comb += dispatched.eq(
                ~(hold_counter | hold_fence | hold_slot | hold_port.any()))
            m.d.comb += self.take.eq(Mux(dispatched, judged, 0))
            may = ~hold_counter
            for reason, hold in ((waiting, hold_counter), (at_fence, may & hold_fence),
                                 (for_slot, may & ~hold_fence & hold_slot),
                                 *((waits, may & ~hold_slot & hold)
                                   for waits, hold in zip(for_port, hold_port, strict=True))):
                m.d.sync += reason.eq(Mux(hold, reason | judged, reason & ~judged))
            for queue in range(queues):
                with m.If(judged[queue]):
                    with m.If(hold_counter):
                        m.d.sync += [watched[queue].eq(command.wait_counter),
                                     awaited[queue].eq(command.wait_value)]
                        with m.If(~waiting[queue]):
                            m.d.sync += self.since[queue].eq(self.now)
                    with m.Elif(waiting[queue]):
                        m.d.sync += self.waited.eq(
                            self.waited + (self.now - self.since[queue])[:CYCLE_BITS])
        for queue in range(queues):
            m.d.comb += self.queue_wait[queue].eq(Mux(
                self.present[queue],
                Cat(waiting[queue], at_fence[queue] | for_slot[queue], Const(0, 6),
                    Mux(waiting[queue], Cat(watched[queue], Const(0, 16), awaited[queue]), 0)),
                0))

        m.d.comb += [
            self.activity.counter.eq(waiting), self.activity.fence.eq(at_fence),
            self.activity.room.eq(reduce(or_, for_port, for_slot))]

        # --- dispatch
        info = self.dispatch.payload
        m.d.comb += [
            self.dispatch.valid.eq(dispatched),
            info.queue.eq(sum((Mux(judged[queue], queue, 0) for queue in range(1, queues)),
                              start=Const(0))),
            info.quiet.eq(rest), info.op.eq(command.op), info.tag.eq(command.tag),
            info.local_counter.eq(command.local_counter), info.signal.eq(command.flags.signal),
            info.ack.eq(command.flags.ack), info.rail.eq(command.rail),
            info.immediate.eq(~to_port.any()), info.status.eq(status),
            info.posted.eq(self.posted), info.started.eq(self.now),
        ]
        with m.If(dispatched):
            last = self.last_started
            m.d.sync += [last.turn.eq(~last.turn), last.queue.eq(info.queue),
                         last.slot.eq(self.slot), last.op.eq(command.op), last.tag.eq(command.tag)]
        taken = Const(0, 1)
        for port in ports:
            taken = taken | (port.valid & port.ready)
            with m.If(port.valid & port.ready):
                m.d.sync += port.valid.eq(0)
        for rail, port in enumerate(self.transfers):
            work = port.payload
            with m.If(dispatched & to_port[rail]):
                m.d.sync += [
                    port.valid.eq(1), work.slot.eq(self.slot),
                    work.generation.eq(self.generation), work.path.eq(command.path),
                    work.extended.eq(command.flags.addend), work.addend.eq(command.addend),
                    work.op.eq(Mux(command.op == Op.REDUCE, PacketOp.REDUCE, PacketOp.WRITE)),
                    work.ack.eq(command.flags.ack), work.dtype.eq(command.dtype),
                    work.redop.eq(command.redop), work.counter.eq(command.target_counter),
                    work.tag.eq(command.tag), work.source.eq(command.source),
                    work.target.eq(command.target), work.length.eq(command.length),
                    work.key.eq(command.key)]
        with m.If(dispatched & to_port[-1]):
            m.d.sync += [self.gemm.valid.eq(1), self.gemm.payload.slot.eq(self.slot),
                         self.gemm.payload.descriptor.eq(command.source)]
        routes = Const(0, 1)
        if self._params.router.table_bits:
            routes = self.table.valid
            m.d.sync += self.table.valid.eq(dispatched & check.route & ~refused)
            with m.If(dispatched & check.route):
                m.d.sync += self.table.payload.eq(command.source)
        # A transfer that its rail does not take holds nobody awake: the rail, in this tile, is
        # idle while it waits. Compute is another tile, so an offer to it must be watched.
        m.d.comb += self.active.eq(ready.any() | judged.any() | self.gemm.valid | taken | routes)
        return m

    def _expire(self, m: Module, judged, late, status, rest, dispatched) -> None:
        """Overrule ``status`` with TIMEOUT, for a command whose wait is ``late`` and for the rest
        of its list."""
        rings = range(len(self.present) - 1)
        #: Rings whose last command timed out, and its tag.
        broken = Signal(len(rings))
        tags = [Signal(16, name=f"broken_tag_{ring}") for ring in rings]
        with m.If((judged & broken).any()):
            m.d.comb += rest.eq(Cat(judged[ring] & broken[ring] & (self.command.tag == tags[ring])
                                    for ring in rings).any())
        with m.If(late | rest):
            m.d.comb += status.eq(Status.TIMEOUT)
        with m.If(dispatched & (late | broken.any())):
            m.d.sync += broken.eq(Mux(late | rest, broken | judged, broken & ~judged))
            for ring in rings:
                with m.If(judged[ring]):
                    m.d.sync += tags[ring].eq(self.command.tag)
