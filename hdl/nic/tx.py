"""Transmit side of a rail: transfers become packets, and replies of rx become response packets.

::

    transfer ─┬─► queue (one entry per slot) ──► current ──► header, lanes ─┐
              └─► reader ──► read port … buffer ──► aligner ────────────────┼─► send
    reply ──────────────────────────────────────────────────────────────────┘

Requests leave on lane 0 of class 0, replies on lane 0 of class 1.

Latency law: a transfer accepted in cycle ``t`` asks for its first flit in ``t + 1``, and its header
is at ``send`` one cycle after that flit's response: ``t + 2 + memory latency``. An empty transfer's
header is at ``send`` in ``t + 2``. Then one flit per cycle: a 1 KiB packet takes 33 cycles at 32 B,
one with an extension 34, the next packet and the next transfer follow without a gap, since reading
runs ahead of sending. A reply offered in cycle ``t`` is at ``send`` in ``t``.

Flow control: a flit is sent when its VC has a credit. A header waits for its packet's first flit of
data, so that a packet does not hold virtual channels in the fabric while memory is still at work.
Replies go first, flit by flit, and need nothing but a credit of their class: requests that are
blocked, by credits or by memory, never hold a reply.

Alignment: source flit ``i`` and its predecessor, side by side, are shifted so that bytes come to
sit in the lanes of the target address. If the source lane is above the target lane, a target flit
needs source flits ``i`` and ``i + 1``; the first one is taken while the header leaves. Lanes
outside the transfer's range carry no meaning.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import (
    ADDRESS_BITS,
    NO_COUNTER,
    NODE_BITS,
    DType,
    Extension,
    GlobalAddress,
    PacketHeader,
    PacketOp,
    ReduceOp,
    ReplyState,
    TxState,
    flit,
)
from hdl.nic.fifo import Fifo
from hdl.nic.interfaces import Transfer, TransferDone
from hdl.nic.packets import (
    PACKET_VERSION,
    REQUEST_CLASS,
    RESPONSE_CLASS,
    Reply,
    class_vc,
    header_flits,
)
from hdl.nic.reader import Reader, flit_range
from hdl.params import CardParams
from hdl.ports import MemoryReadSignature, ValidSignature

__all__ = ["Transmitter"]


class _Job(data.Struct):
    """What sending needs of a transfer; ``target``, ``addend`` and ``length`` move on with each
    packet."""

    slot: 4
    generation: 3
    op: PacketOp
    ack: 1
    dtype: DType
    redop: ReduceOp
    counter: 8
    tag: 16
    key: 32
    path: 8
    extended: 1
    addend: ADDRESS_BITS
    target: GlobalAddress
    length: 32


class Transmitter(wiring.Component):
    """tx of a rail.

    Members
    -------
    node : ``In(16)``
    transfer : ``In(stream.Signature(Transfer))``
    done : ``Out(ValidSignature(TransferDone))``
        A register, one cycle after the last flit was sent.
    reply : ``In(stream.Signature(Reply))``
    read : ``Out(MemoryReadSignature)``
    send : ``Out(ValidSignature(flit))``
        A flit, offered only for a VC whose bit of ``available`` is set.
    available : ``In(vcs)``
    sent : ``Out(1)``
        A register: the tail of a packet was sent in the cycle before.
    idle : ``Out(1)``
        A function of registers and of ``available``.
    state, slot, reply_state : ``Out(TxState)``, ``Out(4)``, ``Out(ReplyState)``
        What it does in this cycle, likewise.
    """

    def __init__(self, params: CardParams, index: int = 0) -> None:
        self.params, self.index = params, index
        link = params.link
        super().__init__({
            "node": In(NODE_BITS),
            "transfer": In(stream.Signature(Transfer)),
            "done": Out(ValidSignature(TransferDone)),
            "reply": In(stream.Signature(Reply)),
            "read": Out(MemoryReadSignature(link.flit_bytes)),
            "send": Out(ValidSignature(flit(link))),
            "available": In(link.vcs),
            "sent": Out(1),
            "idle": Out(1),
            "state": Out(TxState),
            "slot": Out(4),
            "reply_state": Out(ReplyState),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link = self.params.link
        flit_bytes, flit_bits, mtu = link.flit_bytes, link.flit_bits, self.params.nic.mtu
        lane_bits = (flit_bytes - 1).bit_length()
        mtu_bits = (mtu - 1).bit_length()
        beats = header_flits(link)
        entry = data.StructLayout({
            "job": _Job,
            "flits": flit_range(flit_bytes)["count"].shape,
            "lane": unsigned(lane_bits),
        })

        m.submodules.reader = reader = Reader(
            flit_bytes=flit_bytes, depth=self.params.nic.read_depth)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        m.submodules.queue = queue = Fifo(entry, depth=self.params.nic.slots)

        # Accept: the reader and the queue each get their part.
        transfer = self.transfer.payload
        accepted, empty = Signal(), Signal()
        source_lane = transfer.source[:lane_bits]
        count = (source_lane + transfer.length + flit_bytes - 1) >> lane_bits
        m.d.comb += [
            empty.eq(transfer.length == 0),
            self.transfer.ready.eq(reader.run.ready & queue.room),
            accepted.eq(self.transfer.valid & self.transfer.ready),
            reader.run.valid.eq(self.transfer.valid & queue.room & ~empty),
            reader.run.payload.index.eq(transfer.source[lane_bits:]),
            reader.run.payload.count.eq(count),
            queue.write.valid.eq(accepted),
            queue.write.payload.flits.eq(Mux(empty, 0, count)),
            queue.write.payload.lane.eq(source_lane),
        ]
        m.d.comb += [queue.write.payload.job[name].eq(transfer[name]) for name, _ in
                     data.Layout.cast(_Job)]

        # The transfer that is being sent.
        busy = Signal()
        job = Signal(_Job)
        left = Signal.like(queue.read.payload.flits)  # source flits not yet taken
        shift = Signal(range(flit_bytes + 1))         # bytes from the pair of source flits on
        prime = Signal()                              # one source flit is taken with the header
        packets = Signal(32)
        payload = Signal()                            # within a packet, after its header
        flits = Signal(range(mtu // flit_bytes + 1))  # payload flits of the packet still to send
        beat = Signal(range(2 * beats))               # flits of header and extension that are sent
        size = Signal(range(mtu + 1))                 # bytes of the packet
        to_boundary = mtu - job.target.offset[:mtu_bits]
        last_beat = beat == Mux(job.extended, 2 * beats - 1, beats - 1)
        first_beat = beat == 0

        request_vc, reply_vc = class_vc(link, REQUEST_CLASS), class_vc(link, RESPONSE_CLASS)
        able, reply_able = Signal(), Signal()
        sending, closing, finished, load, take = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            size.eq(Mux(job.length < to_boundary, job.length, to_boundary)),
            able.eq(busy & ((left == 0) | reader.flits.valid) & self.available[request_vc]),
            reply_able.eq(self.reply.valid & self.available[reply_vc]),
            sending.eq(able & ~reply_able),
            closing.eq(Mux(payload, flits == 1, last_beat & (size == 0))),
            finished.eq(sending & closing & (job.length == 0)),
            load.eq(~busy | finished),
            queue.read.ready.eq(load),
            take.eq(sending & (left != 0) & (payload | prime & first_beat)),
            reader.flits.ready.eq(take),
        ]
        m.d.sync += [
            self.done.valid.eq(finished),
            self.done.payload.slot.eq(job.slot),
            self.done.payload.packets.eq(Mux(payload, packets, 1)),
        ]

        with m.If(sending):
            with m.If(payload):
                m.d.sync += [flits.eq(flits - 1), payload.eq(~closing)]
            with m.Else():
                m.d.sync += beat.eq(Mux(last_beat, 0, beat + 1))
                with m.If(first_beat):
                    m.d.sync += prime.eq(0)
                with m.If(last_beat):
                    m.d.sync += [
                        payload.eq(size != 0),
                        flits.eq((job.target.offset[:lane_bits] + size + flit_bytes - 1)
                                 >> lane_bits),
                        job.target.offset.eq(job.target.offset + size),
                        job.length.eq(job.length - size),
                        job.addend.eq(job.addend + size),
                        packets.eq(packets + 1),
                    ]
        with m.If(take):
            m.d.sync += left.eq(left - 1)
        with m.If(load):
            entry = queue.read.payload
            turn = Signal(lane_bits + 1)
            target_lane = entry.job.target.offset[:lane_bits]
            m.d.comb += turn.eq(target_lane - entry.lane)
            m.d.sync += [
                busy.eq(queue.read.valid),
                job.eq(entry.job),
                left.eq(entry.flits),
                packets.eq(0),
                # Rotating left by `turn` is shifting the pair right by one flit less that much.
                shift.eq(flit_bytes - turn[:lane_bits]),
                prime.eq(turn[-1]),
            ]

        # Headers and payload are formed only when they are sent: they are wide.
        header = Signal(PacketHeader)
        with m.If(able & ~payload):
            m.d.comb += [
                header.dst.eq(job.target.node),
                header.src.eq(self.node),
                header.version.eq(PACKET_VERSION),
                header.klass.eq(REQUEST_CLASS),
                header.rail.eq(self.index),
                header.op.eq(job.op),
                header.flags.ack.eq(job.ack),
                header.flags.extended.eq(job.extended),
                header.slot.eq(job.slot),
                header.address.eq(job.target.offset),
                header.length.eq(size),
                header.counter.eq(job.counter),
                header.dtype.eq(job.dtype),
                header.redop.eq(job.redop),
                header.key.eq(job.key),
                header.tag.eq(job.tag),
                header.generation.eq(job.generation),
                header.path.eq(job.path),
            ]
        extension = Signal(Extension)
        extending = Signal()
        m.d.comb += extending.eq(beat[-1] if beats == 1 else beat >= beats)
        with m.If(able & ~payload & extending):
            m.d.comb += extension.address.eq(job.addend)
        previous, aligned = Signal(flit_bits), Signal(flit_bits)
        with m.If(take):
            m.d.sync += previous.eq(reader.flits.payload)
        m.d.comb += aligned.eq(
            Cat(previous, reader.flits.payload) >> Cat(Const(0, 3), shift))

        reply = self.reply.payload
        reply_beat = Signal(range(max(2, beats)))
        reply_header = Signal(PacketHeader)
        reply_last = reply_beat == beats - 1
        with m.If(reply_able):
            m.d.comb += [
                reply_header.dst.eq(reply.dst),
                reply_header.src.eq(self.node),
                reply_header.version.eq(PACKET_VERSION),
                reply_header.klass.eq(RESPONSE_CLASS),
                reply_header.rail.eq(self.index),
                reply_header.op.eq(PacketOp.RESPONSE),
                reply_header.flags.ack.eq(reply.ack),
                reply_header.slot.eq(reply.slot),
                reply_header.status.eq(reply.status),
                reply_header.address.eq(reply.address),
                reply_header.length.eq(reply.length),
                reply_header.counter.eq(NO_COUNTER),
                reply_header.tag.eq(reply.tag),
                reply_header.generation.eq(reply.generation),
            ]
        m.d.comb += self.reply.ready.eq(self.available[reply_vc] & reply_last)
        with m.If(reply_able):
            m.d.sync += reply_beat.eq(Mux(reply_last, 0, reply_beat + 1))

        def part(word: Signal, number: Signal) -> Value:
            """The flit of a header or extension that leaves as beat ``number``."""
            bits = word.as_value()
            return bits if beats == 1 else bits.word_select(number[0], flit_bits)

        send = self.send.payload
        m.d.comb += self.send.valid.eq(able | reply_able)
        with m.If(reply_able):
            m.d.comb += [
                send.payload.eq(part(reply_header, reply_beat)),
                send.vc.eq(reply_vc),
                send.head.eq(reply_beat == 0),
                send.tail.eq(reply_last),
            ]
        with m.Elif(able):
            m.d.comb += [
                send.payload.eq(Mux(payload, aligned, Mux(extending, part(extension, beat),
                                                          part(header, beat)))),
                send.vc.eq(request_vc),
                send.head.eq(~payload & first_beat),
                send.tail.eq(closing),
            ]
        m.d.sync += self.sent.eq(self.send.valid & send.tail)
        m.d.comb += self.idle.eq(
            reader.idle & ~(~busy & queue.read.valid) & ~able & ~reply_able
            & ~self.done.valid & ~self.sent)

        m.d.comb += self.slot.eq(job.slot)
        with m.If(self.reply.valid):
            m.d.comb += self.reply_state.eq(Mux(reply_able, ReplyState.SEND, ReplyState.CREDIT))
        with m.If(sending):
            m.d.comb += self.state.eq(TxState.SEND)
        with m.Elif(able):
            m.d.comb += self.state.eq(TxState.REPLY)
        with m.Elif(busy):
            m.d.comb += self.state.eq(Mux(self.available[request_vc], TxState.MEMORY,
                                          TxState.CREDIT))
        return m


