"""Commands in flight: every accepted command has a slot until its record, if any, is written.

::

    dispatch ─> slot ─> its events ─> complete ─> retire ─> (record) ─> free
                        rail: sent, responses
                        compute: GEMM done
                        none: NOP, FENCE, refused commands

A transfer is complete when it has been sent and, with ``ack``, every packet has been answered, see
``acks``.

A transfer that has been under way for too long (see ``watchdog``) *expires*: it completes with
TIMEOUT, or with the first error that came back. Its slot's generation moves on, so whatever still
comes for it is not taken for an answer to the slot's next command (after eight such ends of one
slot generations repeat: by then nothing of the first is left in a fabric). The rail may still be
sending the transfer, and the totals of the slot do not agree; so the slot is given back only when
the transfer has been sent and the totals have been made equal, in a cycle in which no answer uses
them.

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

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.arbiter import Arbiter, lowest_bit, one_hot_index
from hdl.layouts import CYCLE_BITS, NO_COUNTER, Completion, EndedCommand, Op, Status
from hdl.nic.acks import AckTracker, Failure
from hdl.nic.interfaces import Response, TransferDone
from hdl.params import CardParams
from hdl.ports import GemmDone, ValidSignature

__all__ = ["Dispatch", "Slots"]


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
    #: Writes no record unless it signals, even if it fails.
    quiet: 1
    #: Why it was refused.
    status: Status
    posted: CYCLE_BITS
    started: CYCLE_BITS


class Slots(wiring.Component):
    """The table of commands in flight.

    Members
    -------
    now : ``In(48)``
    free : ``Out(1)``
        There is a free slot; its number is ``slot``.
    slot, generation : ``Out(4)``, ``Out(3)``
    dispatch : ``In(ValidSignature(Dispatch))``
        Take the free slot. Only while ``free``.
    transfer_done, responses : arrays over the rails
    done : ``In(stream.Signature(GemmDone))``
        Always ready.
    local : ``Out(ValidSignature(unsigned(8)))``
        Local counter to increment.
    live : ``Out(slots)``
        Slots with a transfer that is not complete.
    index, started : ``In(4)``, ``Out(48)``
        When slot ``index`` was taken.
    expire : ``In(slots)``
        Slots whose transfer has been under way for too long.
    drained : ``Out(queues + 1)``
        Queues of which every command is complete.
    busy : ``Out(slots)``
    error : ``Out(1)``
        A command completes with an error.
    reports : ``Out(stream.Signature(Completion))``
        Records to write, without their phase.
    active : ``Out(1)``
        A completion is under way (records are not counted).
    last_ended : ``Out(EndedCommand)``
        A register.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        slots, rails = params.nic.slots, params.rails
        super().__init__({
            "now": In(CYCLE_BITS),
            "free": Out(1, init=1),
            "slot": Out(4),
            "generation": Out(3),
            "dispatch": In(ValidSignature(Dispatch)),
            "transfer_done": In(ValidSignature(TransferDone)).array(rails),
            "responses": In(ValidSignature(Response)).array(rails),
            "done": In(stream.Signature(GemmDone)),
            "local": Out(ValidSignature(unsigned(8))),
            "live": Out(slots),
            "index": In(4),
            "started": Out(CYCLE_BITS),
            "expire": In(slots),
            "drained": Out(params.nic.queues + 1),
            "busy": Out(slots),
            "error": Out(1),
            "reports": Out(stream.Signature(Completion)),
            "active": Out(1),
            "last_ended": Out(EndedCommand),
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

        began = table.read_port(domain="comb")
        m.d.comb += [began.addr.eq(self.index), self.started.eq(began.data.started)]
        # A refused command moves nothing, whatever its operation.
        moves = Signal()
        m.d.comb += moves.eq(~dispatch.immediate & (dispatch.op != Op.GEMM))
        generations = Signal(data.ArrayLayout(unsigned(3), slots))
        m.d.comb += self.generation.eq(generations[self.slot])
        #: Slots whose transfer expired, and of these: given back but for what is still owed.
        expired, parked, settle, settled = (Signal(slots), Signal(slots), Signal(slots), Signal(4))

        # --- events
        failures = []
        events, fails = Mux(self.dispatch.valid & dispatch.immediate, lowest, 0), 0
        for rail in range(rails):
            m.submodules[f"acks_{rail}"] = tracker = AckTracker(slots=slots)
            connect(m, wiring.flipped(self.transfer_done[rail]), tracker.transfer_done)
            connect(m, wiring.flipped(self.responses[rail]), tracker.response)
            m.d.comb += [tracker.generations.eq(generations), tracker.expired.eq(expired),
                         tracker.settle.eq(settle), tracker.settled.eq(settled),
                         tracker.ack.eq(ack), tracker.failed.eq(failed),
                         tracker.index.eq(order.r_data)]
            failures.append(tracker.failure)
            events, fails = events | tracker.completed, fails | tracker.fails
        done, ended = self.done.payload, Signal(slots)
        m.d.comb += [self.done.ready.eq(1), gemm.en.eq(self.done.valid), gemm.addr.eq(done.slot),
                     gemm.data.eq(done), ended.eq(Mux(self.done.valid, 1 << done.slot, 0))]
        events = events | ended
        fails = fails | Mux(done.status != Status.OK, ended, 0)
        new_events, new_fails, expires = Signal(slots), Signal(slots), Signal(slots)
        with m.If(self.expire.any()):
            m.d.comb += expires.eq(self.expire & self.live & ~events)
            for index in range(slots):
                with m.If(expires[index]):
                    m.d.sync += generations[index].eq(generations[index] + 1)
        m.d.comb += [new_events.eq(events | expires), new_fails.eq(fails)]
        with m.If(self.dispatch.valid | new_events.any()):
            m.d.sync += self.live.eq((self.live | Mux(moves, taken, 0)) & ~new_events)
        self._park(m, Mux(self.dispatch.valid & moves, taken, 0), expires, expired, parked, settle,
                   settled)
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
                self.error.eq((ending.data.status != Status.OK)
                              | ((failed | expired) & onehot).any()),
                self.local.payload.eq(ending.data.local_counter),
                self.local.valid.eq(~self.error & (ending.data.local_counter != NO_COUNTER)),
                end.en.eq(1),
            ]
            m.d.sync += [self.last_ended.turn.eq(~self.last_ended.turn),
                         self.last_ended.slot.eq(retired), self.last_ended.failed.eq(self.error)]
            with m.If(self.error & ~ending.data.quiet | ending.data.signal):
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
        m.d.comb += self.active.eq(completed.any() | retiring | settle.any())

        # --- records
        reports = self.reports
        reported, end_look, gemm_look = (memory.read_port(domain="comb")
                                         for memory in (table, ends, gemms))
        released, failure = Signal(slots), Signal(Failure)
        m.d.comb += [reports.valid.eq(order.r_rdy), order.r_en.eq(reports.ready & reports.valid),
                     released.eq(Mux(order.r_en, 1 << order.r_data, 0)),
                     freed.eq(((dropped | released) & ~expired) | settle)]
        with m.If((dropped | released | settle).any()):
            m.d.sync += parked.eq((parked | ((dropped | released) & expired)) & ~settle)
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
            with m.Elif((expired & (1 << order.r_data)).any()):
                m.d.comb += failure.status.eq(Status.TIMEOUT)
            m.d.comb += [
                reports.payload.queue.eq(info.queue), reports.payload.op.eq(info.op),
                reports.payload.tag.eq(info.tag), reports.payload.status.eq(failure.status),
                reports.payload.peer.eq(failure.peer), reports.payload.link.eq(failure.link),
                reports.payload.posted.eq(info.posted),
                reports.payload.started.eq(Mux(is_gemm, gemm_info.started, info.started)),
                reports.payload.ended.eq(end_look.data)]
        return m

    def _park(self, m: Module, moves, expires, expired, parked, settle, settled) -> None:
        """Keep track of expired slots until they can be given back."""
        slots = len(moves)
        #: Slots whose transfer is with its rail.
        sending, done = Signal(slots), Signal(slots)
        for transfer_done in self.transfer_done:
            with m.If(transfer_done.valid):
                for index in range(slots):
                    with m.If(transfer_done.payload.slot == index):
                        m.d.comb += done[index].eq(1)
        with m.If(self.dispatch.valid | done.any()):
            m.d.sync += sending.eq((sending | moves) & ~done)
        with m.If((expires | settle).any()):
            m.d.sync += expired.eq((expired | expires) & ~settle)
        quiet = ~Cat(port.valid for ports in (self.transfer_done, self.responses)
                     for port in ports).any()
        with m.If(parked.any() & quiet):
            m.d.comb += [settle.eq(lowest_bit(parked & ~sending)),
                         settled.eq(one_hot_index(settle))]
