"""Generator: sends packets at random times to random nodes, as its registers say.

It keeps one packet: the next one, with the cycle of its creation. A packet leaves when ``now`` has
reached its creation and the network takes it. In the cycle in which its tail leaves, the next one
is drawn: gap, destination and size. Creation is the last creation plus the gap, however long the
packet before had to wait: this is an open loop with a queue of unlimited length that needs no
memory (see ``gap``).

**Latency law.** A packet created in cycle ``t`` is offered in ``t``, if the ones before have left
and there is credit; its flits follow one per cycle. Packets of one flit leave one per cycle, at any
rate up to 1.

**Flow control.** A flit is sent only for a lane with credit. The lane follows from the destination,
so the packets of a pair stay in order.

**Idle.** Between packets nothing changes; ``wake`` is the cycle before the creation of the next
one.
"""

from amaranth.hdl import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.layouts import CYCLE_BITS, NODE_BITS, flit
from hdl.params import LinkParams
from hdl.ports import ValidSignature

from .gap import GAP_STEPS, Gap
from .packet import PacketImage, digest
from .random import FRACTION_BITS, RandomWord
from .registers import (
    FLITS_BITS,
    SIZES,
    STREAMS,
    RegisterWrite,
    SentSignature,
    Size,
    TrafficRegisters,
)
from .target import TargetChoice

__all__ = ["Generator"]

NEVER = (1 << CYCLE_BITS) - 1


