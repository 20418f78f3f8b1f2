"""Adaptive routing: a packet takes any shortest way, by credits.

The lanes of a class are two *escape* lanes and, above them, *adaptive* ones. A packet at a node may
go ahead in every dimension in which node and destination differ, on any adaptive lane; uplinks have
none, since switches know one lane. Each cycle that the head of a packet waits, its input looks
anew:

* a port is *usable* for a class if one of its adaptive lanes is free and has credit, and *roomy* if
  one of these has at least half its buffer free;
* of the ports that lead ahead a roomy one is taken, else a usable one; of several the next one
  after that which this input took last;
* where none is left, the packet asks for its escape channel: the port of dimension order.

A packet from a local port takes roomy lanes alone. Rings of adaptive lanes then never fill up with
new packets: without this rule they do under load, and all that is left moves in the escape lanes.

Packets of one flow take different ways, so they may overtake each other. A packet that names its
way through a full mesh (``path``) has no choice and stays in escape lanes.

**Why it cannot deadlock** (Duato). Escape lanes are a network by themselves, with dimension order
and a lane that follows from the place alone: around a ring, *before* (lane 0) as long as the way
still crosses the wrap link, that link included, and *after* (lane 1) from there on or if it never
does; in a full mesh before and after as in ``route``; elsewhere any of the two. Order the escape
channels by dimension, in a ring before lanes from the first link on and then after lanes from the
first link on. Hops from escape to escape channel go up in this order.

Buffers hold several packets, one behind another, and that demands more than the order: a packet
that holds an escape channel while its head waits in an adaptive buffer behind a stranger would wait
for what the stranger wants, which may be anything. So a packet of several flits that came by an
escape lane stays in escape lanes; one of a single flit, which holds no channel but the slot it is
in, may return. Hence whoever holds an escape channel waits for later escape channels only: there
are no *indirect* dependencies, over adaptive lanes, at all. (They would rise as well: what a packet
has corrected stays so, in a ring it goes on in one direction, and places lie behind it for good.)
By induction from the last channel down, every escape channel is free again after some time. The
head in front of an adaptive buffer asks for its escape channel whenever there is nothing else, so
it moves on, and then what is behind it. Each hop is one on a shortest way: packets arrive.

Latency law: combinational from the fronts of the buffers to what they ask for. A hop takes as long
as on a computed route.
"""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import first_of, lowest_bit, one_hot_index
from hdl.fabric.buffer import front_layout
from hdl.fabric.lanes import ESCAPE, escape_groups
from hdl.fabric.route import channel_layout, dimension_order, steps, want_layout
from hdl.params import RouterParams
from hdl.ports import DimKind, ValidSignature

__all__ = ["AdaptiveInput", "OpenLanes", "adaptive_hops", "check_lanes"]


def check_lanes(lanes: int) -> None:
    """Refuse a class that has too few lanes.

    Raises
    ------
    ValueError
        If there is no adaptive lane.
    """
    if lanes <= ESCAPE:
        raise ValueError(f"adaptive routing needs at least {ESCAPE + 1} virtual channels per "
                         f"class, {ESCAPE} of them for escape, not {lanes}")


def adaptive_hops(node: int, dst: int, in_port: int, in_lane: int, rail: int,
                  dims: Sequence[Mapping[str, int]], *, dim_ports: Sequence[int] | None = None,
                  lanes: int, path: int = 0
                  ) -> tuple[tuple[int, ...], tuple[int, tuple[int, ...]]]:
    """Where a packet at ``node`` may go next: the reference model of adaptive routing.

    Parameters are those of ``route.next_hop``.

    Returns
    -------
    tuple
        The ports that lead ahead, on lanes ``range(ESCAPE, lanes)``; and the escape port with the
        lanes that may be taken there. A packet of several flits that came by an escape lane takes
        the latter alone.

    Raises
    ------
    ValueError
        If there are no adaptive lanes, or it is to leave by a port that a dimension does not have.
    """
    check_lanes(lanes)
    ports = (2,) * len(dims) if dim_ports is None else dim_ports
    escape = dimension_order(node, dst, in_port, rail, dims, ports, groups=escape_groups(),
                             path=path)
    if path and max(ports) > 2:
        return (), escape
    return tuple(step.port for step in steps(node, dst, rail, dims, ports)
                 if step.kind is not DimKind.UP), escape


