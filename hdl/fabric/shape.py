"""Shape: what a router knows of its place in the fabric, prepared for routing.

A node id packs one coordinate field per dimension. All arithmetic is on the fields in place, so
that comparing a destination needs no shift, and what depends on the configuration alone is computed
once: the coordinates that a packet reaches by the first port of a dimension are those in an
interval, and a destination needs two comparisons with its ends.

=====  ==================================================================
line   from the own coordinate on upwards
ring   from the own coordinate on to ``limit``, half way round
full   the lowest other coordinate alone (further ports: by subtraction)
up     all
=====  ==================================================================

Latency law: ``routes`` follows the inputs two cycles later, during reset too, so that a router out
of reset is settled.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS
from hdl.params import RouterParams
from hdl.ports import DimConfig, DimKind

__all__ = ["DimRoute", "RouteConfig"]


class DimRoute(data.Struct):
    """One dimension as :class:`~hdl.fabric.route.Route` uses it. Values are in place, but for
    ``coordinate`` and ``size``."""

    mask: NODE_BITS
    own: NODE_BITS
    #: A destination ``to`` is reached by the first port if ``to > low`` and ``to <= limit``; with
    #: ``round``, one of the two is enough. For packets of even and of odd rails.
    low: NODE_BITS
    limit: data.ArrayLayout(NODE_BITS, 2)
    round: data.ArrayLayout(1, 2)
    #: A ring of more than two nodes: it has a dateline.
    ring: 1
    full: 1
    up: 1
    #: Own coordinate is the last one, the first one.
    top: 1
    bottom: 1
    #: Position of the field in a node id, own coordinate, and number of nodes.
    shift: 4
    coordinate: NODE_BITS
    size: NODE_BITS + 1


class RouteConfig(wiring.Component):
    """Registers for the configuration, and all that follows from it alone.

    They are not reset but follow their inputs during reset. The inputs must not change while there
    is traffic.

    Members
    -------
    node : ``In(16)``
    dims : ``In(data.ArrayLayout(DimConfig, dims))``
    own : ``Out(16)``
        The node id, from a register.
    routes : ``Out(data.ArrayLayout(DimRoute, dims))``
    """

    def __init__(self, params: RouterParams) -> None:
        self._params = params
        super().__init__({
            "node": In(NODE_BITS),
            "dims": In(data.ArrayLayout(DimConfig, params.dims)),
            "own": Out(NODE_BITS),
            "routes": Out(data.ArrayLayout(DimRoute, params.dims)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = data.StructLayout({
            "node": NODE_BITS, "dims": data.ArrayLayout(DimConfig, self._params.dims)})
        taken, used = Signal(layout, reset_less=True), Signal(layout, reset_less=True)
        routes = Signal(data.ArrayLayout(DimRoute, self._params.dims), reset_less=True)
        m.d.sync += [taken.node.eq(self.node), taken.dims.eq(self.dims), used.eq(taken)]
        m.d.comb += [self.routes.eq(routes), self.own.eq(used.node)]
        # A configuration that stays needs no work.
        changed = Signal()
        m.d.comb += changed.eq(taken.as_value() != used.as_value())
        for dim in range(self._params.dims):
            with m.If(changed):
                self._prepare(m, taken.node, taken.dims[dim], routes[dim], str(dim))
        return m

    def _prepare(self, m: Module, node, config, result, name: str) -> None:
        def signal(what: str, width: int = NODE_BITS) -> Signal:
            return Signal(width, name=f"{what}{name}")

        unit, own, shift = signal("unit"), signal("own"), signal("shift", 4)
        wrap, line = signal("wrap", 1), signal("line", 1)
        m.d.comb += [
            wrap.eq(config.kind == DimKind.RING),
            line.eq(wrap | (config.kind == DimKind.LINE)),
            unit.eq(config.mask & -config.mask),
            own.eq(node & config.mask),
        ]
        for bit in range(NODE_BITS):
            with m.If(unit[bit]):
                m.d.comb += shift.eq(bit)
        m.d.sync += [
            result.mask.eq(config.mask),
            result.own.eq(own),
            result.low.eq(Mux(line, own, config.mask)),
            result.ring.eq(wrap & (config.size != unit << 1)),
            result.full.eq(config.kind == DimKind.FULL),
            result.up.eq(config.kind == DimKind.UP),
            result.top.eq(own + unit == config.size),
            result.bottom.eq(own == 0),
            result.shift.eq(shift),
            result.coordinate.eq(own >> shift),
            result.size.eq(config.size >> shift),
        ]
        for parity in range(2):
            half, limit = signal(f"half{parity}_"), signal(f"limit{parity}_", NODE_BITS + 2)
            around = signal(f"around{parity}_", 1)
            tie = (config.size & unit) == 0
            odd = (own & unit).any() ^ parity
            m.d.comb += [
                half.eq((config.size >> 1 & config.mask) - Mux(tie & odd, unit, 0)),
                limit.eq(own + half),
                around.eq(wrap & (limit >= config.size)),
            ]
            m.d.sync += result.round[parity].eq(around | ~line)
            with m.If(wrap):
                m.d.sync += result.limit[parity].eq(Mux(around, limit - config.size, limit))
            with m.Elif(config.kind == DimKind.FULL):
                m.d.sync += result.limit[parity].eq(Mux(own == 0, unit, 0))
            with m.Else():
                m.d.sync += result.limit[parity].eq(config.mask)
