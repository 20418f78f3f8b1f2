"""Switch port: all of a switch that exists once per port.

The link port, the look-up of the output of each packet that arrives, and the virtual output
queues, one set per plane of outputs; see ``switch`` for what stands between the ports and for the
latency law.

Every plane may take a flit in the same cycle, while the link tells of one credit at a time: what
is not told yet is counted, and since flits come in one per cycle the count stays below the depth of
the buffer. Classes take turns at it.
"""

from functools import reduce
from operator import add, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.arbiter import Arbiter
from hdl.fabric.table import RouteTable
from hdl.fabric.voq import VirtualOutputQueues
from hdl.layouts import CYCLE_BITS, NODE_BITS, LinkStatus, PacketHeader, RouteWrite, flit
from hdl.link.port import LinkPort
from hdl.params import SwitchParams
from hdl.ports import LinkSignature, ValidSignature

__all__ = ["SwitchPort"]


class SwitchPort(wiring.Component):
    """One port, seen as an input and as an output.

    Members
    -------
    now : ``In(48)``
    node : ``In(16)``
        Id of the switch, from a register.
    index : ``In(port_bits)``
        Number of the port, from a register.
    link : ``Out(LinkSignature(link))``
        The pins.
    table : ``In(ValidSignature(RouteWrite))``
        Writes to the route tables.
    start, open, going : ``Out(plane_ports).array(speedup, classes)``
        As an input: those of the queues of each plane, see ``VirtualOutputQueues``.
    pop, pop_port, pop_class, flit : arrays of ``speedup``
        As an input: likewise.
    available : ``Out(classes)``
        As an output: classes with credit.
    charge : ``In(classes)``
        A flit is on its way, which charges its class; one-hot or 0.
    send : ``In(ValidSignature(flit(link)))``
        The flit, one or more cycles later.
    status : ``Out(LinkStatus)``
    idle : ``Out(1)``
        No flit, no word in the tx register, no freed total to tell.
    wake : ``Out(48)``
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        link, planes = params.link, params.speedup
        super().__init__({
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "index": In(params.port_bits),
            "link": Out(LinkSignature(link)),
            "table": In(ValidSignature(RouteWrite)),
            "start": Out(params.plane_ports).array(planes, link.classes),
            "open": Out(params.plane_ports).array(planes, link.classes),
            "going": Out(params.plane_ports).array(planes, link.classes),
            "pop": In(params.plane_ports).array(planes),
            "pop_port": In(params.plane_bits).array(planes),
            "pop_class": In(link.classes).array(planes),
            "flit": Out(ValidSignature(flit(link))).array(planes),
            "available": Out(link.classes),
            "charge": In(link.classes),
            "send": In(ValidSignature(flit(link))),
            "status": Out(LinkStatus),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        classes, lanes, planes = link.classes, link.vcs_per_class, params.speedup
        m.submodules.endpoint = endpoint = LinkPort(link, index=self.index)
        m.submodules.table = table = RouteTable(params.table_bits, input_port=self.index)
        queues = [VirtualOutputQueues(params) for _ in range(planes)]
        connect(m, wiring.flipped(self.link), endpoint.link)
        arrived, valid = endpoint.receive.payload, endpoint.receive.valid
        header = data.View(PacketHeader, Cat(arrived.payload[:128], Const(0, 128)))
        m.d.comb += [
            endpoint.now.eq(self.now),
            endpoint.node.eq(self.node),
            table.write.valid.eq(self.table.valid),
            table.write.payload.eq(self.table.payload),
            table.valid.eq(valid & arrived.head),
            table.dst.eq(header.dst),
        ]

        # Of each class, the output of the packet that is arriving.
        current = [Signal(params.port_bits, name=f"current{klass}") for klass in range(classes)]
        klass_of, to = Signal.like(queues[0].write.payload.klass), Signal(params.port_bits)
        with m.If(valid):
            m.d.comb += [
                klass_of.eq(sum((arrived.vc >= klass * lanes) for klass in range(1, classes))),
                to.eq(Mux(arrived.head, table.choice.port, reduce(or_, (
                    Mux(klass_of == klass, held, 0) for klass, held in enumerate(current))))),
            ]
            for klass in range(classes):
                with m.If(arrived.head & (klass_of == klass)):
                    m.d.sync += current[klass].eq(table.choice.port)

        for plane, block in enumerate(queues):
            m.submodules[f"queues{plane}"] = block
            stored = block.write.payload
            m.d.comb += [
                block.write.valid.eq(valid & (to % planes == plane)),
                block.write_payload.eq(arrived.payload),
                stored.port.eq(to // planes),
                stored.klass.eq(klass_of),
                stored.tail.eq(arrived.tail),
                stored.poison.eq(arrived.poison),
                block.crowded.eq(reduce(or_, (
                    other.holds for other in queues if other is not block), 0)),
                block.pop.eq(self.pop[plane]),
                block.pop_port.eq(self.pop_port[plane]),
                block.pop_class.eq(self.pop_class[plane]),
                self.flit[plane].valid.eq(block.flit.valid),
                self.flit[plane].payload.eq(block.flit.payload),
            ]
            m.d.comb += [getattr(self, name)[plane][klass].eq(getattr(block, name)[klass])
                         for name in ("start", "open", "going") for klass in range(classes)]

        freed, owing = self._tell(m)
        m.d.comb += [
            endpoint.free.valid.eq(freed.any()),
            endpoint.free.payload.eq(lanes * sum(
                Mux(freed[klass], klass, 0) for klass in range(classes))),
            endpoint.reserve.eq(Cat(
                self.charge[vc // lanes] if vc % lanes == 0 else Const(0)
                for vc in range(link.vcs))),
            endpoint.send.valid.eq(self.send.valid),
            endpoint.send.payload.eq(self.send.payload),
            self.available.eq(Cat(endpoint.available[klass * lanes] for klass in range(classes))),
            self.status.eq(endpoint.status),
            self.idle.eq(endpoint.idle & ~owing & ~Cat(
                (block.holds, block.flit.valid) for block in queues).any()),
            self.wake.eq(endpoint.wake),
        ]
        return m

    def _tell(self, m: Module) -> tuple[Value, Value]:
        """(class that a freed flit is told of, one-hot or 0; some are still to be told)."""
        params, link = self._params, self._params.link
        if params.speedup == 1:
            return self.pop_class[0], Const(0, 1)
        owed = [Signal(range(link.vc_depth + 1), name=f"owed{klass}")
                for klass in range(link.classes)]
        freed, owing, popping = Signal(link.classes), Signal(), Signal()
        m.submodules.teller = teller = Arbiter(link.classes)
        m.d.comb += [owing.eq(Cat(owed).any()), popping.eq(Cat(self.pop_class).any())]
        with m.If(popping | owing):
            m.d.comb += [
                teller.request.eq(reduce(or_, self.pop_class) | Cat(
                    count.any() for count in owed)),
                teller.accept.eq(1),
                freed.eq(teller.grant),
            ]
            m.d.sync += [count.eq(count + reduce(add, (
                taken[klass] for taken in self.pop_class)) - freed[klass])
                for klass, count in enumerate(owed)]
        return freed, owing
