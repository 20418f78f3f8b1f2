"""Routes: where a packet leaves a node, and on which virtual channel.

*Dimension order.* A packet corrects its coordinates in the order of the dimensions, each in its own
way, and leaves at the local port of its rail when all agree.

=====  ==============================================================  ======================
line   step by step                                                    any lane
ring   step by step, the shorter way around; of two that are equally   *before* or *after*
       long, + if own coordinate + rail is even
full   in one hop, or over a node that the packet names                any; *before*, *after*
up     by the first port: all other nodes are behind a switch          lane 0
=====  ==============================================================  ======================

Neighbours on a ring send a tie in opposite directions, and two rails share the two ways. Switches
know one lane per class. The local port takes lane 0 too.

*All paths of a full mesh.* A header whose ``path`` p is not 0 asks for the way over the node with
coordinate p − 1. In every full dimension that the packet has to correct and that has more than two
ports, the node where it enters the dimension sends it there; p − 1 that is the coordinate of this
node, of the destination, or of none at all asks for nothing. Whoever comes by a link of a full
dimension and still differs in it has been on such a way, and goes straight on. A class of one lane
has no such ways.

*Why it cannot deadlock.* Entering a dimension starts anew, and later dimensions never wait for
earlier ones; so a cycle would lie in one dimension. A line has none: packets move in one direction,
and at its end they leave. A ring alone can deadlock: packets all around it wait for each other. So
the lanes of a class fall into two halves, *before* and *after* (lanes 0 and 1 of two). A packet
that will cross the wrap link of a ring starts in a before lane and takes an after lane on the wrap
link and from there on. A packet that will not cross may start in any lane and keeps it. Order the
channels of one direction of a ring as: before lanes from the first link on, the wrap link's after
lanes, after lanes from the first link on. Every hop goes up in this order (before lanes of the wrap
link are never used, and nobody in an after lane waits for the wrap link). Rings of two nodes are
lines. In a full mesh the first of two hops takes a before lane and the second an after lane; a
direct hop may take either, for it is the only one. So before lanes wait for after lanes, and these
for later dimensions alone. An uplink is one hop.

Where several lanes are allowed, ``lanes.spread`` picks one. Packets of one (source, destination,
class, rail, path) stay on one way and in order.

*Latency law.* :class:`Route` is combinational.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.lanes import ESCAPE, escape_groups, lane_groups, pick, spread
from hdl.fabric.shape import DimRoute
from hdl.layouts import NODE_BITS
from hdl.params import RouterParams
from hdl.ports import DimKind

__all__ = ["Route", "Step", "channel_layout", "dimension_order", "next_hop", "route", "steps",
           "want_layout"]


class Step(NamedTuple):
    """The next hop in one dimension."""

    dim: int
    kind: DimKind
    port: int
    #: Of a ring of more than two nodes: the way crosses its wrap link from here on; the next link
    #: is the wrap link.
    ring: bool = False
    crosses: bool = False
    wraps: bool = False
    #: In a full mesh, coordinates of this node and of the destination.
    own: int = 0
    target: int = 0


def steps(node: int, dst: int, rail: int, dims: Sequence[Mapping[str, int]],
          dim_ports: Sequence[int]) -> Iterator[Step]:
    """The next hop in each dimension in which ``node`` and ``dst`` differ, see :func:`next_hop`.

    Raises
    ------
    ValueError
        If it is by a port that the dimension does not have.
    """
    base = 0
    for dim, (config, ports) in enumerate(zip(dims, dim_ports, strict=True)):
        mask, kind = config["mask"], DimKind(config["kind"])
        if node & mask != dst & mask:
            shift = (mask & -mask).bit_length() - 1
            own, target, size = (value >> shift for value in
                                 (node & mask, dst & mask, config["size"]))
            if kind is DimKind.UP:
                step = Step(dim, kind, 0)
            elif kind is DimKind.FULL:
                step = Step(dim, kind, target - (target > own), own=own, target=target)
            elif kind is DimKind.LINE:
                step = Step(dim, kind, int(target < own))
            else:
                up = (target - own) % size
                plus = 2 * up < size or (2 * up == size and (own + rail) % 2 == 0)
                ring = size > 2
                step = Step(dim, kind, int(not plus), ring, ring and plus != (target > own),
                            ring and own == (size - 1 if plus else 0))
            if step.port >= ports:
                raise ValueError(f"dimension {dim} has {ports} ports, and the way from {node:#x} "
                                 f"to {dst:#x} is by its port {step.port}")
            yield step._replace(port=base + step.port)
        base += ports


def next_hop(node: int, dst: int, in_port: int, in_lane: int, rail: int,
             dims: Sequence[Mapping[str, int]], *, dim_ports: Sequence[int] | None = None,
             lanes: int = 2, path: int = 0) -> tuple[int, tuple[int, ...]]:
    """Where a packet at ``node`` goes next: the reference model of dimension order.

    Parameters
    ----------
    node, dst : int
        Node ids.
    in_port, in_lane : int
        Port that the packet came in by (ports of the rails follow the link ports), and its lane.
    rail : int
        Rail of the packet.
    dims : sequence of mappings
        ``mask``, ``size`` and ``kind`` of each dimension, as in ``DimConfig``.
    dim_ports : sequence of int
        Ports per dimension, two each by default.
    lanes : int
        Lanes per class.
    path : int
        Of the header.

    Returns
    -------
    tuple
        The port it leaves by, and the lanes it may take there (a flow takes one of them).

    Raises
    ------
    ValueError
        If it is to leave by a port that the dimension does not have.
    """
    ports = (2,) * len(dims) if dim_ports is None else dim_ports
    return dimension_order(node, dst, in_port, rail, dims, ports, groups=lane_groups(lanes),
                           path=path, keep=in_lane)


def dimension_order(node: int, dst: int, in_port: int, rail: int,
                    dims: Sequence[Mapping[str, int]], dim_ports: Sequence[int], *,
                    groups: tuple[range, range], path: int = 0,
                    keep: int | None = None) -> tuple[int, tuple[int, ...]]:
    """:func:`next_hop` with the before lanes and after lanes given in ``groups``.

    A packet that is under way in a ring keeps its lane ``keep``, or, without it, takes a lane that
    follows from its place alone: after lanes where it has crossed the wrap link or never will.
    """
    before, after = groups
    every = range(max(before.stop, after.stop))
    step = next(steps(node, dst, rail, dims, dim_ports), None)
    if step is None:
        return sum(dim_ports) + rail, (0,)
    ports, base = dim_ports[step.dim], sum(dim_ports[:step.dim])
    within = base <= in_port < base + ports
    if step.ring:
        if keep is None:
            return step.port, tuple(before if step.crosses else after)
        if step.wraps:
            return step.port, tuple(after)
        if within:
            return step.port, (keep,)
        return step.port, tuple(before if step.crosses else every)
    if step.kind is DimKind.UP:
        return step.port, (0,)
    if step.kind is DimKind.FULL and ports > 2 and len(every) > 1:
        if within:
            return step.port, tuple(after)
        via, mask = path - 1, dims[step.dim]["mask"]
        nodes = dims[step.dim]["size"] // (mask & -mask)
        if 0 <= via < nodes and via not in (step.own, step.target):
            return base + via - (via > step.own), tuple(before)
    return step.port, tuple(every)


def route(node: int, dst: int, src: int, in_port: int, in_lane: int, rail: int,
          dims: Sequence[Mapping[str, int]], *, dim_ports: Sequence[int] | None = None,
          rails: int = 1, lanes: int = 2, path: int = 0) -> tuple[int, int]:
    """Return (port, lane) that the packet leaves by: :func:`next_hop` with its lane chosen.

    A rail that this node does not have is rail 0.
    """
    links = 2 * len(dims) if dim_ports is None else sum(dim_ports)
    port, allowed = next_hop(node, dst, in_port, in_lane, rail, dims, dim_ports=dim_ports,
                             lanes=lanes, path=path)
    return links if port >= links + rails else port, allowed[spread(src, dst, len(allowed))]


def channel_layout(params: RouterParams) -> data.StructLayout:
    """Layout of an output channel: a virtual channel of an output port."""
    return data.StructLayout({
        "vc": unsigned(params.link.vc_bits),
        "port": unsigned((params.ports - 1).bit_length()),
    })


def want_layout(params: RouterParams) -> data.StructLayout:
    """Layout of what a packet wants: the output channel of dimension order, and, if the router is
    adaptive, the ports by which it may go ahead."""
    channel = channel_layout(params)
    if not params.adaptive:
        return channel
    return data.StructLayout({
        **{name: channel[name].shape for name in ("vc", "port")},
        "ahead": params.links,
    })


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
    dst, src, rail, path, vc : inputs
        Fields of the header, and the virtual channel on which it came.
    want : ``Out(want_layout(params))``
        Where it may leave.
    """

    def __init__(self, params: RouterParams, port: int) -> None:
        self._params, self._port = params, port
        super().__init__({
            "routes": In(data.ArrayLayout(DimRoute, params.dims)),
            "valid": In(1),
            "dst": In(NODE_BITS),
            "src": In(NODE_BITS),
            "rail": In(3),
            "path": In(8),
            "vc": In(params.link.vc_bits),
            "want": Out(want_layout(params)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        lanes = link.vcs_per_class
        base, lane, chosen = Signal(link.vc_bits), Signal(link.vc_bits), Signal(link.vc_bits)
        mixed = Signal(NODE_BITS)

        # Everything is inside If: a simulator then pays for headers only.
        with m.If(self.valid):
            m.d.comb += mixed.eq(self.dst ^ self.src)
            for klass in range(1, link.classes):
                with m.If(self.vc >= klass * lanes):
                    m.d.comb += base.eq(klass * lanes)
            m.d.comb += [lane.eq(self.vc - base), self.want.vc.eq(base + chosen)]

            # At the destination, unless a dimension differs.
            m.d.comb += self.want.port.eq(params.links)
            for rail in range(1, params.rails):
                with m.If(self.rail == rail):
                    m.d.comb += self.want.port.eq(params.links + rail)
            # The last assignment wins: the first dimension that differs.
            for dim in reversed(range(params.dims)):
                self._dimension(m, dim, mixed, lane, chosen)
            if params.adaptive and max(params.dim_ports) > 2:
                # Who names a way has no other.
                with m.If(self.path != 0):
                    m.d.comb += self.want.ahead.eq(0)
        return m

    def _dimension(self, m: Module, dim: int, mixed, lane, chosen) -> None:
        params, here = self._params, self.routes[dim]
        lanes, ports, first = (params.link.vcs_per_class, params.dim_ports[dim],
                               params.port_base(dim))
        before, after = escape_groups() if params.adaptive else lane_groups(lanes)
        within = first <= self._port < first + ports
        to = Signal(NODE_BITS, name=f"to{dim}")
        port = Signal.like(self.want.port, name=f"port{dim}")
        ahead, inside, plus = (Signal(name=f"{name}{dim}") for name in ("ahead", "inside", "plus"))
        m.d.comb += to.eq(self.dst & here.mask)
        with m.If(to != here.own):
            m.d.comb += [
                ahead.eq(to > here.low),
                inside.eq(to <= here.limit[self.rail[0]]),
                plus.eq(Mux(here.round[self.rail[0]], ahead | inside, ahead & inside)),
                port.eq(first + ~plus if ports > 1 else first),
                self.want.port.eq(port),
                chosen.eq(pick(mixed, range(ESCAPE if params.adaptive else lanes))),
            ]
            if params.adaptive:
                with m.If(~here.up):
                    m.d.comb += self.want.ahead.bit_select(port, 1).eq(1)
            with m.If(here.ring):
                if params.adaptive:  # a lane by position alone, see ``adaptive``
                    m.d.comb += chosen.eq(Mux(plus != ahead, before.start, after.start))
                else:
                    if within:
                        m.d.comb += chosen.eq(lane)
                    else:
                        with m.If(plus != ahead):
                            m.d.comb += chosen.eq(pick(mixed, before))
                    with m.If(Mux(plus, here.top, here.bottom)):
                        m.d.comb += chosen.eq(pick(mixed, after))
            with m.Elif(here.up):
                m.d.comb += chosen.eq(0)
            if ports > 2:
                with m.Elif(here.full):
                    self._full(m, dim, mixed, to, port, chosen)

    def _full(self, m: Module, dim: int, mixed, to, port, chosen) -> None:
        """A full mesh of more ports than a line has: ports by the coordinates of the others."""
        params, here = self._params, self.routes[dim]
        lanes, first = params.link.vcs_per_class, params.port_base(dim)
        before, after = escape_groups() if params.adaptive else lane_groups(lanes)
        target, goal = (Signal(NODE_BITS, name=f"{name}{dim}") for name in ("target", "goal"))
        m.d.comb += [
            target.eq(to >> here.shift),
            goal.eq(target),
            port.eq(first + goal - (goal > here.coordinate)),
        ]
        if lanes == 1:
            return
        if first <= self._port < first + params.dim_ports[dim]:
            m.d.comb += chosen.eq(pick(mixed, after))
            return
        via = Signal(8, name=f"via{dim}")
        m.d.comb += via.eq(self.path - 1)
        with m.If((self.path != 0) & (via < here.size) & (via != here.coordinate)
                  & (via != target)):
            m.d.comb += [goal.eq(via), chosen.eq(pick(mixed, before))]
