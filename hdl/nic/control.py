"""The control side of a NIC: from a doorbell to work for the rails, and from its end to a record.

::

    host ── HostPort ──> CommandQueues ──> Scheduler ──> transfers (rails), gemm (compute)
                 ^            ^   fetch        │  ^            │
                 │            └── memory       │  └ Counters <─┼── increments (rails)
                 │                             v       ^       v
                 └── totals    CompletionWriter <── Slots <── transfer_done, responses, done
                                   │  records
                                   v memory

Latency law, in cycles, with the host's operation in cycle 0 at the port, nothing ahead of the
command, and memory that answers after L cycles: a direct post has its transfer offered in cycle
4, a ring's doorbell in cycle 5 + L + (flits per command). An increment that ends a wait has the
transfer offered 3 cycles later.

Flow-control invariant: events of the fabric (``transfer_done``, ``responses``, ``increments``,
``done``) and the host are never refused; whatever may have to wait has its place reserved when it
is asked for: commands in their queue's store, commands in flight in a slot, records in their slot.

Every output is a function of registers, ``idle`` included, but for ``ready`` of the transfers: an
offered transfer that its rail takes in this cycle is work. In the assembled tile that is a function
of registers too.
"""

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from hdl.connect import connect
from hdl.layouts import (
    ADDRESS_BITS,
    CYCLE_BITS,
    NODE_BITS,
    CommandActivity,
    LinkStatus,
    RouteWrite,
    queue_activity,
)
from hdl.nic.commands import CommandQueues
from hdl.nic.completions import CompletionWriter, LateErrors
from hdl.nic.counters import Counters
from hdl.nic.doorbell import HostPort
from hdl.nic.interfaces import Response, Transfer, TransferDone
from hdl.nic.scheduler import Scheduler
from hdl.nic.slots import Slots
from hdl.nic.watchdog import Watchdog
from hdl.params import CardParams
from hdl.ports import (
    GemmDone,
    GemmRequest,
    HostSignature,
    MemoryReadSignature,
    MemoryWriteSignature,
    ValidSignature,
)

__all__ = ["Control"]


