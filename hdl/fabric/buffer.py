"""VC buffer: the receive buffers of all virtual channels of one input port.

One RAM holds the flits of all virtual channels (VCs), each in a ring of its own, with one write
and one read per cycle. What allocation must know of the flit at the front of each VC is held in
registers: the output channel of its packet, whether it is a head, whether it is a tail. These come
from a second, small RAM that is read one flit ahead.

Latency law: a flit written in cycle ``t`` to an empty VC is at the front in ``t + 1``. The payload
of a flit popped in ``t`` is out in ``t + 1``, and what follows the flit in its VC is at the front
in ``t + 1``. So a VC can give a flit every cycle.

Flow control: credits keep the writer from overflowing a VC; the reader pops only VCs that are
``occupied``. The packets of a VC do not interleave. A VC that runs empty starts at the beginning
of its ring again, which keeps a lightly loaded buffer in few lines of a host's cache.
"""

from collections import deque

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.params import LinkParams
from hdl.ports import ValidSignature

__all__ = ["VcBuffer", "VcBufferModel", "front_layout"]


def front_layout(channel: ShapeLike) -> data.StructLayout:
    """Layout of what the front of a VC wants: the output channel, and whether as a head."""
    return data.StructLayout({"channel": channel, "head": 1})


class VcBuffer(wiring.Component):
    """Receive buffers of one input port.

    Parameters
    ----------
    params : LinkParams
    channel : ShapeLike
        Shape of an output channel.

    Members
    -------
    write : ``In(ValidSignature(data.StructLayout({vc, head, tail, poison, channel})))``
        A flit to store; there is room. ``channel`` is the output channel of its packet and
        counts if the flit is a head.
    write_payload : ``In(flit_bits)``
        Its payload; apart, so that a simulator does not copy it on the way to the RAM.
    occupied : ``Out(vcs)``
        VCs that hold flits.
    front : ``Out(data.ArrayLayout(front_layout(channel), vcs))``
        Of each VC, the output channel of the packet at its front, and whether the flit is a head.
    tail : ``Out(vcs)``
        VCs whose front flit is a tail.
    pop : ``In(ValidSignature(unsigned(vc_bits)))``
        Take the front flit of this VC, which is occupied.
    payload, poison : ``Out(flit_bits)``, ``Out(1)``
        Of the flit popped in the cycle before.
    """

    def __init__(self, params: LinkParams, channel: ShapeLike) -> None:
        self._params, self._channel = params, channel
        super().__init__({
            "write": In(ValidSignature(data.StructLayout({
                "vc": params.vc_bits, "head": 1, "tail": 1, "poison": 1, "channel": channel}))),
            "write_payload": In(params.flit_bits),
            "occupied": Out(params.vcs),
            "front": Out(data.ArrayLayout(front_layout(channel), params.vcs)),
            "tail": Out(params.vcs),
            "pop": In(ValidSignature(unsigned(params.vc_bits))),
            "payload": Out(params.flit_bits),
            "poison": Out(1),
        })

    @property
    def params(self) -> LinkParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        vcs = params.vcs
        pointer_bits = (params.vc_depth - 1).bit_length()
        pointer_layout = data.ArrayLayout(unsigned(pointer_bits), vcs)
        mark_layout = data.StructLayout({"front": front_layout(self._channel), "tail": 1})
        rows = vcs << pointer_bits

        m.submodules.flits = flits = memory.Memory(
            shape=unsigned(params.flit_bits), depth=rows, init=[])
        m.submodules.marks = marks = memory.Memory(shape=mark_layout, depth=rows, init=[])
        # Apart, so that payloads stay whole machine words in a simulator.
        m.submodules.poisons = poisons = memory.Memory(shape=unsigned(1), depth=rows, init=[])
        flit_write, flit_read = flits.write_port(), flits.read_port()
        mark_write, mark_read = marks.write_port(), marks.read_port(domain="comb")
        poison_write, poison_read = poisons.write_port(), poisons.read_port()

        writes, reads = Signal(pointer_layout), Signal(pointer_layout)
        state = Signal(data.StructLayout({
            "front": data.ArrayLayout(front_layout(self._channel), vcs),
            "tail": vcs, "occupied": vcs}))
        m.d.comb += [
            self.occupied.eq(state.occupied),
            self.front.eq(state.front),
            self.tail.eq(state.tail),
        ]

        def following(pointer):
            if params.vc_depth == 1 << pointer_bits:
                return pointer + 1
            return Mux(pointer == params.vc_depth - 1, 0, pointer + 1)

        # The popped VC: where it reads, what comes next, and whether anything does.
        pop, popping = self.pop.payload, self.pop.valid
        here, after, last = Signal(pointer_bits), Signal(pointer_bits), Signal()
        m.d.comb += [
            here.eq(reads[pop]),
            after.eq(following(here)),
            last.eq(popping & (after == writes[pop])),
        ]

        new, valid = self.write.payload, self.write.valid
        there = Signal(pointer_bits)
        # The popped VC gets a flit in this very cycle, or runs empty.
        in_place, empties = Signal(), Signal()
        m.d.comb += [
            there.eq(writes[new.vc]),
            in_place.eq(valid & (new.vc == pop)),
            empties.eq(last & ~in_place),
        ]

        m.d.comb += [
            flit_write.en.eq(valid),
            flit_write.addr.eq(Cat(there, new.vc)),
            flit_write.data.eq(self.write_payload),
            mark_write.en.eq(valid),
            mark_write.addr.eq(Cat(there, new.vc)),
            mark_write.data.front.head.eq(new.head),
            mark_write.data.front.channel.eq(new.channel),
            mark_write.data.tail.eq(new.tail),
            flit_read.en.eq(popping),
            flit_read.addr.eq(Cat(here, pop)),
            mark_read.addr.eq(Cat(after, pop)),
            self.payload.eq(flit_read.data),
            poison_write.en.eq(valid),
            poison_write.addr.eq(Cat(there, new.vc)),
            poison_write.data.eq(new.poison),
            poison_read.en.eq(popping),
            poison_read.addr.eq(Cat(here, pop)),
            self.poison.eq(poison_read.data),
        ]

        # Whole arrays are computed rather than indexed on the left: lanes of multiplexers in
        # hardware, and no branches that a host would have to guess.
        with m.If(popping):
            m.d.sync += [reads[vc].eq(Mux(pop == vc, Mux(empties, 0, after), reads[vc]))
                         for vc in range(vcs)]
        with m.If(valid | last):
            m.d.sync += [
                writes[vc].eq(Mux(valid & (new.vc == vc), following(there),
                                  Mux(empties & (pop == vc), 0, writes[vc])))
                for vc in range(vcs)]

        # What the pop leaves, then what the write adds. A body flit keeps its packet's channel,
        # also in a VC that runs empty within the packet.
        left = Signal.like(state)
        popped, mark = 1 << pop, mark_read.data
        m.d.comb += left.eq(state)
        with m.If(popping):
            m.d.comb += [
                left.occupied.eq(state.occupied & ~Mux(last, popped, 0)),
                left.tail.eq(state.tail & ~popped | Mux(mark.tail, popped, 0)),
            ]
            for vc in range(vcs):
                m.d.comb += [
                    left.front[vc].head.eq(Mux(pop == vc, mark.front.head, state.front[vc].head)),
                    left.front[vc].channel.eq(Mux(mark.front.head & ~last & (pop == vc),
                                                  mark.front.channel, state.front[vc].channel)),
                ]
        m.d.sync += state.eq(left)
        with m.If(valid):
            written = 1 << new.vc
            m.d.sync += state.occupied.eq(left.occupied | written)
            with m.If(~(left.occupied & written).any()):
                m.d.sync += state.tail.eq(left.tail & ~written | Mux(new.tail, written, 0))
                for vc in range(vcs):
                    m.d.sync += [
                        state.front[vc].head.eq(Mux(new.vc == vc, new.head, left.front[vc].head)),
                        state.front[vc].channel.eq(Mux(new.head & (new.vc == vc), new.channel,
                                                       left.front[vc].channel)),
                    ]
        return m


