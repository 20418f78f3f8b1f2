"""Commands in flight: every accepted command has a slot until its record, if any, is written.

::

    dispatch ─> slot ─> its events ─> complete ─> retire ─> (record) ─> free
                        rail: sent, responses
                        compute: GEMM done
                        none: NOP, FENCE, refused commands

A transfer is complete when it has been sent and, with ``ack``, every packet has been answered.
Sent packets and answers are totals per slot that are never reset: equal totals mean that nothing is
owed, whatever order sends and answers come in.

Retiring is the instant of completion: the local counter is incremented, ``ended`` is stamped, and
the queue's fences see one command less. A failed command increments no counter: who waits for it
must not go on as if its data were there.

Latency law: a slot's last event in cycle t completes it in t + 2, if no other slot is complete;
slots that complete together retire one per cycle, in turn. An ``immediate`` command completes two
cycles after its dispatch. Its record is offered from the cycle after that.

Flow-control invariant: events are never refused. Records wait in the slots' own storage, so the
order of records is the order of completion and nothing else is held up when they cannot be written,
except that their slots stay taken.
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.arbiter import Arbiter
from hdl.layouts import CYCLE_BITS, NO_COUNTER, NODE_BITS, Completion, Op, Status
from hdl.nic.interfaces import Response, TransferDone
from hdl.nic.totals import Totals
from hdl.params import CardParams
from hdl.ports import GemmDone, ValidSignature

__all__ = ["AckTracker", "Dispatch", "Failure", "Slots"]


class Dispatch(data.Struct):
    """What a slot keeps of its command."""

    queue: 4
    op: Op
    tag: 16
    local_counter: 8
    signal: 1
    ack: 1
    #: Rail of a transfer.
    rail: 3
    #: Has no events to wait for.
    immediate: 1
    #: Why it was refused.
    status: Status
    posted: CYCLE_BITS
    started: CYCLE_BITS


class Failure(data.Struct):
    """How a command failed after its dispatch, and where."""

    status: Status
    peer: NODE_BITS
    link: 8


class AckTracker(wiring.Component):
    """One rail's transfers: which are complete, and the first error of each.

    Members
    -------
    transfer_done : ``In(ValidSignature(TransferDone))``
    response : ``In(ValidSignature(Response))``
        Those without ``ack`` are not looked at.
    ack : ``In(slots)``
        Slots whose transfer asks for responses.
    failed : ``In(slots)``
        Slots that have failed already.
    completed, fails : ``Out(slots)``
        Slots for which that happens in this cycle.
    index : ``In(4)``
    failure : ``Out(Failure)``
        The first error of slot ``index``, if it failed.
    """

    def __init__(self, *, slots: int) -> None:
        super().__init__({
            "transfer_done": In(ValidSignature(TransferDone)),
            "response": In(ValidSignature(Response)),
            "ack": In(slots), "failed": In(slots),
            "completed": Out(slots), "fails": Out(slots),
            "index": In(4), "failure": Out(Failure),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        slots = len(self.ack)
        done, response = self.transfer_done.payload, self.response.payload

        m.submodules.answers = answers = Totals(depth=slots, reads=1)
        m.submodules.packets = packets = Totals(depth=slots, reads=1)
        m.submodules.failures = failures = Memory(shape=Failure, depth=slots, init=[])
        answered, owed = answers.reads[0], packets.reads[0]
        m.d.comb += [answers.index.eq(response.slot), answers.amount.eq(1),
                     packets.index.eq(done.slot), packets.amount.eq(done.packets),
                     answered.index.eq(done.slot), owed.index.eq(response.slot)]

        #: Slots whose transfer has been sent and waits for answers.
        sent = Signal(slots)
        by_done, by_response, now_sent = Signal(slots), Signal(slots), Signal(slots)
        last = Signal()
        m.d.comb += last.eq(answers.sum == owed.total)
        with m.If(self.response.valid & response.ack):
            m.d.comb += answers.add.eq(1)
            m.d.comb += by_response.eq(Mux(last, sent & (1 << response.slot), 0))
        with m.If(self.transfer_done.valid):
            current = Signal(32)
            m.d.comb += current.eq(
                answered.total + (answers.add & (response.slot == done.slot)))
            with m.If(~self.ack.bit_select(done.slot, 1)):
                m.d.comb += by_done.eq(1 << done.slot)
            with m.Else():
                m.d.comb += packets.add.eq(1)
                with m.If(current == packets.sum):
                    m.d.comb += by_done.eq(1 << done.slot)
                with m.Else():
                    m.d.comb += now_sent.eq(1 << done.slot)
        with m.If(self.response.valid | self.transfer_done.valid):
            m.d.sync += sent.eq((sent | now_sent) & ~by_response)
        m.d.comb += self.completed.eq(by_done | by_response)

        fail = failures.write_port()
        with m.If(answers.add & (response.status != Status.OK)):
            m.d.comb += self.fails.eq(~self.failed & (1 << response.slot))
        m.d.comb += [fail.en.eq(self.fails.any()), fail.addr.eq(response.slot),
                     fail.data.status.eq(response.status), fail.data.peer.eq(response.peer),
                     fail.data.link.eq(response.link)]
        look = failures.read_port(domain="comb")
        m.d.comb += [look.addr.eq(self.index), self.failure.eq(look.data)]
        return m


class Slots(wiring.Component):
    """The table of commands in flight.

    Members
    -------
    now : ``In(48)``
    free : ``Out(1)``
        There is a free slot; its number is ``slot``.
    slot : ``Out(4)``
    dispatch : ``In(ValidSignature(Dispatch))``
        Take the free slot. Only while ``free``.
    transfer_done, responses : arrays over the rails
    done : ``In(stream.Signature(GemmDone))``
        Always ready.
    local : ``Out(ValidSignature(unsigned(8)))``
        Local counter to increment.
    drained : ``Out(queues + 1)``
        Queues of which every command is complete.
    busy : ``Out(slots)``
    error : ``Out(1)``
        A command completes with an error.
    reports : ``Out(stream.Signature(Completion))``
        Records to write, without their phase.
    active : ``Out(1)``
        A completion is under way (records are not counted).
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        slots, rails = params.nic.slots, params.rails
        super().__init__({
            "now": In(CYCLE_BITS),
            "free": Out(1, init=1),
            "slot": Out(4),
            "dispatch": In(ValidSignature(Dispatch)),
            "transfer_done": In(ValidSignature(TransferDone)).array(rails),
            "responses": In(ValidSignature(Response)).array(rails),
            "done": In(stream.Signature(GemmDone)),
            "local": Out(ValidSignature(unsigned(8))),
            "drained": Out(params.nic.queues + 1),
            "busy": Out(slots),
            "error": Out(1),
            "reports": Out(stream.Signature(Completion)),
            "active": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        slots, rails = self._params.nic.slots, self._params.rails
        dispatch = self.dispatch.payload

        m.submodules.table = table = Memory(shape=Dispatch, depth=slots, init=[])
        m.submodules.ends = ends = Memory(shape=unsigned(CYCLE_BITS), depth=slots, init=[])
        m.submodules.gemms = gemms = Memory(shape=GemmDone, depth=slots, init=[])
        m.submodules.order = order = SyncFIFO(width=4, depth=slots)
        enter, end, gemm = table.write_port(), ends.write_port(), gemms.write_port()

        # --- taking a slot
        lowest, taken, freed = Signal(slots, init=1), Signal(slots), Signal(slots)
        ack, failed, completed = Signal(slots), Signal(slots), Signal(slots)
        next_busy, next_lowest = Signal(slots), Signal(slots)
        m.d.comb += [taken.eq(Mux(self.dispatch.valid, lowest, 0)),
                     enter.en.eq(self.dispatch.valid), enter.addr.eq(self.slot),
                     enter.data.eq(self.dispatch.payload)]
        # The next free slot is found when slots change, not when one is wanted.
        with m.If(self.dispatch.valid | freed.any()):
            m.d.comb += [next_busy.eq((self.busy | taken) & ~freed),
                         next_lowest.eq(~next_busy & (next_busy + 1))]
            m.d.sync += [self.busy.eq(next_busy), lowest.eq(next_lowest),
                         self.free.eq(~next_busy.all())]
            for index in range(slots):
                with m.If(next_lowest[index]):
                    m.d.sync += self.slot.eq(index)
        with m.If(self.dispatch.valid):
            m.d.sync += ack.eq(Mux(dispatch.ack, ack | lowest, ack & ~lowest))

        # --- events
        failures = []
        events, fails = Mux(self.dispatch.valid & dispatch.immediate, lowest, 0), 0
        for rail in range(rails):
            m.submodules[f"acks_{rail}"] = tracker = AckTracker(slots=slots)
            connect(m, wiring.flipped(self.transfer_done[rail]), tracker.transfer_done)
            connect(m, wiring.flipped(self.responses[rail]), tracker.response)
            m.d.comb += [tracker.ack.eq(ack), tracker.failed.eq(failed),
                         tracker.index.eq(order.r_data)]
            failures.append(tracker.failure)
            events, fails = events | tracker.completed, fails | tracker.fails
        done, ended = self.done.payload, Signal(slots)
        m.d.comb += [self.done.ready.eq(1), gemm.en.eq(self.done.valid), gemm.addr.eq(done.slot),
                     gemm.data.eq(done), ended.eq(Mux(self.done.valid, 1 << done.slot, 0))]
        events = events | ended
        fails = fails | Mux(done.status != Status.OK, ended, 0)
        new_events, new_fails = Signal(slots), Signal(slots)
        m.d.comb += [new_events.eq(events), new_fails.eq(fails)]
        with m.If(new_fails.any() | self.dispatch.valid):
            m.d.sync += failed.eq((failed | new_fails) & ~taken)

        # --- completion, one per cycle
        m.submodules.turn = turn = Arbiter(slots)
        retiring, retired = Signal(), Signal(4)
        m.d.comb += [turn.request.eq(completed), turn.accept.eq(completed.any())]
        with m.If(completed.any() | new_events.any()):
            m.d.sync += completed.eq((completed & ~turn.grant) | new_events)
        m.d.sync += retiring.eq(completed.any())
        with m.If(completed.any()):
            for index in range(slots):
                with m.If(turn.grant[index]):
                    m.d.sync += retired.eq(index)

        ending = table.read_port(domain="comb")
        m.d.comb += ending.addr.eq(retired)
        onehot, dropped = Signal(slots), Signal(slots)
        with m.If(retiring):
            m.d.comb += [
                onehot.eq(1 << retired),
                self.error.eq((ending.data.status != Status.OK) | (failed & onehot).any()),
                self.local.payload.eq(ending.data.local_counter),
                self.local.valid.eq(~self.error & (ending.data.local_counter != NO_COUNTER)),
                end.en.eq(1),
            ]
            with m.If(self.error | ending.data.signal):
                m.d.comb += order.w_en.eq(1)
            with m.Else():
                m.d.comb += dropped.eq(onehot)
        m.d.comb += [end.addr.eq(retired), end.data.eq(self.now), order.w_data.eq(retired)]
        for queue in range(len(self.drained)):
            #: Slots of the queue's commands that are not complete.
            open_ = Signal(slots, name=f"open_{queue}")
            with m.If(self.dispatch.valid | retiring):
                m.d.sync += open_.eq(
                    (open_ | Mux(dispatch.queue == queue, taken, 0)) & ~onehot)
            m.d.comb += self.drained[queue].eq(~open_.any())
        m.d.comb += self.active.eq(completed.any() | retiring)

        # --- records
        reports = self.reports
        reported, end_look, gemm_look = (memory.read_port(domain="comb")
                                         for memory in (table, ends, gemms))
        released, failure = Signal(slots), Signal(Failure)
        m.d.comb += [reports.valid.eq(order.r_rdy), order.r_en.eq(reports.ready & reports.valid),
                     released.eq(Mux(order.r_en, 1 << order.r_data, 0)),
                     freed.eq(dropped | released)]
        for port in (reported, end_look, gemm_look):
            m.d.comb += port.addr.eq(order.r_data)
        info, gemm_info = reported.data, gemm_look.data
        is_gemm = Signal()
        with m.If(reports.valid):
            m.d.comb += is_gemm.eq((info.op == Op.GEMM) & ~info.immediate)
            with m.If(is_gemm):
                m.d.comb += failure.status.eq(gemm_info.status)
            with m.Elif(info.immediate):
                m.d.comb += failure.status.eq(info.status)
            with m.Elif((failed & (1 << order.r_data)).any()):
                for rail in range(rails):
                    with m.If(info.rail == rail):
                        m.d.comb += failure.eq(failures[rail])
            m.d.comb += [
                reports.payload.queue.eq(info.queue), reports.payload.op.eq(info.op),
                reports.payload.tag.eq(info.tag), reports.payload.status.eq(failure.status),
                reports.payload.peer.eq(failure.peer), reports.payload.link.eq(failure.link),
                reports.payload.posted.eq(info.posted),
                reports.payload.started.eq(Mux(is_gemm, gemm_info.started, info.started)),
                reports.payload.ended.eq(end_look.data)]
        return m