class Control(wiring.Component):
    """Command queues, scheduler, counters and completions of one card.

    Members
    -------
    now : ``In(48)``
    node, memory_bytes : ``In(16)``, ``In(49)``
        Configuration, already in registers.
    status : ``In(data.ArrayLayout(LinkStatus, links))``
        State of the router's links.
    host : ``Out(HostSignature())``
    fetch : ``Out(MemoryReadSignature)``
        Reads commands. Tags are below 8.
    records : ``Out(MemoryWriteSignature)``
        Writes completion records.
    transfers : ``Out(stream.Signature(Transfer)).array(rails)``
    transfer_done : ``In(ValidSignature(TransferDone)).array(rails)``
        One for every transfer, however it ended.
    responses : ``In(ValidSignature(Response)).array(rails)``
        With ``ack``: one for every packet of the transfer, at the rail that sent it.
    increments : ``In(ValidSignature(unsigned(8))).array(rails)``
        Target counter of a packet whose payload memory has accepted.
    sent, received : ``In(1).array(rails)``
        A packet was sent, received.
    gemm : ``Out(stream.Signature(GemmRequest))``
    done : ``In(stream.Signature(GemmDone))``
        Always ready.
    table : ``Out(ValidSignature(RouteWrite))``
        A write to the router's table; only with ``table_bits``.
    idle, wake : ``Out(1)``, ``Out(48)``
        Nothing changes in this cycle unless an input is valid, or ``now`` has reached ``wake``.
        Commands that wait for counters, fences, slots or the end of their work are idle, and so is
        waiting for memory to answer or for the host to make room in the completion ring.
    commands, queues : ``Out(CommandActivity)``, ``Out(queue_activity(queues + 1))``
        What is being done, functions of registers.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        flit_bytes, rails = params.link.flit_bytes, params.rails
        super().__init__({
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "memory_bytes": In(ADDRESS_BITS + 1),
            "status": In(data.ArrayLayout(LinkStatus, params.router.links)),
            "host": Out(HostSignature()),
            "fetch": Out(MemoryReadSignature(flit_bytes)),
            "records": Out(MemoryWriteSignature(flit_bytes)),
            "transfers": Out(stream.Signature(Transfer)).array(rails),
            "transfer_done": In(ValidSignature(TransferDone)).array(rails),
            "responses": In(ValidSignature(Response)).array(rails),
            "increments": In(ValidSignature(unsigned(8))).array(rails),
            "sent": In(1).array(rails),
            "received": In(1).array(rails),
            "gemm": Out(stream.Signature(GemmRequest)),
            "done": In(stream.Signature(GemmDone)),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "commands": Out(CommandActivity),
            "queues": Out(queue_activity(params.nic.queues + 1)),
            **({"table": Out(ValidSignature(RouteWrite))} if params.router.table_bits else {}),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        params, rails = self._params, self._params.rails
        m.submodules.host_port = host = HostPort(params.nic, links=params.router.links)
        m.submodules.command_queues = queues = CommandQueues(params)
        m.submodules.scheduler = scheduler = Scheduler(params)
        m.submodules.counters = counters = Counters(
            counters=params.nic.counters, sources=rails + 1, reads=2)
        m.submodules.slots = slots = Slots(params)
        m.submodules.watchdog = watchdog = Watchdog(params.nic.slots + params.nic.queues + 1)
        m.submodules.writer = writer = CompletionWriter(params, sources=rails + 1)
        for block in (host, scheduler, slots, watchdog):
            m.d.comb += block.now.eq(self.now)

        # --- commands
        connect(m, flipped(self.fetch), queues.fetch)
        connect(m, host.window, queues.window)
        for queue in range(params.nic.queues):
            m.d.comb += [queues.base[queue].eq(host.queue_base[queue]),
                         queues.size[queue].eq(host.queue_size[queue]),
                         queues.tail[queue].eq(host.queue_tail[queue]),
                         queues.rung[queue].eq(host.rung[queue])]
        m.d.comb += [scheduler.memory_bytes.eq(self.memory_bytes),
                     scheduler.present.eq(queues.present),
                     scheduler.command.eq(queues.command), scheduler.posted.eq(queues.posted),
                     queues.select.eq(scheduler.select), queues.take.eq(scheduler.take),
                     scheduler.free.eq(slots.free), scheduler.slot.eq(slots.slot),
                     scheduler.generation.eq(slots.generation),
                     scheduler.drained.eq(slots.drained)]
        connect(m, scheduler.dispatch, slots.dispatch)
        connect(m, flipped(self.gemm), scheduler.gemm)
        connect(m, flipped(self.done), slots.done)

        # --- counters
        for source in range(rails + 1):
            increment = slots.local if source == rails else flipped(self.increments[source])
            connect(m, increment, counters.increments[source])
            m.d.comb += [scheduler.increments[source].valid.eq(increment.valid),
                         scheduler.increments[source].payload.eq(increment.payload)]
        connect(m, scheduler.counter, counters.reads[0])
        m.d.comb += [counters.reads[1].index.eq(host.counter_index),
                     host.counter_total.eq(counters.reads[1].total)]

        # --- rails and completions
        errors = [slots.error]
        connect(m, slots.reports, writer.reports[rails])
        for rail in range(rails):
            m.submodules[f"late_{rail}"] = late = LateErrors()
            transfer = scheduler.transfers[rail]
            connect(m, flipped(self.transfers[rail]), transfer)
            connect(m, flipped(self.transfer_done[rail]), slots.transfer_done[rail])
            connect(m, flipped(self.responses[rail]), slots.responses[rail])
            connect(m, late.reports, writer.reports[rail])
            m.d.comb += [late.now.eq(self.now),
                         late.response.valid.eq(self.responses[rail].valid),
                         late.response.payload.eq(self.responses[rail].payload),
                         late.dispatched.valid.eq(transfer.valid & transfer.ready),
                         late.dispatched.payload.eq(transfer.payload.tag)]
            errors.append(late.error)
        connect(m, flipped(self.records), writer.records)

        # --- deadlines: slots come before queues
        count, look = params.nic.slots, watchdog.index
        m.d.comb += [
            watchdog.deadline.eq(host.deadline), self.wake.eq(watchdog.wake),
            watchdog.live.eq(Cat(slots.live, scheduler.awaiting)),
            slots.expire.eq(watchdog.expire[:count]),
            scheduler.expire.eq(watchdog.expire[count:]),
            slots.index.eq(look)]
        with m.If(watchdog.looks):
            m.d.comb += watchdog.stamp.eq(slots.started)
            for queue in range(params.nic.queues + 1):
                with m.If(look == count + queue):
                    m.d.comb += watchdog.stamp.eq(scheduler.since[queue])

        # --- registers
        connect(m, flipped(self.host), host.host)
        m.d.comb += [writer.base.eq(host.completion_base), writer.size.eq(host.completion_size),
                     writer.head.eq(host.completion_head), host.completion_tail.eq(writer.tail),
                     host.node.eq(self.node), host.waited.eq(scheduler.waited),
                     host.direct_taken.eq(queues.direct_taken),
                     host.direct_lost.eq(queues.direct_lost), host.slots_busy.eq(slots.busy)]
        for queue in range(params.nic.queues):
            m.d.comb += host.queue_head[queue].eq(queues.head[queue])
        m.d.comb += [self.queues.eq(scheduler.activity),
                     self.commands.started.eq(scheduler.last_started),
                     self.commands.ended.eq(slots.last_ended)]
        for link in range(params.router.links):
            m.d.comb += host.link[link].eq(self.status[link])
        for queue in range(params.nic.queues + 1):
            m.d.comb += host.queue_wait[queue].eq(scheduler.queue_wait[queue])
        for total, strobes in ((host.errors, errors), (host.packets_sent, self.sent),
                               (host.packets_received, self.received)):
            _count(m, total, strobes)

        m.d.comb += self.idle.eq(~(host.active | queues.active | scheduler.active | slots.active
                                   | writer.active | watchdog.active))
        if params.router.table_bits:
            connect(m, scheduler.table, flipped(self.table))
        return m


def _count(m: Module, total, strobes) -> None:
    """Drive ``total`` with a 32-bit total of the cycles of every strobe."""
    count = Signal(32)
    with m.If(Cat(*strobes).any()):
        m.d.sync += count.eq(count + sum(strobes))
    m.d.comb += total.eq(count)
