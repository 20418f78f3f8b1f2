"""VC buffer: the receive buffers of all virtual channels of one input port.

One RAM holds the flits of all virtual channels (VCs), each in a ring of its own, with one write
and one read per cycle. What allocation must know of the flit at the front of each VC is held in
registers: whether it is a head, whether it is a tail, and the output channel of its packet. These
come from a second, small RAM that is read one flit ahead.

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

from hdl.fabric.arbiter import one_hot_index
from hdl.params import LinkParams
from hdl.ports import ValidSignature

__all__ = ["VcBuffer", "VcBufferModel"]


class VcBuffer(wiring.Component):
    """Receive buffers of one input port.

    Parameters
    ----------
    params : LinkParams
    channel : ShapeLike
        Shape of an output channel.

    Members
    -------
    write : ``In(ValidSignature(data.StructLayout({vc, head, tail, channel})))``
        A flit to store; there is room. ``channel`` is the output channel of its packet and
        counts if the flit is a head.
    write_payload : ``In(flit_bits)``
        Its payload; apart, so that a simulator does not copy it on the way to the RAM.
    occupied : ``Out(vcs)``
        VCs that hold flits.
    head, tail : ``Out(vcs)``
        VCs whose front flit is a head, a tail.
    channel : ``Out(data.ArrayLayout(channel, vcs))``
        Output channel of the packet at the front of each VC.
    pop : ``In(vcs)``
        Take the front flit of this VC, one-hot or 0; the VC is occupied.
    payload : ``Out(flit_bits)``
        Payload of the flit popped in the cycle before.
    """

    def __init__(self, params: LinkParams, channel: ShapeLike) -> None:
        self._params, self._channel = params, channel
        super().__init__({
            "write": In(ValidSignature(data.StructLayout({
                "vc": params.vc_bits, "head": 1, "tail": 1, "channel": channel}))),
            "write_payload": In(params.flit_bits),
            "occupied": Out(params.vcs),
            "head": Out(params.vcs),
            "tail": Out(params.vcs),
            "channel": Out(data.ArrayLayout(channel, params.vcs)),
            "pop": In(params.vcs),
            "payload": Out(params.flit_bits),
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
        mark_layout = data.StructLayout({"head": 1, "tail": 1, "channel": self._channel})
        rows = vcs << pointer_bits

        m.submodules.flits = flits = memory.Memory(
            shape=unsigned(params.flit_bits), depth=rows, init=[])
        m.submodules.marks = marks = memory.Memory(shape=mark_layout, depth=rows, init=[])
        flit_write, flit_read = flits.write_port(), flits.read_port()
        mark_write, mark_read = marks.write_port(), marks.read_port(domain="comb")

        writes, reads = Signal(pointer_layout), Signal(pointer_layout)
        # One register: a simulator then decides once what happens to it.
        front = Signal(data.StructLayout({
            "occupied": vcs, "head": vcs, "tail": vcs,
            "channel": data.ArrayLayout(self._channel, vcs)}))
        m.d.comb += [
            self.occupied.eq(front.occupied),
            self.head.eq(front.head),
            self.tail.eq(front.tail),
            self.channel.eq(front.channel),
        ]

        def following(pointer):
            if params.vc_depth == 1 << pointer_bits:
                return pointer + 1
            return Mux(pointer == params.vc_depth - 1, 0, pointer + 1)

        # The popped VC: where it reads, what comes next, and whether anything does.
        popping = self.pop.any()
        pop_vc, here, after = Signal(params.vc_bits), Signal(pointer_bits), Signal(pointer_bits)
        last = Signal()
        m.d.comb += [
            pop_vc.eq(one_hot_index(self.pop)),
            here.eq(reads[pop_vc]),
            after.eq(following(here)),
            last.eq(after == writes[pop_vc]),
        ]

        vc, valid = self.write.payload.vc, self.write.valid
        there = Signal(pointer_bits)
        # What is written is at the front in the next cycle; and in the place of what is popped.
        to_front, in_place = Signal(), Signal()
        m.d.comb += [
            there.eq(writes[vc]),
            in_place.eq(valid & self.pop.bit_select(vc, 1)),
            to_front.eq(~front.occupied.bit_select(vc, 1) | (in_place & last)),
        ]

        m.d.comb += [
            flit_write.en.eq(valid),
            flit_write.addr.eq(Cat(there, vc)),
            flit_write.data.eq(self.write_payload),
            mark_write.en.eq(valid),
            mark_write.addr.eq(Cat(there, vc)),
            mark_write.data.head.eq(self.write.payload.head),
            mark_write.data.tail.eq(self.write.payload.tail),
            mark_write.data.channel.eq(self.write.payload.channel),
            flit_read.en.eq(popping),
            flit_read.addr.eq(Cat(here, pop_vc)),
            mark_read.addr.eq(Cat(after, pop_vc)),
            self.payload.eq(flit_read.data),
        ]

        empties = Signal()
        m.d.comb += empties.eq(last & ~in_place)
        with m.If(popping):
            m.d.sync += reads[pop_vc].eq(Mux(empties, 0, after))
            with m.If(last):
                m.d.sync += front.occupied.eq(front.occupied & ~self.pop)
                with m.If(~in_place):
                    m.d.sync += writes[pop_vc].eq(0)
            with m.Else():
                m.d.sync += [
                    front.head.eq(front.head & ~self.pop | Mux(mark_read.data.head, self.pop, 0)),
                    front.tail.eq(front.tail & ~self.pop | Mux(mark_read.data.tail, self.pop, 0)),
                ]
                with m.If(mark_read.data.head):
                    m.d.sync += front.channel[pop_vc].eq(mark_read.data.channel)
        with m.If(valid):
            m.d.sync += writes[vc].eq(following(there))
            with m.If(to_front):
                m.d.sync += [
                    front.occupied.bit_select(vc, 1).eq(1),
                    front.head.bit_select(vc, 1).eq(self.write.payload.head),
                    front.tail.bit_select(vc, 1).eq(self.write.payload.tail),
                ]
                with m.If(self.write.payload.head):
                    m.d.sync += front.channel[vc].eq(self.write.payload.channel)
        return m


class VcBufferModel:
    """Reference model of :class:`VcBuffer`: a queue per VC."""

    def __init__(self, params: LinkParams) -> None:
        self.depth = params.vc_depth
        #: (payload, head, tail, channel) of each flit, by VC.
        self.queues: list[deque[tuple[int, int, int, int]]] = [
            deque() for _ in range(params.vcs)]
        self._channel = [0] * params.vcs

    @property
    def occupied(self) -> int:
        return sum(1 << vc for vc, queue in enumerate(self.queues) if queue)

    def front(self, vc: int) -> tuple[int, int, int]:
        """(head, tail, output channel of the packet) of the front flit of an occupied VC."""
        _, head, tail, channel = self.queues[vc][0]
        return head, tail, channel if head else self._channel[vc]

    def write(self, vc: int, payload: int, head: int, tail: int, channel: int) -> None:
        if len(self.queues[vc]) == self.depth:
            raise OverflowError(f"VC {vc} holds {self.depth} flits already")
        self.queues[vc].append((payload, head, tail, channel))

    def pop(self, vc: int) -> tuple[int, int, int]:
        """Take (payload, head, tail) of the front flit."""
        payload, head, tail, channel = self.queues[vc].popleft()
        if head:
            self._channel[vc] = channel
        return payload, head, tail
