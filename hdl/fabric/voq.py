"""Virtual output queues: the receive buffer of one input of a switch.

One RAM holds the flits of all queues, one queue per class and output, in slots that any queue may
take: linked lists through a RAM of next slots, and a ring of the slots that are free. So the buffer
that credits stand for, ``vc_depth`` flits per class, is fully usable whatever the outputs are, and
``radix`` times smaller than rings of that depth would be. One flit is written and one popped per
cycle. All memories have one write port; no memory needs to be cleared, since bits in registers say
what in them counts.

Latency law: a flit written in cycle ``t`` can be popped in ``t + 1``. A flit popped in ``t`` is out
in ``t + 1``, and so is in the bits what follows it. So a queue can give a flit every cycle.

Flow control: credits keep the writer within ``vc_depth`` flits per class; the reader pops only
queues that ``going`` or ``start`` name. The packets of a class do not interleave on the link.

*When a packet may start.* A packet may pass older ones of its class that wait for other outputs,
but only when it is whole. One that is still arriving may start only if it is alone in the buffer
of its class. Otherwise a packet whose rest has little room, because the buffer is full of packets
for a congested output, would hold another output and feed it by drops. A packet that finds no room
to become whole waits until those before it have gone.

*The rest of a started packet can always come in:* nothing else of its class can arrive before its
tail, so every slot that its flits leave is for its own.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import flit
from hdl.params import SwitchParams
from hdl.ports import ValidSignature

__all__ = ["VirtualOutputQueues"]


class VirtualOutputQueues(wiring.Component):
    """The queues of one input.

    Members
    -------
    write : ``In(ValidSignature(data.StructLayout({port, klass, tail})))``
        A flit to store in the queue of an output and class; there is room.
    write_payload : ``In(flit_bits)``
        Its payload; apart, so that a simulator does not copy it on the way to the RAM.
    start : ``Out(radix).array(classes)``
        Of a class: outputs whose queue has a packet at its front that may start.
    open : ``Out(radix).array(classes)``
        Of a class: outputs whose queue is within a packet.
    going : ``Out(radix).array(classes)``
        Those of ``open`` that have its next flit.
    pop : ``In(radix)``
        The output whose queue gives a flit, one-hot, or 0.
    pop_port : ``In(port_bits)``
        Its index.
    pop_class : ``In(classes)``
        The class of the queue, one-hot; 0 if ``pop`` is.
    flit : ``Out(ValidSignature(flit(link)))``
        The flit popped in the cycle before; on lane 0 of its class.
    empty : ``Out(1)``
        No flit is stored, and none is at ``flit``.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        radix, classes = params.radix, params.link.classes
        super().__init__({
            "write": In(ValidSignature(data.StructLayout({
                "port": params.port_bits, "klass": max(1, (classes - 1).bit_length()),
                "tail": 1}))),
            "write_payload": In(params.link.flit_bits),
            "start": Out(radix).array(classes),
            "open": Out(radix).array(classes),
            "going": Out(radix).array(classes),
            "pop": In(radix),
            "pop_port": In(params.port_bits),
            "pop_class": In(classes),
            "flit": Out(ValidSignature(flit(params.link))),
            "empty": Out(1),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        radix, classes = params.radix, link.classes
        slots = classes * link.vc_depth
        slot_shape = unsigned((slots - 1).bit_length())
        queues = 1 << params.port_bits + len(self.write.payload.klass)

        def ram(name: str, shape, depth: int, *, domain: str = "comb", reads: int = 1):
            m.submodules[name] = block = memory.Memory(shape=shape, depth=depth, init=[])
            ports = [block.read_port(domain=domain) for _ in range(reads)]
            return block.write_port(), ports[0] if reads == 1 else ports

        flit_write, flit_read = ram("flits", unsigned(link.flit_bits), slots, domain="sync")
        tail_write, tail_read = ram("tails", unsigned(1), slots)
        next_write, next_read = ram("nexts", slot_shape, slots)
        free_write, free_read = ram("free", slot_shape, slots)
        # Of each queue: the slot of its front flit, as the write to an empty queue left it and as
        # the last pop did; of its last flit; and of its last tail.
        first_write, first_read = ram("first", slot_shape, queues)
        front_write, front_read = ram("front", slot_shape, queues)
        last_write, (last_read, last_push) = ram("last", slot_shape, queues, reads=2)
        whole_write, whole_read = ram("whole_last", slot_shape, queues)

        # One bit per output: queues with flits; with a tail, so that the packet at the front is
        # whole; within a packet; and whose front was left by a pop.
        occupied, whole, opened, moved = (
            [Signal(radix, name=f"{name}{klass}") for klass in range(classes)]
            for name in ("occupied", "whole", "opened", "moved"))

        # The ring of free slots. On the first lap every slot is free at its own index.
        taken, freed = Signal(slot_shape), Signal(slot_shape)
        lapped = Signal()
        slot = Signal(slot_shape)
        m.d.comb += [free_read.addr.eq(taken), slot.eq(Mux(lapped, free_read.data, taken))]

        def following(pointer):
            return pointer + 1 if slots == 1 << slot_shape.width else Mux(
                pointer == slots - 1, 0, pointer + 1)

        new, valid = self.write.payload, self.write.valid
        pushed, popping, place = Signal(radix), Signal(), Signal(slot_shape)
        push_queue, pop_queue = Cat(new.port, new.klass), Cat(self.pop_port, self._class_index())
        ends, empties, last_whole, together = (Signal(), Signal(), Signal(), Signal())
        push_class = [Mux(valid & (new.klass == klass), pushed, 0) for klass in range(classes)]
        pop_class = [Mux(self.pop_class[klass], self.pop, 0) for klass in range(classes)]
        was_moved = reduce(or_, (
            (moved[klass] & pop_class[klass]).any() for klass in range(classes)))
        was_open = reduce(or_, (
            (opened[klass] & pop_class[klass]).any() for klass in range(classes)))
        pushed_behind = reduce(or_, (
            (occupied[klass] & push_class[klass]).any() for klass in range(classes)))
        m.d.comb += [
            pushed.eq(1 << new.port),
            popping.eq(self.pop_class.any()),
            first_read.addr.eq(pop_queue),
            front_read.addr.eq(pop_queue),
            last_read.addr.eq(pop_queue),
            whole_read.addr.eq(pop_queue),
            place.eq(Mux(was_moved, front_read.data, first_read.data)),
            tail_read.addr.eq(place),
            next_read.addr.eq(place),
            ends.eq(tail_read.data),
            empties.eq(place == last_read.data),
            last_whole.eq(place == whole_read.data),
            together.eq(valid & (push_queue == pop_queue)),
            last_push.addr.eq(push_queue),
        ]
        for port, enable, address, value in (
                (flit_write, valid, slot, self.write_payload),
                (tail_write, valid, slot, new.tail),
                (next_write, pushed_behind, last_push.data, slot),
                (first_write, valid & ~pushed_behind, push_queue, slot),
                (last_write, valid, push_queue, slot),
                (whole_write, valid & new.tail, push_queue, slot),
                # A queue that runs empty as it is written to goes on with the new flit. One that
                # stays empty has its next front in the other memory.
                (front_write, popping, pop_queue,
                 Mux(empties & together, slot, next_read.data)),
                (free_write, popping, freed, place)):
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(value)]
        m.d.comb += [flit_read.en.eq(popping), flit_read.addr.eq(place)]

        with m.If(valid):
            m.d.sync += [taken.eq(following(taken)), lapped.eq(lapped | (taken == slots - 1))]
        with m.If(popping):
            m.d.sync += freed.eq(following(freed))
        with m.If(valid | popping):
            for klass in range(classes):
                push, pop = push_class[klass], pop_class[klass]
                m.d.sync += [
                    occupied[klass].eq(occupied[klass] & ~Mux(empties, pop, 0) | push),
                    whole[klass].eq(whole[klass] & ~Mux(ends & last_whole, pop, 0)
                                    | Mux(new.tail, push, 0)),
                    opened[klass].eq(opened[klass] & ~pop | Mux(ends, 0, pop)),
                    moved[klass].eq((moved[klass] | pop) & (occupied[klass] | ~push)),
                ]

        out = self.flit
        head, lane = Signal(), Signal(link.vc_bits)
        tail, valid_out = Signal(), Signal()
        m.d.sync += valid_out.eq(popping)
        with m.If(popping):
            m.d.sync += [head.eq(~was_open), tail.eq(ends),
                         lane.eq(self._class_index() * link.vcs_per_class)]
        m.d.comb += [
            out.valid.eq(valid_out),
            out.payload.payload.eq(flit_read.data),
            out.payload.head.eq(head),
            out.payload.tail.eq(tail),
            out.payload.vc.eq(lane),
            self.empty.eq(~(valid_out | Cat(occupied).any())),
        ]
        for klass in range(classes):
            held = occupied[klass]
            alone = Mux((held & (held - 1)[:radix]).any(), 0, held)
            m.d.comb += [
                self.start[klass].eq((whole[klass] | alone) & ~opened[klass]),
                self.open[klass].eq(opened[klass]),
                self.going[klass].eq(opened[klass] & held),
            ]
        return m

    def _class_index(self):
        """Index of the class that is popped."""
        classes = self._params.link.classes
        return Cat(reduce(or_, (self.pop_class[klass] for klass in range(classes)
                                if klass >> bit & 1), 0)
                   for bit in range(max(1, (classes - 1).bit_length())))
