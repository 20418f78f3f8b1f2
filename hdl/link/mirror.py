"""Mirror: what is sent on a dead link comes back, and what the link cut short is closed.

::

    send ──► turn ──► queue ──┐
                              ├──► receive (into the port's own receive buffer)
    cut VCs ──► poisoned tail ┘

While the link is down:

* Each *request* that is sent becomes a response of one packet: to its source, from this node, with
  status ``LINK_DOWN``, the port's number in ``counter``, and ``slot``, ``generation``, ``tag``,
  ``ack``, ``address`` and ``length`` of the request. It enters this port as if it had been
  received, on lane 0 of the response class.
* All other flits that are sent are dropped: payload, responses (an answer to an answer would have
  no end), what is left of packets whose head went before the link died, and a header of two flits
  of which the second is a poisoned tail, since the half that is there has no tag to answer with.
  With a single class there are no responses: requests are dropped too.
* Each packet that the link cut short is closed with a poisoned tail, which carries nothing.

So packets that wait in buffers, that are under way, and that come later are all answered in one
way, and none of them stays.

Latency law: the response to a request whose last header flit is sent in cycle ``t`` is received in
``t + 2`` at the earliest; one flit per cycle, poisoned tails first.

Flow control: a flit is put out only where its receive buffer has room. Requests are taken while the
queue has room for them and for those that may be under way: a flit is sent at most :data:`FLIGHT`
cycles after it was ``available``. Dropped flits are always taken, so responses never wait here, and
requests wait for the response class alone, as they do at their destination. A closing tail waits
for its own virtual channel and holds up nobody, except that no response enters a response channel
whose packet is still open. While a signal is present (``present``: the link may start again) flits
are taken one at a time, with a gap in which the port can be found at rest.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import lowest_bit, one_hot_index
from hdl.layouts import NODE_BITS, PacketHeader, PacketOp, Status, flit
from hdl.nic.packets import (
    PACKET_VERSION,
    REQUEST_CLASS,
    RESPONSE_CLASS,
    class_vc,
    header_flits,
)
from hdl.params import LinkParams
from hdl.ports import ValidSignature

__all__ = ["FLIGHT", "Mirror"]

#: Most cycles from a reserved credit to its flit.
FLIGHT = 4
#: Answers that wait to be put out: what may be under way, and a few to keep the rate.
_DEPTH = 8


#: Fields of a request's header that its answer has too; the others are set, or 0.
_KEPT = ("rail", "slot", "address", "length", "generation", "tag")


class Mirror(wiring.Component):
    """The mirror of one link port.

    Parameters
    ----------
    params : LinkParams
    index : int
        Number of the port in its node.

    Members
    -------
    node : ``In(16)``
    down : ``In(1)``
        The link is dead, a register. Without it everything here rests.
    present : ``In(1)``
        There is a signal.
    reserve : ``In(vcs)``, send : ``In(ValidSignature(flit(params)))``
        Those of the port.
    available : ``Out(vcs)``
        Of the port while the link is down.
    arrived, receive : ``In`` and ``Out(ValidSignature(flit(params)))``
        What comes from the link, and what the port receives: the mirror's while the link is down.
    open : ``In(vcs)``
        VCs whose last flit from the link was no tail.
    room : ``In(vcs)``
        VCs whose receive buffer has room.
    put : ``Out(ValidSignature(unsigned(vc_bits)))``
        In the next cycle, a flit of the mirror's own is received on this VC.
    own : ``Out(ValidSignature(unsigned(vc_bits)))``
        ``put`` of the cycle before, registers.
    closes : ``Out(vcs)``
        The flit that is put is the poisoned tail of this VC; one-hot or 0.
    empty : ``Out(1)``
        Nothing is kept or on its way here; ``reserve`` of this cycle counts, ``put`` does not.
    idle : ``Out(1)``
        A function of registers.
    """

    def __init__(self, params: LinkParams, *, index: int) -> None:
        self._params, self._index = params, index
        super().__init__({
            "node": In(NODE_BITS),
            "down": In(1),
            "present": In(1),
            "reserve": In(params.vcs),
            "send": In(ValidSignature(flit(params))),
            "available": Out(params.vcs),
            "arrived": In(ValidSignature(flit(params))),
            "receive": Out(ValidSignature(flit(params))),
            "open": In(params.vcs),
            "room": In(params.vcs),
            "put": Out(ValidSignature(unsigned(params.vc_bits))),
            "own": Out(ValidSignature(unsigned(params.vc_bits))),
            "closes": Out(params.vcs),
            "empty": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, vcs = self._params, self._params.vcs
        answers, every = params.classes > RESPONSE_CLASS, (1 << vcs) - 1
        #: Cycles in which flits may come that were available before.
        settle, known, busy = Signal(range(FLIGHT + 1)), Signal(), Signal()
        m.d.sync += known.eq(self.down)
        # Inside If, here and below: a running link pays for none of it.
        with m.If(self.down):
            with m.If(self.reserve.any() | ~known):
                m.d.sync += settle.eq(FLIGHT)
            with m.Elif(settle != 0):
                m.d.sync += settle.eq(settle - 1)
            closable = Signal(vcs)
            m.d.comb += closable.eq(self.open & self.room)
            with m.If(closable.any()):
                m.d.comb += [
                    self.closes.eq(lowest_bit(closable)),
                    self.put.valid.eq(1),
                    self.put.payload.eq(one_hot_index(self.closes)),
                ]

        #: The flit that is received now: whether there is one, and what it is.
        valid, closing, vc = Signal(), Signal(), Signal(params.vc_bits)
        beat = Signal(range(max(2, header_flits(params))))
        with m.If(self.down):
            m.d.sync += [valid.eq(self.put.valid), closing.eq(self.closes.any()),
                         vc.eq(self.put.payload)]
        with m.If(self.down):
            m.d.comb += busy.eq(~known | (settle != 0) | self.put.valid | valid)
        waits = (self.present & (settle != 0)) if params.reliable else 0
        level, taken_vcs, answer = 0, every, None
        if answers:
            level, answer = self._queue(m, beat)
            requests = ((1 << params.vcs_per_class) - 1) << class_vc(params, REQUEST_CLASS)
            full = level > _DEPTH - FLIGHT - 1
            taken_vcs = Mux(full, every & ~requests, every)
        self._receive(m, answer, beat, valid, closing, vc)
        m.d.comb += [
            self.own.valid.eq(valid),
            self.own.payload.eq(vc),
            self.available.eq(Mux(waits, 0, taken_vcs)),
            self.empty.eq((level == 0) & (settle == 0) & ~self.reserve.any()
                          & ~(self.down & ~known)),
            self.idle.eq(~(busy | (known & ~self.down))),
        ]
        return m

    def _receive(self, m: Module, answer, beat, valid, closing, vc) -> None:
        """What the port receives: the link's flits, or the mirror's."""
        params, out = self._params, self.receive.payload
        last = header_flits(params) - 1
        m.d.comb += self.receive.valid.eq(Mux(self.down, valid, self.arrived.valid))
        # Selected only where there is a flit: it is wide.
        with m.If(self.receive.valid):
            m.d.comb += out.eq(self.arrived.payload)
            with m.If(self.down):
                m.d.comb += [
                    out.vc.eq(vc),
                    out.head.eq(~closing & (beat == 0)),
                    out.tail.eq(closing | (beat == last)),
                    out.poison.eq(closing),
                    out.payload.eq(0),
                ]
                if answer is not None:
                    with m.If(~closing):
                        m.d.comb += out.payload.eq(
                            answer.word_select(beat, params.flit_bits) if last else answer)

    def _answer(self, asked):
        """The header of the answer to a request's, as one value."""
        given = {
            "dst": asked.src, "src": self.node, "version": Const(PACKET_VERSION, 4),
            "klass": Const(RESPONSE_CLASS, 2), "op": PacketOp.RESPONSE,
            "flags": asked.flags.ack, "status": Status.LINK_DOWN, "counter": self._index,
            **{name: getattr(asked, name) for name in _KEPT}}
        parts = []
        for name, item in PacketHeader.as_shape():
            width = Shape.cast(item.shape).width
            value = Value.cast(given.get(name, Const(0, width)))
            parts.append(Cat(value, Const(0, width - len(value))) if len(value) < width else value)
        return Cat(*parts)

    def _queue(self, m: Module, shown: Signal):
        """Answers wait in order; returns how many, and that which is received now, in flits
        numbered ``shown``. They are formed before they wait: once per request, not per flit."""
        params, beats = self._params, header_flits(self._params)
        vc = class_vc(params, RESPONSE_CLASS)
        m.submodules.queue = queue = memory.Memory(
            shape=PacketHeader.as_shape().size, depth=_DEPTH, init=[])
        write, read = queue.write_port(), queue.read_port()
        put, take = Signal(range(_DEPTH)), Signal(range(_DEPTH))
        level, kept, puts, taken = Signal(range(_DEPTH + 1)), Signal(), Signal(), Signal()
        beat = Signal(range(max(2, beats)))

        sent, base = self.send.payload, class_vc(params, REQUEST_CLASS)
        request, asked = Signal(), Signal(PacketHeader.as_shape().size)
        m.d.comb += [write.en.eq(kept), write.addr.eq(put),
                     write.data.eq(self._answer(data.View(PacketHeader, asked))),
                     read.en.eq(puts), read.addr.eq(take)]
        with m.If(self.down):
            with m.If(self.send.valid):
                m.d.comb += request.eq(sent.vc < base + params.vcs_per_class)
                if base:
                    m.d.comb += request.eq((sent.vc >= base)
                                           & (sent.vc < base + params.vcs_per_class))
            m.d.comb += puts.eq((level != 0) & self.room[vc] & ~self.open[vc]
                                & ~self.closes.any())
        if beats == 1:
            m.d.comb += [kept.eq(request & sent.head),
                         asked.eq(sent.payload[:PacketHeader.as_shape().size])]
        else:
            self._gather(m, request, kept, asked)
        with m.If(puts):
            m.d.comb += [self.put.valid.eq(1), self.put.payload.eq(vc),
                         taken.eq(beat == beats - 1)]
            if beats > 1:
                m.d.sync += [beat.eq(beat + 1), shown.eq(beat)]
        with m.If(self.down):
            m.d.sync += [put.eq(put + kept), take.eq(take + taken),
                         level.eq(level + kept - taken)]
        return level, read.data

    def _gather(self, m: Module, request, kept, asked) -> None:
        """Headers of two flits: the first is kept until the second comes, per VC."""
        params, sent = self._params, self.send.payload
        m.submodules.halves = halves = memory.Memory(
            shape=params.flit_bits, depth=max(2, params.vcs), init=[])
        write, read = halves.write_port(), halves.read_port(domain="comb")
        #: VCs whose next flit is the second of a header.
        half, bit = Signal(params.vcs), Signal(params.vcs)
        m.d.comb += [
            write.en.eq(request & sent.head),
            write.addr.eq(sent.vc),
            write.data.eq(sent.payload),
            read.addr.eq(sent.vc),
            asked.eq(Cat(read.data, sent.payload)),
        ]
        with m.If(request):
            m.d.comb += [bit.eq(1 << sent.vc),
                         kept.eq(~sent.head & (half & bit).any() & ~sent.poison)]
            m.d.sync += half.eq(half & ~bit | Mux(sent.head & ~sent.tail, bit, 0))
