"""Switch port: all of a switch that exists once per port.

The link endpoint, the look-up of the output of each packet that arrives, and the virtual output
queues; see ``switch`` for what stands between the ports and for the latency law.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.table import PortTable, SwitchRegion, table_entry
from hdl.fabric.voq import VirtualOutputQueues
from hdl.layouts import PacketHeader, flit
from hdl.link.link import LinkEndpoint
from hdl.params import SwitchParams
from hdl.ports import LinkSignature, ValidSignature

__all__ = ["SwitchPort"]


class SwitchPort(wiring.Component):
    """One port, seen as an input and as an output.

    Members
    -------
    link : ``Out(LinkSignature(link))``
        The pins.
    region, table : inputs
        Configuration, see ``PortTable``.
    start, open, going, pop, pop_port, pop_class, flit :
        As an input: those of ``VirtualOutputQueues``.
    available : ``Out(classes)``
        As an output: classes with credit.
    charge : ``In(classes)``
        A flit is on its way, which charges its class; one-hot or 0.
    send : ``In(ValidSignature(flit(link)))``
        The flit, one or more cycles later.
    idle : ``Out(1)``
        No flit, no word in the tx register, no freed total to tell.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        radix, link = params.radix, params.link
        super().__init__({
            "link": Out(LinkSignature(link)),
            "region": In(SwitchRegion),
            "table": In(ValidSignature(table_entry(params))),
            "start": Out(radix).array(link.classes),
            "open": Out(radix).array(link.classes),
            "going": Out(radix).array(link.classes),
            "pop": In(radix),
            "pop_port": In(params.port_bits),
            "pop_class": In(link.classes),
            "flit": Out(ValidSignature(flit(link))),
            "available": Out(link.classes),
            "charge": In(link.classes),
            "send": In(ValidSignature(flit(link))),
            "idle": Out(1),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        classes, lanes = link.classes, link.vcs_per_class
        m.submodules.endpoint = endpoint = LinkEndpoint(link, reserve=True)
        m.submodules.table = table = PortTable(params)
        m.submodules.queues = queues = VirtualOutputQueues(params)
        connect(m, wiring.flipped(self.link), endpoint.link)
        arrived, stored = endpoint.receive.payload, queues.write.payload
        header = data.View(PacketHeader, Cat(self.link.rx.payload[:128], Const(0, 128)))

        # Of each class, the output of the packet that is arriving.
        current = [Signal(params.port_bits, name=f"current{klass}") for klass in range(classes)]
        klass_of = Signal.like(stored.klass)
        m.d.comb += [
            klass_of.eq(sum((arrived.vc >= klass * lanes) for klass in range(1, classes))),
            table.region.eq(self.region),
            table.write.valid.eq(self.table.valid),
            table.write.payload.eq(self.table.payload),
            table.valid.eq(endpoint.receive.valid & arrived.head),
            table.dst.eq(header.dst),
            queues.write.valid.eq(endpoint.receive.valid),
            queues.write_payload.eq(self.link.rx.payload),
            stored.port.eq(Mux(arrived.head, table.port, reduce(or_, (
                Mux(klass_of == klass, held, 0) for klass, held in enumerate(current))))),
            stored.klass.eq(klass_of),
            stored.tail.eq(arrived.tail),
        ]
        for klass in range(classes):
            with m.If(table.valid & (klass_of == klass)):
                m.d.sync += current[klass].eq(table.port)

        m.d.comb += [
            queues.pop.eq(self.pop),
            queues.pop_port.eq(self.pop_port),
            queues.pop_class.eq(self.pop_class),
            endpoint.free.valid.eq(self.pop_class.any()),
            endpoint.free.payload.eq(lanes * sum(
                Mux(self.pop_class[klass], klass, 0) for klass in range(classes))),
            self.flit.valid.eq(queues.flit.valid),
            self.flit.payload.eq(queues.flit.payload),
            endpoint.reserve.eq(Cat(
                self.charge[vc // lanes] if vc % lanes == 0 else Const(0)
                for vc in range(link.vcs))),
            endpoint.send.valid.eq(self.send.valid),
            endpoint.send.payload.eq(self.send.payload),
            self.available.eq(Cat(endpoint.available[klass * lanes] for klass in range(classes))),
            self.idle.eq(endpoint.idle & queues.empty),
        ]
        m.d.comb += [getattr(self, name)[klass].eq(getattr(queues, name)[klass])
                     for name in ("start", "open", "going") for klass in range(classes)]
        return m
