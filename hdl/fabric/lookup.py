"""Look-up of routes: a route table in front of the computed route.

Where a level of the table matches (see ``table``), its entry says by which port a packet leaves,
and the computed route says it elsewhere. A packet for this very node leaves at the local port of
its rail, whatever the table says.

An entry may fix the lane. If it does not, a packet keeps the lane on which it came; from a local
port it takes any lane of its class, by the hash of source and destination. So a table that needs no
order of lanes (up and down a tree) says nothing of them, and one that does (around a ring) has
entries per input port. A port to a switch needs lane 0. That no cycle of channels exists is the
business of who writes the table: :func:`table_route` is the model for checking it. A table decides
alone: an adaptive router chooses nothing for packets that match.

Latency law: combinational, as ``Route``.
"""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.lanes import pick
from hdl.fabric.route import Route, want_layout
from hdl.fabric.shape import DimRoute
from hdl.fabric.table import RouteTable, table_index
from hdl.layouts import NODE_BITS, RouteWrite
from hdl.params import RouterParams
from hdl.ports import ValidSignature

__all__ = ["TableRoute", "table_route"]


def table_route(node: int, dst: int, in_port: int, in_lane: int, rail: int,
                levels: Sequence[Mapping[str, int]],
                entries: Mapping[tuple[int, int], Mapping[str, int]], *, table_bits: int,
                links: int, lanes: int = 2) -> tuple[int, tuple[int, ...]] | None:
    """Where a table sends a packet: the reference model, beside ``next_hop`` of computed routes.

    Parameters
    ----------
    node, dst, in_port, in_lane, rail
        As for ``next_hop``.
    levels
        Valid levels of the table, ``mask``, ``value`` and ``shift`` of each.
    entries
        ``port``, ``lane`` and ``fixed`` by (level, index), as the table of ``in_port`` has them.
    table_bits, links, lanes : int
        Of the router: index bits, link ports, lanes per class.

    Returns
    -------
    tuple or None
        The port it leaves by and the lanes it may take there; ``None`` where no level matches.

    Raises
    ------
    ValueError
        If an entry is missing.
    """
    if node == dst:
        return links + rail, (0,)
    place = table_index(dst, levels, table_bits)
    if place is None:
        return None
    if place not in entries:
        raise ValueError(f"node {node:#x} has no entry {place[1]} in level {place[0]} of its route "
                         f"table, which {dst:#x} needs")
    entry = entries[place]
    if entry["fixed"]:
        return entry["port"], (entry["lane"],)
    return entry["port"], (in_lane,) if in_port < links else tuple(range(lanes))


class TableRoute(wiring.Component):
    """Route table and computed route of one input port.

    Parameters
    ----------
    params : RouterParams
    port : int
        The input port.

    Members
    -------
    table : ``In(ValidSignature(RouteWrite))``
        A write to the table, from registers.
    own : ``In(16)``
        Node id.
    routes, valid, dst, src, rail, path, vc, want :
        As of ``Route``.
    """

    def __init__(self, params: RouterParams, port: int) -> None:
        self._params, self._port = params, port
        super().__init__({
            "table": In(ValidSignature(RouteWrite)),
            "own": In(NODE_BITS),
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
        m.submodules.computed = computed = Route(params, self._port)
        m.submodules.table = table = RouteTable(params.table_bits, input_port=self._port)
        m.d.comb += [
            table.write.valid.eq(self.table.valid),
            table.write.payload.eq(self.table.payload),
            table.valid.eq(self.valid),
            table.dst.eq(self.dst),
            self.want.eq(computed.want),
            *(getattr(computed, name).eq(getattr(self, name))
              for name in ("routes", "valid", "dst", "src", "rail", "path", "vc")),
        ]
        base = Signal(link.vc_bits)
        with m.If(self.valid):
            for klass in range(1, link.classes):
                with m.If(self.vc >= klass * lanes):
                    m.d.comb += base.eq(klass * lanes)
            with m.If(table.match & (self.dst != self.own)):
                m.d.comb += self.want.port.eq(table.choice.port)
                with m.If(table.choice.fixed):
                    m.d.comb += self.want.vc.eq(base + table.choice.lane)
                if self._port < params.links:
                    with m.Else():
                        m.d.comb += self.want.vc.eq(self.vc)
                else:
                    with m.Else():
                        m.d.comb += self.want.vc.eq(
                            base + pick(self.dst ^ self.src, range(lanes)))
                if params.adaptive:
                    m.d.comb += self.want.ahead.eq(0)
        return m