class Generator(wiring.Component):
    """Makes the packets of one node.

    Parameters
    ----------
    params : LinkParams
    registers : TrafficRegisters

    Members
    -------
    now : ``In(48)``
    node : ``In(16)``
        Own node id, from a register.
    write : ``In(ValidSignature(RegisterWrite))``
        A register of the tile is written.
    available : ``In(vcs)``
        Virtual channels with credit.
    send : ``Out(ValidSignature(flit(params)))``
    sent : ``Out(SentSignature())``
    next : ``Out(48)``
        All packets created before this cycle have been sent.
    idle, wake : outputs
    """

    def __init__(self, params: LinkParams, registers: TrafficRegisters) -> None:
        self._params, self._registers = params, registers
        super().__init__({
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "write": In(ValidSignature(RegisterWrite)),
            "available": In(params.vcs),
            "send": Out(ValidSignature(flit(params))),
            "sent": Out(SentSignature()),
            "next": Out(CYCLE_BITS),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, registers, write = self._params, self._registers, self.write
        new = write.payload

        # Registers.
        stop = Signal(CYCLE_BITS, init=NEVER)
        measure_start = Signal(CYCLE_BITS, init=NEVER)
        measure_end = Signal(CYCLE_BITS, init=NEVER)
        gaps = Signal(data.ArrayLayout(FRACTION_BITS + 1, GAP_STEPS))
        below = [Signal(FRACTION_BITS + 1, name=f"below{index}") for index in range(SIZES - 1)]
        m.submodules.sizes = sizes = memory.Memory(shape=unsigned(FLITS_BITS), depth=SIZES, init=[])
        size_write, size_read = sizes.write_port(), sizes.read_port(domain="comb")

        # The next packet: known while ``ready``, to be drawn while ``drawing``; neither once the
        # generator has stopped. Whether its time has come is decided one cycle ahead, so that
        # nothing but registers depends on ``now``.
        ready, drawing = Signal(), Signal()
        created = Signal(CYCLE_BITS)
        target, lane = Signal(NODE_BITS), Signal(range(params.vcs_per_class))
        flits, at = Signal(FLITS_BITS), Signal(FLITS_BITS)
        due, halted = Signal(), Signal()
        begun, stopped, go, last, draw = (Signal(name=name) for name in (
            "begun", "stopped", "go", "last", "draw"))
        m.d.comb += [
            begun.eq(at.any()),
            stopped.eq(due & halted & ~begun),
            go.eq(due & ~stopped & self.available.bit_select(lane, 1)),
            last.eq(at + 1 == flits),
            draw.eq(go & last | drawing),
            self.next.eq(created),
            self.idle.eq(~(drawing | due)),
            # Gaps are at least 1.
            self.wake.eq(Mux(ready, created - 1, NEVER)),
        ]

        m.submodules.image = image = PacketImage(params)
        packet, out = image.packet, self.send.payload
        m.d.comb += [image.valid.eq(go), self.send.valid.eq(go)]
        with m.If(go):
            m.d.comb += [
                packet.dst.eq(target),
                packet.src.eq(self.node),
                packet.created.eq(created),
                packet.measured.eq((created >= measure_start) & (created < measure_end)),
                packet.flits.eq(flits),
                image.at.eq(at),
                out.payload.eq(image.payload),
                out.head.eq(~begun),
                out.tail.eq(last),
                out.vc.eq(lane),
            ]
            m.d.sync += [at.eq(Mux(last, 0, at + 1)), self.sent.flits.eq(self.sent.flits + 1)]
            with m.If(last):
                m.d.sync += [
                    self.sent.packets.eq(self.sent.packets + 1),
                    self.sent.measured.eq(self.sent.measured + packet.measured),
                    self.sent.digest.eq(self.sent.digest + digest(m, packet)),
                ]

        # Draw: two random words hold four independent fractions.
        words = []
        for stream in range(STREAMS):
            m.submodules[f"random{stream}"] = word = RandomWord()
            m.d.comb += [word.step.eq(draw), word.data.eq(new.data)]
            words.append(word)
        m.submodules.gap = gap = Gap()
        m.submodules.choice = choice = TargetChoice(registers)
        connect(m, wiring.flipped(self.write), choice.write)
        times, places = words
        fraction = times.value[:FRACTION_BITS]
        m.d.comb += [
            gap.valid.eq(draw),
            gap.fraction.eq(times.value[-FRACTION_BITS:]),
            gap.thresholds.eq(gaps),
            choice.valid.eq(draw),
            choice.fraction.eq(places.value[-FRACTION_BITS:]),
            choice.place.eq(places.value),
        ]
        # The next packet as it will be known in the next cycle.
        coming, known = Signal(CYCLE_BITS), Signal()
        m.d.comb += [coming.eq(created), known.eq(ready & ~stopped)]
        with m.If(draw):
            m.d.comb += [coming.eq(created + gap.cycles), known.eq(gap.ends)]
        m.d.sync += [ready.eq(known), due.eq(0)]
        with m.If(known):
            reached = Signal()
            m.d.comb += reached.eq(self.now + 1 >= coming)
            m.d.sync += [due.eq(reached), halted.eq(reached & (self.now + 1 >= stop))]
        with m.If(draw):
            m.d.comb += size_read.addr.eq(sum(fraction >= threshold for threshold in below))
            m.d.sync += [
                created.eq(coming),
                drawing.eq(~gap.ends),
                target.eq(choice.node),
                lane.eq(_lane(choice.node, params.vcs_per_class)),
                flits.eq(size_read.data),
            ]

        with m.If(write.valid):
            with m.Switch(new.address):
                with m.Case(registers.start.offset):
                    m.d.sync += [created.eq(new.data - 1), drawing.eq(1)]
                for name, register in (("stop", stop), ("measure_start", measure_start),
                                       ("measure_end", measure_end)):
                    with m.Case(getattr(registers, name).offset):
                        m.d.sync += register.eq(new.data)
                for index in range(GAP_STEPS):
                    with m.Case(registers.gap.at(index)):
                        m.d.sync += gaps[index].eq(new.data)
                for index in range(SIZES):
                    with m.Case(registers.size.at(index)):
                        size = data.View(Size, new.data)
                        m.d.comb += [size_write.en.eq(1), size_write.addr.eq(index),
                                     size_write.data.eq(size.flits)]
                        if index < len(below):
                            m.d.sync += below[index].eq(size.below)
                for index in range(2 * STREAMS):
                    with m.Case(registers.seed.at(index)):
                        m.d.comb += words[index // 2].write[index % 2].eq(1)
        return m

    @property
    def params(self) -> LinkParams:
        return self._params


def _lane(node: Value, lanes: int) -> Value:
    """One of the lanes, by the low bits of a node id."""
    bits = node[:(lanes - 1).bit_length()]
    return Mux(bits >= lanes, bits - lanes, bits) if lanes & lanes - 1 else bits