class OpenLanes(wiring.Component):
    """What the outputs offer to heads that may choose.

    Members
    -------
    available, roomy, busy : ``In(vcs)`` per port
        Of an output: VCs with credit, with at least half their buffer free, held by a packet.
    usable, wide : ``Out(links)`` per class
        Link ports with an open adaptive lane, with a roomy one.
    lane : ``Out(data.ArrayLayout(vc_bits, links))`` per class
        The VC to take at each port.
    """

    def __init__(self, params: RouterParams) -> None:
        self._params = params
        links, link = params.links, params.link
        super().__init__({
            "available": In(link.vcs).array(links),
            "roomy": In(link.vcs).array(links),
            "busy": In(link.vcs).array(links),
            "usable": Out(links).array(link.classes),
            "wide": Out(links).array(link.classes),
            "lane": Out(data.ArrayLayout(unsigned(link.vc_bits), links)).array(link.classes),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        links, link = self._params.links, self._params.link
        for klass in range(link.classes):
            first = klass * link.vcs_per_class
            lanes = slice(first + ESCAPE, first + link.vcs_per_class)
            usable, wide = [], []
            for port in range(links):
                free, room = (Signal(link.vcs_per_class - ESCAPE, name=f"{name}{klass}_{port}")
                              for name in ("free", "room"))
                m.d.comb += [
                    free.eq(self.available[port][lanes] & ~self.busy[port][lanes]),
                    room.eq(free & self.roomy[port][lanes]),
                    self.lane[klass][port].eq(lanes.start + one_hot_index(
                        lowest_bit(Mux(room.any(), room, free)))),
                ]
                usable.append(free.any())
                wide.append(room.any())
            m.d.comb += [self.usable[klass].eq(Cat(usable)), self.wide[klass].eq(Cat(wide))]
        return m


class AdaptiveInput(wiring.Component):
    """Chooses the output channel of each packet at the front of one input port.

    Parameters
    ----------
    params : RouterParams
    port : int
        The input port.

    Members
    -------
    occupied, tail, front :
        Of the buffer, which holds ``want_layout``.
    usable, wide, lane : inputs
        Of :class:`OpenLanes`.
    choice : ``Out(data.ArrayLayout(front_layout(channel_layout(params)), vcs))``
        Of each VC, the output channel to ask for in this cycle, and whether as a head.
    pop : ``In(ValidSignature(unsigned(vc_bits)))``
        The VC whose front flit crosses: what it asked for is the channel of its packet from now on.
    """

    def __init__(self, params: RouterParams, port: int) -> None:
        check_lanes(params.link.vcs_per_class)
        self._params, self._port = params, port
        links, link = params.links, params.link
        super().__init__({
            "occupied": In(link.vcs),
            "tail": In(link.vcs),
            "front": In(data.ArrayLayout(front_layout(want_layout(params)), link.vcs)),
            "usable": In(links).array(link.classes),
            "wide": In(links).array(link.classes),
            "lane": In(data.ArrayLayout(unsigned(link.vc_bits), links)).array(link.classes),
            "choice": Out(data.ArrayLayout(front_layout(channel_layout(params)), link.vcs)),
            "pop": In(ValidSignature(unsigned(link.vc_bits))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, links, link = self._params, self._params.links, self._params.link
        local = self._port >= links
        taken = Signal(data.ArrayLayout(channel_layout(params), link.vcs))
        after = Signal(links)  # ports behind the one taken last
        for vc in range(link.vcs):
            klass, lane = divmod(vc, link.vcs_per_class)
            front, choice = self.front[vc], self.choice[vc]
            wide, open_ = (Signal(links, name=f"{name}{vc}") for name in ("wide", "open"))
            m.d.comb += [choice.head.eq(front.head), choice.channel.eq(taken[vc])]
            with m.If(self.occupied[vc] & front.head):
                m.d.comb += [choice.channel.vc.eq(front.channel.vc),
                             choice.channel.port.eq(front.channel.port),
                             wide.eq(front.channel.ahead & self.wide[klass])]
                if local:
                    m.d.comb += open_.eq(wide)
                else:
                    m.d.comb += open_.eq(
                        Mux(wide.any(), wide, front.channel.ahead & self.usable[klass]))
                chooses = open_.any()
                if not local and lane < ESCAPE:
                    chooses &= self.tail[vc]
                with m.If(chooses):
                    m.d.comb += [
                        choice.channel.port.eq(one_hot_index(first_of(open_, after))),
                        choice.channel.vc.eq(self.lane[klass][choice.channel.port]),
                    ]
        with m.If(self.pop.valid & self.front[self.pop.payload].head):
            channel = self.choice[self.pop.payload].channel
            m.d.sync += after.eq(-(2 << channel.port))
            m.d.sync += [taken[vc].eq(Mux(self.pop.payload == vc, channel, taken[vc]))
                         for vc in range(link.vcs)]
        return m
