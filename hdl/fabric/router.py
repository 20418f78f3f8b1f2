"""Router: input-buffered, credit-based virtual-channel router of a card.

::

    cycle      r                    r + 1                   r + 2               r + 3
           ┌─────────┐         ┌──────────────┐       ┌──────────────┐
    rx pins│ route,  │  front  │ allocate VC  │ select│ read RAM,    │  tx   tx pins
    ──────►│ write   ├────────►│ and switch,  ├──────►│ cross,       ├──────►
           │ buffer  │         │ charge credit│       │ form word    │
           └─────────┘         └──────┬───────┘       └──────────────┘
                                      └─► freed total of the input VC, on its way back at r + 3

Every port, local ones included, is a link endpoint with a buffer behind it. Ports are numbered
``2 d`` for the + direction of dimension ``d``, ``2 d + 1`` for its − direction, then one local
port per rail.

**Latency law.** Unloaded, a word on the rx pins in cycle ``r`` is on the tx pins in ``r + 3``: the
route is computed while the flit is written, both allocations take one cycle, the RAM is read and
the crossbar crossed in the third. Body flits follow one per cycle; a flow that is alone keeps a
link full as long as the buffer covers the credit round trip, ``2 latency + 6`` cycles plus up to
``vcs - 1`` for totals of other VCs that are told first.

**Flow control.** Wormhole with virtual channels: a head takes an output channel (port and VC) and
its tail returns it, flits move one by one under credits. A credit is charged when the flit is
allocated, one cycle before the flit reaches the endpoint; a slot is freed when its flit is
popped. Packets of one VC leave in the order in which they came.

**Why it cannot deadlock.** Classes have VCs of their own at every buffer, and a route never
changes class, so no class ever waits for another: each is a network by itself (they share wires
and arbiters, but those are given anew each cycle to somebody who can move). Within a class every
packet holds and wants channels along its route only, and the lanes that ``route`` allows order all
channels of a ring, dimensions one after the other, the local port last. The last packet in this
order can always move, since the local port always sinks. ``hdl/topology`` checks the same argument
on the finished fabric by searching its channel-dependency graph for a cycle.

**Idle.** A router without flits, without words in its output registers and without totals to tell
changes nothing, pointers of arbiters included.
"""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.allocator import Allocator
from hdl.fabric.buffer import VcBuffer
from hdl.fabric.route import Route, RouteConfig, channel_layout
from hdl.layouts import NODE_BITS, PacketHeader
from hdl.link.link import LinkEndpoint
from hdl.params import RouterParams
from hdl.ports import DimConfig, LinkSignature

__all__ = ["Router"]


class Router(wiring.Component):
    """The router of a card.

    Members
    -------
    node : ``In(16)``
        Own node id; configuration.
    dims : ``In(data.ArrayLayout(DimConfig, dims))``
        Shape of the fabric; configuration.
    links : ``Out(LinkSignature(link)).array(links)``
        Link ports.
    locals : ``Out(LinkSignature(link)).array(rails)``
        Ports to the NIC's rails, with the same words. A packet for this node leaves at the one of
        its rail, or of rail 0 if there is none.
    idle : ``Out(1)``
        With empty inputs nothing changes.
    """

    def __init__(self, params: RouterParams) -> None:
        self._params = params
        super().__init__({
            "node": In(NODE_BITS),
            "dims": In(data.ArrayLayout(DimConfig, params.dims)),
            "links": Out(LinkSignature(params.link)).array(params.links),
            "locals": Out(LinkSignature(params.link)).array(params.rails),
            "idle": Out(1),
        })

    @property
    def params(self) -> RouterParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        m.submodules.config = config = RouteConfig(params)
        m.submodules.allocator = allocator = Allocator(params)
        m.d.comb += [config.node.eq(self.node), config.dims.eq(self.dims)]

        ports = [*self.links, *self.locals]
        endpoints, buffers = [], []
        for port, pins in enumerate(ports):
            m.submodules[f"endpoint{port}"] = endpoint = LinkEndpoint(params.link, reserve=True)
            m.submodules[f"buffer{port}"] = buffer = VcBuffer(params.link, channel_layout(params))
            m.submodules[f"route{port}"] = route = Route(params, port)
            connect(m, wiring.flipped(pins), endpoint.link)
            arrived, stored = endpoint.receive.payload, buffer.write.payload
            pop = allocator.pop[port]
            header = data.View(PacketHeader, _header_bits(pins.rx.payload))
            m.d.comb += [
                route.routes.eq(config.routes),
                route.valid.eq(endpoint.receive.valid & arrived.head),
                route.dst.eq(header.dst),
                route.src.eq(header.src),
                route.rail.eq(header.rail),
                route.vc.eq(arrived.vc),
                buffer.write.valid.eq(endpoint.receive.valid),
                buffer.write_payload.eq(pins.rx.payload),
                stored.vc.eq(arrived.vc),
                stored.head.eq(arrived.head),
                stored.tail.eq(arrived.tail),
                stored.channel.eq(route.channel),
                allocator.occupied[port].eq(buffer.occupied),
                allocator.tail[port].eq(buffer.tail),
                allocator.front[port].eq(buffer.front),
                allocator.available[port].eq(endpoint.available),
                buffer.pop.valid.eq(pop.valid),
                buffer.pop.payload.eq(pop.payload),
                endpoint.free.valid.eq(pop.valid),
                endpoint.free.payload.eq(pop.payload),
                endpoint.reserve.eq(allocator.charge[port]),
            ]
            endpoints.append(endpoint)
            buffers.append(buffer)

        # The crossbar: what was allocated is read from the buffers one cycle later.
        flags = [Signal.like(flags, name=f"flags{port}")
                 for port, flags in enumerate(allocator.flags)]
        m.d.sync += [held.eq(new) for held, new in zip(flags, allocator.flags, strict=True)]
        selects = []
        for port, endpoint in enumerate(endpoints):
            select = Signal(params.ports, name=f"select{port}")
            m.d.sync += select.eq(allocator.select[port])
            m.d.comb += endpoint.send.valid.eq(select.any())
            flit = endpoint.send.payload
            with m.Switch(select):
                for source, buffer in enumerate(buffers):
                    with m.Case(1 << source):
                        m.d.comb += [
                            flit.payload.eq(buffer.payload),
                            flit.head.eq(flags[source].head),
                            flit.tail.eq(flags[source].tail),
                            flit.vc.eq(flags[source].vc),
                        ]
            selects.append(select)

        m.d.comb += self.idle.eq(
            Cat(endpoint.idle for endpoint in endpoints).all()
            & ~Cat(selects, (buffer.occupied for buffer in buffers)).any())
        return m


def _header_bits(payload):
    """The bits of a packet header of which only the first 16 B, all that routing needs, are those
    of the flit."""
    return Cat(payload[:128], Const(0, 128))
