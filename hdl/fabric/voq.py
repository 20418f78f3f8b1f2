"""Virtual output queues: the receive buffer of one input of a switch, for the outputs of a plane.

One RAM holds the flits of all queues, one queue per class and output, in slots that any queue may
take: linked lists through a RAM of next slots, and a stack of the slots that were given back. So
the buffer that credits stand for, ``vc_depth`` flits per class, is fully usable whatever the
outputs are, and ``radix`` times smaller than rings of that depth would be. One flit is written and
one popped per cycle. All memories have one write port; no memory needs to be cleared, since bits in
registers say what in them counts. The slot given back last is taken first, which keeps a lightly
loaded buffer in few lines of a host's cache.

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

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import flit
from hdl.params import SwitchParams
from hdl.ports import ValidSignature

__all__ = ["VirtualOutputQueues"]


class VirtualOutputQueues(wiring.Component):
    """The queues of one input for one plane. Outputs are numbered within the plane.

    Members
    -------
    write : ``In(ValidSignature(data.StructLayout({port, klass, tail, poison})))``
        A flit to store in the queue of an output and class; there is room.
    write_payload : ``In(flit_bits)``
        Its payload; apart, so that a simulator does not copy it on the way to the RAM.
    crowded : ``In(classes)``
        Classes of which queues of other planes hold flits of this input.
    holds : ``Out(classes)``
        Classes of which a queue holds flits.
    start : ``Out(plane_ports).array(classes)``
        Of a class: outputs whose queue has a packet at its front that may start.
    open : ``Out(plane_ports).array(classes)``
        Of a class: outputs whose queue is within a packet.
    going : ``Out(plane_ports).array(classes)``
        Those of ``open`` that have its next flit.
    pop : ``In(plane_ports)``
        The output whose queue gives a flit, one-hot, or 0.
    pop_port : ``In(plane_bits)``
        Its index.
    pop_class : ``In(classes)``
        The class of the queue, one-hot; 0 if ``pop`` is.
    flit : ``Out(ValidSignature(flit(link)))``
        The flit popped in the cycle before; on lane 0 of its class.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        outputs, classes = params.plane_ports, params.link.classes
        super().__init__({
            "write": In(ValidSignature(data.StructLayout({
                "port": params.plane_bits, "klass": max(1, (classes - 1).bit_length()),
                "tail": 1, "poison": 1}))),
            "write_payload": In(params.link.flit_bits),
            "crowded": In(classes),
            "holds": Out(classes),
            "start": Out(outputs).array(classes),
            "open": Out(outputs).array(classes),
            "going": Out(outputs).array(classes),
            "pop": In(outputs),
            "pop_port": In(params.plane_bits),
            "pop_class": In(classes),
            "flit": Out(ValidSignature(flit(params.link))),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        outputs, classes = params.plane_ports, link.classes
        slots = classes * link.vc_depth
        slot_shape = unsigned((slots - 1).bit_length())
        queues = 1 << params.plane_bits + len(self.write.payload.klass)

        def ram(name: str, shape, depth: int, *, domain: str = "comb", reads: int = 1):
            m.submodules[name] = block = memory.Memory(shape=shape, depth=depth, init=[])
            ports = [block.read_port(domain=domain) for _ in range(reads)]
            return block.write_port(), ports[0] if reads == 1 else ports

        flit_write, flit_read = ram("flits", unsigned(link.flit_bits), slots, domain="sync")
        tail_write, tail_read = ram("tails", unsigned(2), slots)
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
            [Signal(outputs, name=f"{name}{klass}") for klass in range(classes)]
            for name in ("occupied", "whole", "opened", "moved"))

        new, valid = self.write.payload, self.write.valid
        popping = Signal()
        m.d.comb += popping.eq(self.pop_class.any())
        push_queue, pop_queue = Cat(new.port, new.klass), Cat(self.pop_port, self._class_index())

        # A slot to write to: the last one given back, or one that was never used.
        back, unused = Signal(range(slots + 1)), Signal(range(slots + 1))
        slot, used, top = Signal(slot_shape), Signal(), Signal(slot_shape)
        place = Signal(slot_shape)
        with m.If(valid):
            m.d.comb += [
                used.eq(back.any()),
                free_read.addr.eq(back - 1),
                slot.eq(Mux(used, free_read.data, unused)),
            ]
            m.d.sync += unused.eq(unused + ~used)
        m.d.comb += [top.eq(back - used), free_write.en.eq(popping),
                     free_write.addr.eq(top), free_write.data.eq(place)]
        with m.If(valid | popping):
            m.d.sync += back.eq(back + popping - used)

        # The write.
        pushed, pushed_behind = Signal(outputs), Signal()
        push_class = [Mux(new.klass == klass, pushed, 0) for klass in range(classes)]
        with m.If(valid):
            m.d.comb += [
                pushed.eq(1 << new.port),
                pushed_behind.eq(self._any(occupied, push_class)),
                last_push.addr.eq(push_queue),
            ]
        for port, enable, address, value in (
                (flit_write, valid, slot, self.write_payload),
                (tail_write, valid, slot, Cat(new.tail, new.poison)),
                (next_write, pushed_behind, last_push.data, slot),
                (first_write, valid & ~pushed_behind, push_queue, slot),
                (last_write, valid, push_queue, slot),
                (whole_write, valid & new.tail, push_queue, slot)):
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(value)]

        # The pop.
        pop_class = [Mux(self.pop_class[klass], self.pop, 0) for klass in range(classes)]
        was_moved, was_open, ends, poison = Signal(), Signal(), Signal(), Signal()
        empties, last_whole, following = Signal(), Signal(), Signal(slot_shape)
        with m.If(popping):
            m.d.comb += [
                was_moved.eq(self._any(moved, pop_class)),
                was_open.eq(self._any(opened, pop_class)),
                *(port.addr.eq(pop_queue)
                  for port in (first_read, front_read, last_read, whole_read)),
                place.eq(Mux(was_moved, front_read.data, first_read.data)),
                tail_read.addr.eq(place),
                next_read.addr.eq(place),
                Cat(ends, poison).eq(tail_read.data),
                empties.eq(place == last_read.data),
                last_whole.eq(place == whole_read.data),
                # A queue that runs empty as it is written to goes on with the new flit. One that
                # stays empty has its next front in the other memory.
                following.eq(Mux(empties & valid & (push_queue == pop_queue),
                                 slot, next_read.data)),
            ]
        m.d.comb += [front_write.en.eq(popping), front_write.addr.eq(pop_queue),
                     front_write.data.eq(following), flit_read.en.eq(popping),
                     flit_read.addr.eq(place)]

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

        marks = Signal(data.StructLayout({"head": 1, "tail": 1, "poison": 1, "vc": link.vc_bits}))
        out, valid_out = self.flit, Signal()
        m.d.sync += valid_out.eq(popping)
        with m.If(popping):
            m.d.sync += [marks.head.eq(~was_open), marks.tail.eq(ends), marks.poison.eq(poison),
                         marks.vc.eq(self._class_index() * link.vcs_per_class)]
        m.d.comb += [out.valid.eq(valid_out), out.payload.payload.eq(flit_read.data)]
        m.d.comb += [getattr(out.payload, name).eq(getattr(marks, name))
                     for name in ("head", "tail", "poison", "vc")]

        m.d.comb += self.holds.eq(Cat(held.any() for held in occupied))
        for klass in range(classes):
            held = occupied[klass]
            m.d.comb += self.open[klass].eq(opened[klass])
            with m.If(self.holds[klass]):
                alone = Mux(self.crowded[klass] | (held & (held - 1)[:outputs]).any(), 0, held)
                m.d.comb += [
                    self.start[klass].eq((whole[klass] | alone) & ~opened[klass]),
                    self.going[klass].eq(opened[klass] & held),
                ]
        return m

    def _any(self, words: list[Signal], masks: list[Value]) -> Value:
        """Whether any word has a bit of its mask set."""
        return reduce(or_, (word & mask for word, mask in zip(words, masks, strict=True))).any()

    def _class_index(self) -> Value:
        """Index of the class that is popped."""
        classes = self._params.link.classes
        return Cat(reduce(or_, (self.pop_class[klass] for klass in range(classes)
                                if klass >> bit & 1), 0)
                   for bit in range(max(1, (classes - 1).bit_length())))