class VcBufferModel:
    """Reference model of :class:`VcBuffer`: a queue per VC."""

    def __init__(self, params: LinkParams) -> None:
        self.depth = params.vc_depth
        #: (payload, head, tail, poison, channel) of each flit, by VC.
        self.queues: list[deque[tuple[int, int, int, int, int]]] = [
            deque() for _ in range(params.vcs)]
        self._channel = [0] * params.vcs

    @property
    def occupied(self) -> int:
        return sum(1 << vc for vc, queue in enumerate(self.queues) if queue)

    def front(self, vc: int) -> tuple[int, int, int]:
        """(head, tail, output channel of the packet) of the front flit of an occupied VC."""
        _, head, tail, _, channel = self.queues[vc][0]
        return head, tail, channel if head else self._channel[vc]

    def write(self, vc: int, payload: int, head: int, tail: int, poison: int,
              channel: int) -> None:
        if len(self.queues[vc]) == self.depth:
            raise OverflowError(f"VC {vc} holds {self.depth} flits already")
        self.queues[vc].append((payload, head, tail, poison, channel))

    def pop(self, vc: int) -> tuple[int, int]:
        """Take (payload, poison) of the front flit."""
        payload, head, _, poison, channel = self.queues[vc].popleft()
        if head:
            self._channel[vc] = channel
        return payload, poison
