"""Completion records: late errors, and the writer of the completion ring.

Latency law: the writer offers a record to memory in the cycle after it took it, and takes the next
in the cycle after memory accepted its last flit.

Flow-control invariant: tail − head < size when a record is taken, so no record overwrites one that
the host has not consumed. ``tail`` counts records that memory has accepted, so a host that has seen
the total finds the record.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter
from hdl.layouts import CYCLE_BITS, NODE_BITS, Completion, Status
from hdl.nic.interfaces import Response
from hdl.params import CardParams
from hdl.ports import MemoryWriteSignature, ValidSignature

__all__ = ["LATE_DEPTH", "NO_QUEUE", "CompletionWriter", "LateErrors"]

RECORD_BYTES = 32
#: Late errors of a rail that may wait for their record.
LATE_DEPTH = 4
#: Queue number in the record of a late error: which queue the command came from is forgotten.
NO_QUEUE = 0xF


class _Late(data.Struct):
    """What is kept of an error response that nobody waits for."""

    tag: 16
    peer: NODE_BITS
    status: Status
    link: 8
    ended: CYCLE_BITS


class LateErrors(wiring.Component):
    """Error responses of commands that did not ask for acks and may be long done.

    Each becomes a record, except that one equal in tag, peer, status and link to the one just
    before is the same command's next packet and says nothing new. Dispatching a command with that
    tag ends the repetition, so a tag that is used again is reported again.

    Latency law: a response in cycle t is offered as a record in t + 1, if none waits.

    Flow-control invariant: responses are never refused. With :data:`LATE_DEPTH` errors waiting,
    further ones are counted and dropped.

    Members
    -------
    now : ``In(48)``
    response : ``In(ValidSignature(Response))``
    dispatched : ``In(ValidSignature(16))``
        Tag of a transfer that is dispatched to this rail.
    error : ``Out(1)``
        An error was counted, whether or not it will be recorded.
    reports : ``Out(stream.Signature(Completion))``
    """

    def __init__(self) -> None:
        super().__init__({
            "now": In(CYCLE_BITS),
            "response": In(ValidSignature(Response)),
            "dispatched": In(ValidSignature(16)),
            "error": Out(1),
            "reports": Out(stream.Signature(Completion)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        response, reports = self.response.payload, self.reports
        m.submodules.waiting = waiting = SyncFIFO(
            width=Shape.cast(_Late).width, depth=LATE_DEPTH)
        known, last, entry = Signal(), Signal(_Late), Signal(_Late)
        with m.If(self.response.valid & ~response.ack & (response.status != Status.OK)):
            m.d.comb += [entry.tag.eq(response.tag), entry.peer.eq(response.peer),
                         entry.status.eq(response.status), entry.link.eq(response.link),
                         entry.ended.eq(self.now)]
            m.d.comb += self.error.eq(~(known & (last.tag == entry.tag)
                                        & (last.peer == entry.peer)
                                        & (last.status == entry.status)
                                        & (last.link == entry.link)))
        with m.If(self.error):
            m.d.sync += [known.eq(1), last.eq(entry)]
        with m.If(self.dispatched.valid
                  & (self.dispatched.payload == Mux(self.error, entry.tag, last.tag))):
            m.d.sync += known.eq(0)
        m.d.comb += [waiting.w_data.eq(entry), waiting.w_en.eq(self.error),
                     reports.valid.eq(waiting.r_rdy),
                     waiting.r_en.eq(reports.valid & reports.ready)]
        oldest = Signal(_Late)
        with m.If(reports.valid):
            m.d.comb += [
                oldest.eq(waiting.r_data),
                reports.payload.queue.eq(NO_QUEUE), reports.payload.tag.eq(oldest.tag),
                reports.payload.status.eq(oldest.status), reports.payload.peer.eq(oldest.peer),
                reports.payload.link.eq(oldest.link), reports.payload.ended.eq(oldest.ended)]
        return m


class CompletionWriter(wiring.Component):
    """Writes records into the completion ring, from ``sources`` in turn.

    Members
    -------
    base, size, head : ``In(64)``
        The ring's registers.
    tail : ``Out(32)``
        Total of records that memory has accepted.
    reports : ``In(stream.Signature(Completion)).array(sources)``
        Records without their phase.
    records : ``Out(MemoryWriteSignature)``
    active : ``Out(1)``
        A record is being written, or waits and has room.
    """

    def __init__(self, params: CardParams, *, sources: int) -> None:
        self._flit_bytes = params.link.flit_bytes
        super().__init__({
            "base": In(64), "size": In(64), "head": In(64), "tail": Out(32),
            "reports": In(stream.Signature(Completion)).array(sources),
            "records": Out(MemoryWriteSignature(self._flit_bytes)),
            "active": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        flit_bytes, request = self._flit_bytes, self.records.request
        lane_bits = (flit_bytes - 1).bit_length()
        beats = max(1, RECORD_BYTES // flit_bytes)

        m.submodules.turn = turn = Arbiter(len(self.reports))
        unread, room, take = Signal(32), Signal(), Signal()
        m.d.comb += [turn.request.eq(Cat(report.valid for report in self.reports)),
                     unread.eq(self.tail - self.head[:32]),
                     room.eq(unread < self.size[:32]),
                     take.eq(room & turn.request.any() & ~request.valid),
                     turn.accept.eq(take)]
        record, address = Signal(Completion), Signal(48)
        position = Signal(32)
        with m.If(take):
            m.d.comb += position.eq(self.tail & (self.size[:32] - 1))
            m.d.comb += address.eq(self.base[5:48] + position << 5)
            for index, report in enumerate(self.reports):
                with m.If(turn.grant[index]):
                    m.d.comb += [record.eq(report.payload), report.ready.eq(1)]
            m.d.comb += record.phase.eq(~(self.tail & self.size[:32]).any())
            m.d.sync += [request.valid.eq(1), request.payload.index.eq(address[lane_bits:])]

        beat = Signal(range(max(2, beats)))
        rest = Signal(8 * RECORD_BYTES)
        if flit_bytes <= RECORD_BYTES:
            m.d.comb += [request.payload.data.eq(rest), request.payload.mask.eq(-1)]
        else:
            lane = Signal(lane_bits - 5)
            with m.If(take):
                m.d.sync += lane.eq(address[5:lane_bits])
            for index in range(flit_bytes // RECORD_BYTES):
                with m.If(lane == index):
                    m.d.comb += request.payload.data.word_select(index, 8 * RECORD_BYTES).eq(rest)
                    m.d.comb += request.payload.mask.word_select(index, RECORD_BYTES).eq(-1)
        with m.If(take):
            m.d.sync += [rest.eq(record), beat.eq(0)]
        with m.Elif(request.valid & request.ready):
            with m.If(beat == beats - 1):
                m.d.sync += [request.valid.eq(0), self.tail.eq(self.tail + 1)]
            with m.Else():
                m.d.sync += [beat.eq(beat + 1), rest.eq(rest >> 8 * flit_bytes),
                             request.payload.index.eq(request.payload.index + 1)]
        m.d.comb += self.active.eq(request.valid | (room & turn.request.any()))
        return m
