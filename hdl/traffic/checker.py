"""Checker: takes every flit that the router delivers, compares it bit for bit with what its header
promises, and measures.

**Latency law.** A packet's latency is that of its tail: the cycle in which it arrives here, less
the cycle of its creation. Totals show two cycles after a tail.

**Flow control.** Flits are taken as they come: each frees its slot in the same cycle, so this end
never holds up the network.

What is checked of every packet: it is for this node; it begins with a head, ends with a tail, and
has as many flits as its header says; every bit of every flit is right; and, where routers are
deterministic, it is younger than the one that came before from the same source. That none was lost
or came twice follows from totals and digests of both ends, when the network is empty.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS, NODE_BITS, PacketHeader, PacketOp, flit
from hdl.nic.packets import header_flits
from hdl.params import LinkParams
from hdl.ports import ValidSignature

from .histogram import Histogram
from .order import OrderTable
from .packet import AGE_BITS, PacketImage, digest, flits_of_length
from .registers import FLITS_BITS, ReceivedSignature, RegisterWrite, TrafficRegisters

__all__ = ["Checker"]


class Checker(wiring.Component):
    """Checks the packets that arrive at one node.

    Parameters
    ----------
    params : LinkParams
    registers : TrafficRegisters
    bins : int
        Of the histogram.
    ordered : bool
        The packets of a pair of nodes come in order.

    Members
    -------
    now : ``In(48)``
    node : ``In(16)``
        Own node id, from a register.
    write : ``In(ValidSignature(RegisterWrite))``
        A register of the tile is written.
    receive : ``In(ValidSignature(flit(params)))``
        A flit that arrives.
    received : ``Out(ReceivedSignature())``
    read : ``In(1)``
        The next bin of the histogram is read; its count is on ``bin`` in the next cycle.
    bin : ``Out(32)``
    idle : ``Out(1)``
    """

    def __init__(self, params: LinkParams, registers: TrafficRegisters, *, bins: int,
                 ordered: bool) -> None:
        self._params, self._registers = params, registers
        self._bins, self._ordered = bins, bool(ordered)
        super().__init__({
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "write": In(ValidSignature(RegisterWrite)),
            "receive": In(ValidSignature(flit(params))),
            "received": Out(ReceivedSignature()),
            "read": In(1),
            "bin": Out(32),
            "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, registers, received = self._params, self._registers, self.received
        arrived = self.receive.payload
        length_flit = header_flits(params) - 1
        half = arrived.payload[:128]
        # The first half of a header, in the first flit, and its second half, in the last of it.
        head = data.View(PacketHeader, Cat(half, Const(0, 128)))
        rest = data.View(PacketHeader, Cat(Const(0, 128), half if length_flit
                                           else arrived.payload[128:256]))

        # The packet under way: its number of flits so far, what its header said, and what it is.
        at = Signal(FLITS_BITS)
        m.submodules.image = image = PacketImage(params)
        packet = image.packet
        kept = {name: Signal.like(getattr(packet, name), name=f"kept_{name}")
                for name in ("src", "created", "measured", "flits")}
        response, wrong = Signal(), Signal()
        m.submodules.latencies = latencies = Histogram(self._bins)
        heard, answer, tail = Signal(), Signal(), Signal()
        fine, complete = Signal(), Signal()
        first = Signal()
        #: Responses have a class of their own if there are two, and may come amid a packet.
        aside = arrived.vc >= params.vcs_per_class if params.classes > 1 else Const(0, 1)
        is_response = (head.op == PacketOp.RESPONSE) & arrived.head
        with m.If(self.receive.valid):
            with m.If(aside):
                m.d.sync += received.returned.eq(received.returned + is_response)
            with m.Else():
                m.d.comb += [
                    heard.eq(1),
                    first.eq(at == 0),
                    tail.eq(arrived.tail),
                    answer.eq(Mux(first, is_response, response)),
                    packet.dst.eq(self.node),
                    *(getattr(packet, name).eq(value) for name, value in kept.items()),
                ]
                with m.If(first):
                    m.d.comb += [packet.src.eq(head.src), packet.created.eq(head.sequence),
                                 packet.measured.eq(head.group[0])]
                with m.If(at == length_flit):
                    m.d.comb += packet.flits.eq(flits_of_length(rest.length, params))
        with m.If(heard):
            m.d.comb += [
                image.valid.eq(1),
                image.at.eq(at),
                fine.eq((image.payload == arrived.payload) & (arrived.head == first)
                        & ((at < length_flit if length_flit else 0) & ~tail
                           | (tail == (at + 1 == packet.flits)))),
            ]
            m.d.sync += [
                at.eq(Mux(tail, 0, at + 1)),
                *(value.eq(getattr(packet, name)) for name, value in kept.items()),
                response.eq(answer & ~tail),
                wrong.eq((wrong | ~fine) & ~tail),
            ]
            with m.If(answer):
                m.d.sync += received.returned.eq(received.returned + tail)
            with m.Else():
                m.d.sync += received.flits.eq(received.flits + 1)
                with m.If(first & (head.dst != self.node)):
                    m.d.sync += received.misrouted.eq(received.misrouted + 1)
                with m.If(tail & arrived.poison):
                    m.d.sync += received.cut.eq(received.cut + 1)
                with m.Elif(tail):
                    m.d.comb += complete.eq(1)
                    m.d.sync += received.corrupt.eq(received.corrupt + (wrong | ~fine))

        # A complete packet. What became of it is added up one cycle later: nothing but registers
        # depends on ``now``.
        late, age = Signal(), Signal(AGE_BITS)
        m.d.sync += late.eq(complete & packet.measured)
        with m.If(complete):
            m.d.sync += [
                age.eq(self.now - packet.created),
                received.packets.eq(received.packets + 1),
                received.measured.eq(received.measured + packet.measured),
                received.digest.eq(received.digest + digest(m, packet)),
            ]
        m.d.comb += [latencies.add.valid.eq(late), latencies.add.payload.eq(age)]
        with m.If(late):
            m.d.sync += [
                received.latency_sum.eq(received.latency_sum + age),
                received.latency_max.eq(Mux(age > received.latency_max, age,
                                            received.latency_max)),
            ]
        busy = late | latencies.busy
        if self._ordered:
            m.submodules.order = order = OrderTable()
            m.d.comb += [
                order.packet.valid.eq(complete),
                order.packet.payload.src.eq(packet.src),
                order.packet.payload.created.eq(packet.created),
            ]
            with m.If(order.busy):
                m.d.sync += [
                    received.disordered.eq(received.disordered + order.older),
                    received.duplicated.eq(received.duplicated + order.same),
                ]
            busy |= order.busy
        m.d.comb += self.idle.eq(~busy)

        place = Signal(len(latencies.read.payload))
        shift = Signal(4)
        m.d.comb += [
            latencies.shift.eq(shift),
            latencies.read.valid.eq(self.read),
            latencies.read.payload.eq(place),
            self.bin.eq(latencies.count),
        ]
        with m.If(self.read):
            m.d.sync += place.eq(place + 1)
        with m.If(self.write.valid):
            new = self.write.payload
            with m.Switch(new.address):
                with m.Case(registers.bin_shift.offset):
                    m.d.sync += shift.eq(new.data)
                with m.Case(registers.bin_index.offset):
                    m.d.sync += place.eq(new.data)
        return m
