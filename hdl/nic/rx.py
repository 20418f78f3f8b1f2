"""Receive side of a rail: requests become memory updates and increments, responses become pulses.

::

    receive ─┬─ class 1 ──► response
             └─ class 0 ──► requests (FIFO) ──► parse ──┬──► update ──► write port
                                                │ │     └──► read requests of reductions
                                                │ └──► records (FIFO), hazards
                                                └ retire ──► increment, replies (FIFO) ──► reply

Latency law: a flit that arrives in cycle ``t`` at an idle block is parsed in ``t + 1``; a payload
flit of a WRITE is on the write port in ``t + 3``, one of a REDUCE asks memory in ``t + 2`` and is
written 5 cycles after the answer. When memory accepts a packet's last write in cycle ``w``,
``increment`` is in ``w + 1``, and so is ``reply``. A response is at ``response`` in ``t + 1``. One
flit per cycle, reductions included: the header's cycle is the only one without payload.

A header with an extension is parsed when that is there: a flit later at 32 B.

Order: all packets in order of arrival. Each good packet counts exactly once, after memory has
accepted its last write. A refused packet is drained, writes nothing, counts nothing, and is always
answered. A packet that was cut ends in a poisoned tail, which carries nothing: the payload before
it has been written (or added) as it came, the packet counts nothing and is always answered, with
``POISON``. Cut within its header, which takes 16 B flits, it has no tag to be answered with and is
dropped, as are cut responses.

Flow control: credits guarantee room for arriving requests; a flit's credit is returned when it is
parsed. A header is parsed when there is room for the packet's record and for its reply, a flit of
payload when there is room for its step; a reduction also waits while its range overlaps that of an
older packet with writes on the way (see ``hazards``), and asks memory only with its step's place
taken. All of these waits end by memory accepting writes and by the fabric accepting responses.
Responses are taken as they arrive and wait for nothing.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.compute.elements import reducible
from hdl.layouts import (
    ADDRESS_BITS,
    NO_COUNTER,
    DType,
    Extension,
    PacketHeader,
    PacketOp,
    ReduceOp,
    RxState,
    Status,
    flit,
)
from hdl.nic.fifo import Fifo
from hdl.nic.hazards import Hazards
from hdl.nic.interfaces import Response
from hdl.nic.packets import (
    LENGTH_BITS,
    PACKET_VERSION,
    REQUEST_CLASS,
    RESPONSE_CLASS,
    Reply,
    class_vc,
    header_flits,
)
from hdl.nic.update import Update
from hdl.params import CardParams
from hdl.ports import (
    MemoryReadSignature,
    MemoryWriteSignature,
    ValidSignature,
    memory_index_bits,
)

__all__ = ["Receiver"]


class _Record(data.Struct):
    """What is left to do for a packet once its writes are accepted."""

    reply: Reply
    counter: 8


class Receiver(wiring.Component):
    """rx of a rail.

    Members
    -------
    memory_bytes : ``In(49)``
    receive : ``In(ValidSignature(flit))``
        Flits as they arrive; may be combinational from pins.
    free : ``Out(ValidSignature(vc))``
        A flit has left its buffer; a function of registers.
    read : ``Out(MemoryReadSignature)``
    write : ``Out(MemoryWriteSignature)``
        Requests are functions of registers.
    increment : ``Out(ValidSignature(8))``
    response : ``Out(ValidSignature(Response))``
    received : ``Out(1)``
        Registers; ``received``: the tail of a packet arrived in the cycle before.
    reply : ``Out(stream.Signature(Reply))``
    idle : ``Out(1)``
        A function of registers. A waiting ``reply`` is the taker's to report.
    state : ``Out(RxState)``
        A function of registers.
    """

    def __init__(self, params: CardParams) -> None:
        self.params = params
        link = params.link
        super().__init__({
            "memory_bytes": In(ADDRESS_BITS + 1),
            "receive": In(ValidSignature(flit(link))),
            "free": Out(ValidSignature(unsigned(link.vc_bits))),
            "read": Out(MemoryReadSignature(link.flit_bytes)),
            "write": Out(MemoryWriteSignature(link.flit_bytes)),
            "increment": Out(ValidSignature(unsigned(8))),
            "response": Out(ValidSignature(Response)),
            "received": Out(1),
            "reply": Out(stream.Signature(Reply)),
            "idle": Out(1),
            "state": Out(RxState),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link, nic = self.params.link, self.params.nic
        flit_bytes, flit_bits = link.flit_bytes, link.flit_bits
        lane_bits = (flit_bytes - 1).bit_length()
        beats = header_flits(link)
        request_vc, response_vc = class_vc(link, REQUEST_CLASS), class_vc(link, RESPONSE_CLASS)

        # --- arrival
        arriving = self.receive.payload
        is_request, is_response, freed = Signal(), Signal(), Signal()
        m.submodules.requests = requests = Fifo(
            data.StructLayout({"payload": flit_bits, "tail": 1, "poison": 1}), depth=link.vc_depth)
        m.d.comb += [
            is_request.eq(self.receive.valid & (arriving.vc == request_vc)),
            is_response.eq(self.receive.valid & (arriving.vc == response_vc)),
            requests.write.valid.eq(is_request),
            requests.write.payload.payload.eq(arriving.payload),
            requests.write.payload.tail.eq(arriving.tail),
            requests.write.payload.poison.eq(arriving.poison),
        ]
        m.d.sync += self.received.eq(self.receive.valid & arriving.tail)

        # Both classes may free a flit in one cycle, the pins tell one: responses first, and
        # requests count what is left to tell.
        response_freed = Signal()
        owed = Signal(range(link.vc_depth + 1))
        m.d.comb += [
            self.free.valid.eq(response_freed | (owed != 0)),
            self.free.payload.eq(Mux(response_freed, response_vc, request_vc)),
        ]
        m.d.sync += [
            response_freed.eq(is_response),
            owed.eq(owed + freed - ((owed != 0) & ~response_freed)),
        ]

        def gather(name: str, payload: Value, taken: Value) -> tuple[data.View, Value]:
            """The header that the flit at hand completes, and whether it does."""
            header = Signal(PacketHeader, name=f"{name}_header")
            if beats == 1:
                m.d.comb += header.eq(payload[:PacketHeader.as_shape().size])
                return header, Const(1)
            saved = Signal(flit_bits, name=f"{name}_saved")
            whole = Signal(name=f"{name}_whole")
            m.d.comb += header.eq(Cat(saved, payload))
            with m.If(taken):
                m.d.sync += [saved.eq(payload), whole.eq(~whole)]
            return header, whole

        def gather_extended(payload: Value, taken: Value) -> tuple[data.View, data.View, Value,
                                                                   Value]:
            """The header and the extension that the flit at hand completes, whether it does, and
            whether the header is there before it."""
            header = Signal(PacketHeader, name="request_header")
            extension = Signal(Extension, name="request_extension")
            place, whole, known = Signal(range(2 * beats)), Signal(), Signal()
            saved = [Signal(flit_bits, name=f"request_saved{beat}")
                     for beat in range(2 * beats - 1)]
            bits = PacketHeader.as_shape().size
            m.d.comb += known.eq(place >= beats)
            with m.If(known):
                m.d.comb += [header.eq(Cat(*saved[:beats])[:bits]),
                             extension.eq(Cat(*saved[beats:], payload)[:bits])]
            with m.Else():
                m.d.comb += header.eq(Cat(*saved[:beats - 1], payload)[:bits])
            m.d.comb += whole.eq((place == 2 * beats - 1)
                                 | (place == beats - 1) & ~header.flags.extended)
            with m.If(taken):
                m.d.sync += place.eq(Mux(whole | front.poison, 0, place + 1))
                for beat, register in enumerate(saved):
                    with m.If((place == beat) & ~whole):
                        m.d.sync += register.eq(payload)
            return header, extension, whole, known

        answer, answer_whole = gather("answer", arriving.payload, is_response)
        m.d.sync += [
            self.response.valid.eq(is_response & answer_whole & ~arriving.poison
                                   & (answer.op == PacketOp.RESPONSE)),
            self.response.payload.slot.eq(answer.slot),
            self.response.payload.generation.eq(answer.generation),
            self.response.payload.ack.eq(answer.flags.ack),
            self.response.payload.status.eq(answer.status),
            self.response.payload.tag.eq(answer.tag),
            self.response.payload.peer.eq(answer.src),
            self.response.payload.link.eq(
                Mux(answer.status == Status.LINK_DOWN, answer.counter, 0)),
        ]

        # --- the header at the front
        front = requests.read.payload
        popped, inside = Signal(), Signal()
        beat_taken = Signal()
        header, extension, whole, known = gather_extended(front.payload, beat_taken)
        #: The bytes that are written end here, and those that a reduction reads start here and end.
        end, read_start, read_end = (Signal(ADDRESS_BITS + 1, name=name)
                                     for name in ("end", "read_start", "read_end"))
        status = Signal(Status)
        reduces = Signal()
        m.d.comb += [
            end.eq(header.address + header.length),
            read_start.eq(Mux(header.flags.extended & ~front.poison, extension.address,
                              header.address)),
            read_end.eq(read_start + header.length),
            reduces.eq(header.op == PacketOp.REDUCE),
        ]
        element = Signal()  # type, operator and alignment can be reduced
        m.d.comb += element.eq(
            reducible(header.dtype.as_value(), header.redop.as_value(),
                      header.address | header.length)
            & (read_start[:lane_bits] == header.address[:lane_bits]))
        with m.If((header.version != PACKET_VERSION) | ~(
                reduces | (header.op == PacketOp.WRITE) & ~header.flags.extended)):
            m.d.comb += status.eq(Status.BAD_COMMAND)
        with m.Elif((end > self.memory_bytes) | (read_end > self.memory_bytes)):
            m.d.comb += status.eq(Status.TARGET_RANGE)
        with m.Elif((header.counter >= nic.counters) & (header.counter != NO_COUNTER)):
            m.d.comb += status.eq(Status.BAD_COUNTER)
        with m.Elif(reduces & ~element):
            m.d.comb += status.eq(Status.BAD_DTYPE)
        with m.Elif(header.flags.poison):
            m.d.comb += status.eq(Status.POISON)
        good = Signal()
        m.d.comb += good.eq(status == Status.OK)

        # --- packets in flight
        packets = max(2, nic.rmw_packets)
        m.submodules.records = records = Fifo(_Record, depth=packets)
        m.submodules.replies = replies = Fifo(Reply, depth=packets)
        m.submodules.hazards = hazards = Hazards(packets=packets)
        reply_room = Signal(range(packets + 1), init=packets)
        opened, retired, replying = Signal(), Signal(), Signal()
        cut, ended = Signal(), Signal(Status)
        wiring.connect(m, replies.read, wiring.flipped(self.reply))
        record = records.read.payload
        m.d.comb += [
            records.write.valid.eq(opened),
            records.write.payload.reply.dst.eq(header.src),
            records.write.payload.reply.slot.eq(header.slot),
            records.write.payload.reply.generation.eq(header.generation),
            records.write.payload.reply.tag.eq(header.tag),
            records.write.payload.reply.ack.eq(header.flags.ack),
            records.write.payload.reply.status.eq(status),
            records.write.payload.reply.address.eq(header.address),
            records.write.payload.reply.length.eq(header.length),
            records.write.payload.counter.eq(header.counter),
            hazards.start.eq(header.address),
            hazards.end.eq(end),
            hazards.read_start.eq(read_start),
            hazards.read_end.eq(read_end),
            hazards.open.eq(opened),
            hazards.matters.eq(good & (header.length != 0)),
            hazards.close.eq(retired),
            records.read.ready.eq(retired),
            ended.eq(Mux(cut & (record.reply.status == Status.OK), Status.POISON,
                         record.reply.status)),
            replying.eq(retired & (record.reply.ack | (ended != Status.OK))),
            replies.write.valid.eq(replying),
            replies.write.payload.eq(record.reply),
            replies.write.payload.status.eq(ended),
        ]
        # A place for the reply is reserved with the header, and given back if none is needed.
        m.d.sync += [
            reply_room.eq(reply_room + (self.reply.valid & self.reply.ready)
                          + (retired & ~replying) - opened),
            self.increment.valid.eq(retired & (ended == Status.OK)
                                    & (record.counter != NO_COUNTER)),
            self.increment.payload.eq(record.counter),
        ]

        # --- payload
        m.submodules.update = update = Update(flit_bytes=flit_bytes, depth=nic.read_depth)
        wiring.connect(m, update.write, wiring.flipped(self.write))
        index = Signal(memory_index_bits(flit_bytes))
        addend_index = Signal.like(index)
        left = Signal(range(2 + (1 << LENGTH_BITS) // flit_bytes))  # flits with bytes of the range
        first_lane, spare_lanes = Signal(lane_bits), Signal(lane_bits)
        reducing, dtype, redop = Signal(), Signal(DType), Signal(ReduceOp)
        waits_for = Signal(packets)
        clear, ready, asks = Signal(), Signal(), Signal()
        usable = inside & (left != 0) & ~front.poison
        #: The header at the front is complete; a poisoned flit completes none, but an extension is
        #: not missed.
        parsed = Mux(front.poison, known, whole)
        ones = (1 << flit_bytes) - 1

        asking = Signal()
        ask_index = Signal.like(index)
        m.d.comb += [
            self.read.request.valid.eq(asking),
            self.read.request.payload.index.eq(ask_index),
            update.fresh.valid.eq(self.read.response.valid),
            update.fresh.payload.eq(self.read.response.payload.data),
        ]
        with m.If(self.read.request.ready):
            m.d.sync += asking.eq(0)

        # `ready`: the flit at the front can be taken, but for the register of read requests.
        m.d.comb += [
            asks.eq(usable & reducing),
            clear.eq(~(waits_for & hazards.live).any() | ~asks),
            ready.eq(requests.read.valid & Mux(
                inside, clear & update.room,
                ~parsed | records.room & (reply_room != 0) & update.room)),
            popped.eq(ready & ~(asks & asking & ~self.read.request.ready)),
            requests.read.ready.eq(popped),
            freed.eq(popped),
            beat_taken.eq(popped & ~inside),
            opened.eq(beat_taken & parsed),
            retired.eq(update.retire),
            cut.eq(update.poisoned),
        ]
        step = update.step.payload
        lanes = Signal(flit_bytes)
        m.d.comb += [
            lanes.eq((ones << first_lane) & Mux(left == 1, ones >> spare_lanes, ones)),
            update.step.valid.eq(popped & (front.tail & (inside | parsed) | usable)),
            step.data.eq(front.payload),
            step.mask.eq(Mux(usable, lanes, 0)),
            step.index.eq(index),
            step.reduce.eq(asks),
            step.dtype.eq(dtype),
            step.redop.eq(redop),
            step.last.eq(front.tail),
            step.poison.eq(front.poison),
        ]
        with m.If(popped):
            with m.If(~inside):
                m.d.sync += [
                    inside.eq(whole & ~front.tail),
                    index.eq(header.address[lane_bits:]),
                    addend_index.eq(read_start[lane_bits:]),
                    left.eq(Mux(good, (header.address[:lane_bits] + header.length + flit_bytes - 1)
                                >> lane_bits, 0)),
                    first_lane.eq(header.address[:lane_bits]),
                    spare_lanes.eq(-end[:lane_bits]),
                    reducing.eq(reduces),
                    dtype.eq(header.dtype),
                    redop.eq(header.redop),
                    waits_for.eq(hazards.overlaps),
                ]
                with m.If(header.length == 0):
                    m.d.sync += left.eq(0)
            with m.Else():
                m.d.sync += [
                    inside.eq(~front.tail),
                    index.eq(index + 1),
                    addend_index.eq(addend_index + 1),
                    left.eq(Mux(left == 0, 0, left - 1)),
                    first_lane.eq(0),
                ]
                with m.If(asks):
                    m.d.sync += [asking.eq(1), ask_index.eq(addend_index)]

        m.d.comb += self.idle.eq(
            ~(ready | asking | self.free.valid | self.received | self.response.valid
              | self.increment.valid) & update.idle)
        with m.If(ready):
            m.d.comb += self.state.eq(RxState.TAKE)
        with m.Elif(requests.read.valid):
            m.d.comb += self.state.eq(Mux(
                ~update.room, RxState.MEMORY, Mux(inside, RxState.ORDER, RxState.REPLY)))
        return m
