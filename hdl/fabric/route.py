"""Routes: where a packet leaves a node, and on which virtual channel.

*Dimension order.* A packet corrects its coordinates in the order of the dimensions and takes the
shorter way around a ring; it leaves at the local port of its rail when all agree. Where both ways
are equally long it goes + if own coordinate + rail is even: neighbours then send a tie in opposite
directions, and two rails share the two ways.

*Lanes.* A ring alone can deadlock: packets all around it wait for each other. So the lanes of a
class fall into two halves, *before* and *after* (lanes 0 and 1 of two). A packet that will cross
the wrap link of a ring starts in a before lane and takes an after lane on the wrap link and from
there on. A packet that will not cross may start in any lane and keeps it. Order the channels of
one direction of a ring as: before lanes from the first link on, the wrap link's after lanes, after
lanes from the first link on. Every hop goes up in this order (before lanes of the wrap link are
never used, and nobody in an after lane waits for the wrap link), so no cycle exists. Meshes and
dimensions of two nodes need no order and use all lanes. Entering a dimension starts anew; later
dimensions never wait for earlier ones.

Where several lanes are allowed, :func:`spread` of source and destination picks one: traffic is
shared out among the lanes, while packets of one (source, destination, class, rail) stay on one
path and thus in order. The local port uses lane 0 of the class.

*Latency law.* :class:`Route` is combinational; :class:`RouteConfig` follows its inputs two cycles
later, during reset too.

Node ids pack one coordinate field per dimension; all arithmetic is on the fields in place, so the
hardware has no variable shift. What depends on the configuration alone is computed once per
router: the ring is cut at the farthest node reached in + direction (``limit``), and a destination
needs but two comparisons per dimension.
"""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS
from hdl.params import RouterParams
from hdl.ports import DimConfig

__all__ = ["DimRoute", "Route", "RouteConfig", "channel_layout", "lane_groups", "next_hop",
           "route", "spread"]

#: Masks whose parities over ``src ^ dst`` are the bits of :func:`spread`.
_SPREAD_MASKS = (0xFFFF, 0xAAAA, 0xCCCC)


