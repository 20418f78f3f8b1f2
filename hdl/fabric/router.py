"""Router: input-buffered, credit-based virtual-channel router of a card.

::

    cycle      r                    r + 1                   r + 2               r + 3
           ┌─────────┐         ┌──────────────┐       ┌──────────────┐
    rx pins│ route,  │  front  │ allocate VC  │ select│ read RAM,    │  tx   tx pins
    ──────►│ write   ├────────►│ and switch,  ├──────►│ cross,       ├──────►
           │ buffer  │         │ charge credit│       │ form word    │
           └─────────┘         └──────┬───────┘       └──────────────┘
                                      └─► freed total of the input VC, on its way back at r + 3

Every port is a link endpoint with a buffer behind it. Ports are numbered dimension by dimension
(see ``RouterParams``), then one local port per rail. A link port outlives the death of its link
(see ``link/port``); a local port is a wire within the tile.

**Routes** are computed (``route``), or looked up in a table first (``lookup``), or chosen by
credits among all that lead ahead (``adaptive``).

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
channels of a dimension, dimensions one after the other, the local port last. The last packet in
this order can always move, since the local port always sinks. ``adaptive`` has the argument for
its own kind of routes. ``hdl/topology`` checks both on the finished fabric by searching its
channel-dependency graph for a cycle.

**Idle.** A router without flits, without words in its output registers and without totals to tell
changes nothing before ``wake``, pointers of arbiters included. Who writes its table is not idle.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.adaptive import AdaptiveInput, OpenLanes, check_lanes
from hdl.fabric.allocator import Allocator
from hdl.fabric.buffer import VcBuffer
from hdl.fabric.lookup import TableRoute
from hdl.fabric.route import Route, want_layout
from hdl.fabric.shape import RouteConfig
from hdl.layouts import CYCLE_BITS, NODE_BITS, LinkStatus, PacketHeader, RouteWrite
from hdl.link.link import LinkEndpoint
from hdl.link.port import LinkPort
from hdl.params import RouterParams
from hdl.ports import DimConfig, LinkSignature, ValidSignature

__all__ = ["Router"]


class Router(wiring.Component):
    """The router of a card.

    Parameters
    ----------
    params : RouterParams
        An adaptive router needs three virtual channels per class.

    Members
    -------
    now : ``In(48)``
        The global cycle.
    node : ``In(16)``
        Own node id; configuration.
    dims : ``In(data.ArrayLayout(DimConfig, dims))``
        Shape of the fabric; configuration.
    table : ``In(ValidSignature(RouteWrite))``
        Only with ``table_bits``: a write to the route tables, from registers, while there is no
        traffic that meets it.
    links : ``Out(LinkSignature(link)).array(links)``
        Link ports.
    locals : ``Out(LinkSignature(link)).array(rails)``
        Ports to the NIC's rails, with the same words. A packet for this node leaves at the one of
        its rail, or of rail 0 if there is none.
    status : ``Out(data.ArrayLayout(LinkStatus, links))``
        State of the links.
    idle, wake : ``Out(1)``, ``Out(48)``
        With empty inputs nothing changes before ``wake``.
    starved : ``Out(ports)``
        Ports by which a flit could leave if its virtual channel had a credit, a function of
        registers.
    """

    def __init__(self, params: RouterParams) -> None:
        if params.adaptive:
            check_lanes(params.link.vcs_per_class)
        self._params = params
        members = {
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "dims": In(data.ArrayLayout(DimConfig, params.dims)),
            "links": Out(LinkSignature(params.link)).array(params.links),
            "locals": Out(LinkSignature(params.link)).array(params.rails),
            "status": Out(data.ArrayLayout(LinkStatus, params.links)),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "starved": Out(params.ports),
        }
        if params.table_bits:
            members["table"] = In(ValidSignature(RouteWrite))
        super().__init__(members)

    @property
    def params(self) -> RouterParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        m.submodules.config = config = RouteConfig(params)
        m.submodules.allocator = allocator = Allocator(params)
        m.d.comb += [config.node.eq(self.node), config.dims.eq(self.dims)]

        endpoints, buffers = [], []
        for port in range(params.ports):
            m.submodules[f"endpoint{port}"] = endpoint = self._endpoint(m, port, config.own)
            m.submodules[f"buffer{port}"] = buffer = VcBuffer(params.link, want_layout(params))
            arrived, stored = endpoint.receive.payload, buffer.write.payload
            pop = allocator.pop[port]
            m.d.comb += [
                buffer.write.valid.eq(endpoint.receive.valid),
                buffer.write_payload.eq(arrived.payload),
                stored.vc.eq(arrived.vc),
                stored.head.eq(arrived.head),
                stored.tail.eq(arrived.tail),
                stored.poison.eq(arrived.poison),
                stored.channel.eq(self._route(m, port, config, endpoint.receive)),
                allocator.occupied[port].eq(buffer.occupied),
                allocator.tail[port].eq(buffer.tail),
                allocator.available[port].eq(endpoint.available),
                buffer.pop.valid.eq(pop.valid),
                buffer.pop.payload.eq(pop.payload),
                endpoint.free.valid.eq(pop.valid),
                endpoint.free.payload.eq(pop.payload),
                endpoint.reserve.eq(allocator.charge[port]),
            ]
            endpoints.append(endpoint)
            buffers.append(buffer)

        if params.adaptive:
            self._choose(m, allocator, endpoints, buffers)
        else:
            m.d.comb += [allocator.front[port].eq(buffer.front)
                         for port, buffer in enumerate(buffers)]
        selects = self._crossbar(m, allocator, endpoints, buffers)
        m.d.comb += [
            self.idle.eq(Cat(endpoint.idle for endpoint in endpoints).all()
                         & ~Cat(selects, (buffer.occupied for buffer in buffers)).any()),
            self.wake.eq(self._earliest(m, [link.wake for link in endpoints[:params.links]])),
            self.starved.eq(allocator.starved),
        ]
        return m

    def _endpoint(self, m: Module, port: int, own):
        """The endpoint of a port, joined to its pins."""
        params = self._params
        if port >= params.links:
            endpoint = LinkEndpoint(params.link, reserve=True, local=True)
            connect(m, wiring.flipped(self.locals[port - params.links]), endpoint.link)
            return endpoint
        endpoint = LinkPort(params.link, index=port, roomy=params.adaptive)
        connect(m, wiring.flipped(self.links[port]), endpoint.link)
        m.d.comb += [endpoint.now.eq(self.now), endpoint.node.eq(own),
                     self.status[port].eq(endpoint.status)]
        return endpoint

    def _route(self, m: Module, port: int, config, receive):
        """Where the packet whose header is received wants to go."""
        params = self._params
        if params.table_bits:
            route = TableRoute(params, port)
            m.d.comb += [route.own.eq(config.own), route.table.valid.eq(self.table.valid),
                         route.table.payload.eq(self.table.payload)]
        else:
            route = Route(params, port)
        m.submodules[f"route{port}"] = route
        header = data.View(PacketHeader, _header_bits(receive.payload.payload))
        m.d.comb += [
            route.routes.eq(config.routes),
            route.valid.eq(receive.valid & receive.payload.head),
            route.dst.eq(header.dst),
            route.src.eq(header.src),
            route.rail.eq(header.rail),
            route.path.eq(header.path),
            route.vc.eq(receive.payload.vc),
        ]
        return route.want

    def _choose(self, m: Module, allocator, endpoints, buffers) -> None:
        """What heads ask for follows from the credits of this cycle."""
        params = self._params
        m.submodules.open = lanes = OpenLanes(params)
        for port, endpoint in enumerate(endpoints[:params.links]):
            m.d.comb += [
                lanes.available[port].eq(endpoint.available),
                lanes.roomy[port].eq(endpoint.roomy),
                lanes.busy[port].eq(allocator.busy[port]),
            ]
        for port, buffer in enumerate(buffers):
            m.submodules[f"choice{port}"] = choice = AdaptiveInput(params, port)
            pop = allocator.pop[port]
            m.d.comb += [
                choice.occupied.eq(buffer.occupied),
                choice.tail.eq(buffer.tail),
                choice.front.eq(buffer.front),
                choice.pop.valid.eq(pop.valid),
                choice.pop.payload.eq(pop.payload),
                allocator.front[port].eq(choice.choice),
            ]
            for klass in range(params.link.classes):
                m.d.comb += [
                    choice.usable[klass].eq(lanes.usable[klass]),
                    choice.wide[klass].eq(lanes.wide[klass]),
                    choice.lane[klass].eq(lanes.lane[klass]),
                ]

    def _crossbar(self, m: Module, allocator, endpoints, buffers) -> list[Signal]:
        """What was allocated is read from the buffers one cycle later."""
        flags = [Signal.like(flags, name=f"flags{port}")
                 for port, flags in enumerate(allocator.flags)]
        m.d.sync += [held.eq(new) for held, new in zip(flags, allocator.flags, strict=True)]
        selects = []
        for port, endpoint in enumerate(endpoints):
            select = Signal(self._params.ports, name=f"select{port}")
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
                            flit.poison.eq(buffer.poison),
                            flit.vc.eq(flags[source].vc),
                        ]
            selects.append(select)
        return selects

    def _earliest(self, m: Module, times: list[Value]) -> Value:
        """The smallest of ``times``; plain links have no deadlines."""
        if not self._params.link.reliable:
            return times[0]
        while len(times) > 1:
            halves = [Signal(CYCLE_BITS, name="earlier") for _ in times[1::2]]
            m.d.comb += [half.eq(Mux(a < b, a, b)) for half, a, b in zip(
                halves, times[::2], times[1::2], strict=False)]
            times = [*halves, *times[2 * len(halves):]]
        return times[0]


def _header_bits(payload):
    """The bits of a packet header of which only the first 16 B, all that routing needs, are those
    of the flit."""
    return Cat(payload[:128], Const(0, 128))