def lane_groups(lanes: int) -> tuple[range, range]:
    """Return the before lanes and the after lanes of a class with ``lanes`` lanes. A single lane
    is both: its rings of more than two nodes are not safe."""
    if lanes == 1:
        return range(1), range(1)
    return range(lanes // 2), range(lanes // 2, lanes)


def spread(src: int, dst: int, count: int) -> int:
    """Return which of ``count`` allowed lanes the packets from ``src`` to ``dst`` take."""
    value = sum(((src ^ dst) & mask).bit_count() % 2 << bit
                for bit, mask in enumerate(_SPREAD_MASKS[:(count - 1).bit_length()]))
    return value - count if value >= count else value


def next_hop(node: int, dst: int, in_port: int, in_lane: int, rail: int,
             dims: Sequence[Mapping[str, int]], *, lanes: int = 2) -> tuple[int, tuple[int, ...]]:
    """Where a packet at ``node`` goes next: the reference model of the routing function.

    Parameters
    ----------
    node, dst : int
        Node ids.
    in_port, in_lane : int
        Port that the packet came in by (ports of the rails follow the link ports), and its lane.
    rail : int
        Rail of the packet.
    dims : sequence of mappings
        ``mask``, ``size`` and ``wrap`` of each dimension, as in ``DimConfig``.
    lanes : int
        Lanes per class.

    Returns
    -------
    tuple
        The port it leaves by, and the lanes it may take there (a flow takes one of them).
    """
    before, after = lane_groups(lanes)
    for dim, config in enumerate(dims):
        mask, wrap = config["mask"], config["wrap"]
        if node & mask == dst & mask:
            continue
        shift = (mask & -mask).bit_length() - 1
        own, target, size = (value >> shift for value in
                             (node & mask, dst & mask, config["size"]))
        if wrap:
            up = (target - own) % size
            plus = 2 * up < size or (2 * up == size and (own + rail) % 2 == 0)
        else:
            plus = target > own
        port = 2 * dim + (not plus)
        if not wrap or size == 2:
            return port, tuple(range(lanes))
        if own == (size - 1 if plus else 0):
            return port, tuple(after)
        if in_port // 2 == dim:
            return port, (in_lane,)
        will_cross = plus != (target > own)
        return port, tuple(before if will_cross else range(lanes))
    return 2 * len(dims) + rail, (0,)


def route(node: int, dst: int, src: int, in_port: int, in_lane: int, rail: int,
          dims: Sequence[Mapping[str, int]], *, rails: int = 1,
          lanes: int = 2) -> tuple[int, int]:
    """Return (port, lane) that the packet leaves by: :func:`next_hop` with its lane chosen.

    A rail that this node does not have is rail 0.
    """
    port, allowed = next_hop(node, dst, in_port, in_lane, rail, dims, lanes=lanes)
    if port >= 2 * len(dims) + rails:
        port = 2 * len(dims)
    return port, allowed[spread(src, dst, len(allowed))]


class DimRoute(data.Struct):
    """One dimension, prepared for comparing destinations with it. Values are in place."""

    mask: NODE_BITS
    own: NODE_BITS
    #: Farthest coordinate in + direction, for packets of even and of odd rails.
    limit: data.ArrayLayout(NODE_BITS, 2)
    #: The way to ``limit`` crosses the wrap link.
    round: data.ArrayLayout(1, 2)
    #: A ring of more than two nodes: it has a dateline.
    ring: 1
    #: Own coordinate is the last one, the first one.
    top: 1
    bottom: 1


def channel_layout(params: RouterParams) -> data.StructLayout:
    """Layout of an output channel: a virtual channel of an output port."""
    return data.StructLayout({
        "vc": unsigned(params.link.vc_bits),
        "port": unsigned((params.ports - 1).bit_length()),
    })


class RouteConfig(wiring.Component):
    """Registers for the configuration, and all that follows from it alone.

    They are not reset but follow their inputs during reset, so that a router out of reset is
    settled. The inputs must not change while there is traffic.

    Members
    -------
    node : ``In(16)``
    dims : ``In(data.ArrayLayout(DimConfig, dims))``
    routes : ``Out(data.ArrayLayout(DimRoute, dims))``
    """

    def __init__(self, params: RouterParams) -> None:
        self._params = params
        super().__init__({
            "node": In(NODE_BITS),
            "dims": In(data.ArrayLayout(DimConfig, params.dims)),
            "routes": Out(data.ArrayLayout(DimRoute, params.dims)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = data.StructLayout({
            "node": NODE_BITS, "dims": data.ArrayLayout(DimConfig, self._params.dims)})
        taken, used = Signal(layout, reset_less=True), Signal(layout, reset_less=True)
        routes = Signal(data.ArrayLayout(DimRoute, self._params.dims), reset_less=True)
        m.d.sync += [taken.node.eq(self.node), taken.dims.eq(self.dims), used.eq(taken)]
        m.d.comb += self.routes.eq(routes)
        # A configuration that stays needs no work.
        changed = Signal()
        m.d.comb += changed.eq(taken.as_value() != used.as_value())
        node, dims = taken.node, taken.dims

        for index in range(self._params.dims):
            config, result = dims[index], routes[index]
            unit = Signal(NODE_BITS, name=f"unit{index}")
            own = Signal(NODE_BITS, name=f"own{index}")
            m.d.comb += [unit.eq(config.mask & -config.mask), own.eq(node & config.mask)]
            with m.If(changed):
                m.d.sync += [
                    result.mask.eq(config.mask),
                    result.own.eq(own),
                    result.ring.eq(config.wrap & (config.size != unit << 1)),
                    result.top.eq(own + unit == config.size),
                    result.bottom.eq(own == 0),
                ]
            for parity in range(2):
                half = Signal(NODE_BITS, name=f"half{index}_{parity}")
                limit = Signal(NODE_BITS + 2, name=f"limit{index}_{parity}")
                tie = (config.size & unit) == 0
                odd = (own & unit).any() ^ parity
                m.d.comb += [
                    half.eq((config.size >> 1 & config.mask) - Mux(tie & odd, unit, 0)),
                    limit.eq(own + half),
                ]
                around = config.wrap & (limit >= config.size)
                with m.If(changed):
                    m.d.sync += [
                        result.round[parity].eq(around),
                        result.limit[parity].eq(
                            Mux(config.wrap, Mux(around, limit - config.size, limit),
                                config.mask)),
                    ]
        return m


class Route(wiring.Component):
    """The routing function of one input port. Without ``valid`` its output means nothing.

    Parameters
    ----------
    params : RouterParams
    port : int
        The input port: packets from a link of a dimension are under way in it.

    Members
    -------
    routes : ``In(data.ArrayLayout(DimRoute, dims))``
        The configuration.
    valid : ``In(1)``
        There is a header.
    dst, src, rail, vc : inputs
        Fields of the header, and the virtual channel on which it came.
    channel : ``Out(channel_layout(params))``
        The output port and the virtual channel there.
    """

    def __init__(self, params: RouterParams, port: int) -> None:
        self._params, self._port = params, port
        super().__init__({
            "routes": In(data.ArrayLayout(DimRoute, params.dims)),
            "valid": In(1),
            "dst": In(NODE_BITS),
            "src": In(NODE_BITS),
            "rail": In(3),
            "vc": In(params.link.vc_bits),
            "channel": Out(channel_layout(params)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        lanes = link.vcs_per_class
        before, after = lane_groups(lanes)

        base, lane, chosen = Signal(link.vc_bits), Signal(link.vc_bits), Signal(link.vc_bits)
        mixed = Signal(NODE_BITS)

        def pick(group: range):
            """The lane of ``group`` that the spread of source and destination picks."""
            count = len(group)
            bits = Cat((mixed & mask).xor()
                       for mask in _SPREAD_MASKS[:(count - 1).bit_length()])
            if count & count - 1:
                bits = Mux(bits >= count, bits - count, bits)
            return bits + group.start if count > 1 else Const(group.start)

        # Everything is inside If: a simulator then pays for headers only.
        with m.If(self.valid):
            m.d.comb += mixed.eq(self.dst ^ self.src)
            for klass in range(1, link.classes):
                with m.If(self.vc >= klass * lanes):
                    m.d.comb += base.eq(klass * lanes)
            m.d.comb += [lane.eq(self.vc - base), self.channel.vc.eq(base + chosen)]

            # At the destination, unless a dimension differs.
            m.d.comb += self.channel.port.eq(params.links)
            for rail in range(1, params.rails):
                with m.If(self.rail == rail):
                    m.d.comb += self.channel.port.eq(params.links + rail)
            # The last assignment wins: the first dimension that differs.
            for dim in reversed(range(params.dims)):
                here = self.routes[dim]
                to = Signal(NODE_BITS, name=f"to{dim}")
                ahead, inside, plus = (Signal(name=f"{name}{dim}")
                                       for name in ("ahead", "inside", "plus"))
                m.d.comb += to.eq(self.dst & here.mask)
                with m.If(to != here.own):
                    m.d.comb += [
                        ahead.eq(to > here.own),
                        inside.eq(to <= here.limit[self.rail[0]]),
                        plus.eq(Mux(here.round[self.rail[0]], ahead | inside, ahead & inside)),
                        self.channel.port.eq(2 * dim + ~plus),
                        chosen.eq(pick(range(lanes))),
                    ]
                    with m.If(here.ring):
                        if self._port // 2 == dim:
                            m.d.comb += chosen.eq(lane)
                        else:
                            with m.If(plus != ahead):
                                m.d.comb += chosen.eq(pick(before))
                        with m.If(Mux(plus, here.top, here.bottom)):
                            m.d.comb += chosen.eq(pick(after))
        return m
