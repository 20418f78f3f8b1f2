"""Link port: a link endpoint as routers and switches have it, which outlives the death of its link.

::

    send ──┬──► endpoint ◄──► pins
           └──► mirror ──┐       │
                         ├──► receive
                         └───────┘

While the link runs the port is its endpoint. When the link goes down, the port closes the packets
that the link cut short, each with a poisoned tail, and turns around what is sent on it: see
``mirror``. So nothing that is on its way over a dead link stays in the fabric.

A reliable link may come back. Its endpoint may let ``down`` fall in the cycle after one in which it
was told ``drained``: the receive buffers of this port are empty, nothing is in the mirror or on its
way to it, and no packet has been sent in part. Traffic on the dead port delays that; the mirror
takes flits one at a time while there is a signal, so gaps between packets are enough.

Latency law: that of the endpoint (see ``link``) while the link runs, of ``mirror`` while it is
down. ``down`` changes only between two states of a register.

Flow control: ``free`` and what is received are counted per VC, so that a flit of the mirror's own
making enters a receive buffer only where it has room. The counts start again with the link: both
ends are empty then.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.layouts import CYCLE_BITS, NODE_BITS, LinkStatus, flit
from hdl.link.link import LinkEndpoint
from hdl.link.mirror import Mirror
from hdl.params import LinkParams
from hdl.ports import LinkSignature, ValidSignature

__all__ = ["LinkPort"]


class LinkPort(wiring.Component):
    """One link port of a router or switch.

    Parameters
    ----------
    params : LinkParams
    index : int or Value
        Number of the port in its node; a register where equal ports are to be one module.
    roomy : bool
        Have the output of that name.

    Members
    -------
    now : ``In(48)``
    node : ``In(16)``
        Id of the node, from a register.
    link, reserve, send, available, receive, free, idle :
        Those of ``LinkEndpoint`` with ``reserve``. At most one bit of ``reserve`` is set, and its
        flit follows within ``mirror.FLIGHT`` cycles.
    roomy : ``Out(vcs)``
        Only with ``roomy``: that of ``LinkEndpoint``.
    status : ``Out(LinkStatus)``
    wake : ``Out(48)``
    """

    def __init__(self, params: LinkParams, *, index: int | Value,
                 roomy: bool = False) -> None:
        if isinstance(index, int) and not 0 <= index < 256:
            raise ValueError(f"index must be from 0 to 255, not {index!r}")
        self._params, self._index, self._roomy = params, index, bool(roomy)
        members = {
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "link": Out(LinkSignature(params)),
            "reserve": In(params.vcs),
            "send": In(ValidSignature(flit(params))),
            "available": Out(params.vcs),
            "receive": Out(ValidSignature(flit(params))),
            "free": In(ValidSignature(unsigned(params.vc_bits))),
            "status": Out(LinkStatus),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
        }
        if roomy:
            members["roomy"] = Out(params.vcs)
        super().__init__(members)

    @property
    def params(self) -> LinkParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        m.submodules.endpoint = endpoint = LinkEndpoint(
            params, reserve=True, roomy=self._roomy)
        m.submodules.mirror = mirror = Mirror(params, index=self._index)
        connect(m, endpoint.link, wiring.flipped(self.link))
        connect(m, wiring.flipped(self.send), endpoint.send)
        connect(m, wiring.flipped(self.free), endpoint.free)
        connect(m, wiring.flipped(self.send), mirror.send)
        connect(m, endpoint.receive, mirror.arrived)
        connect(m, mirror.receive, wiring.flipped(self.receive))
        down = endpoint.down
        empty = self._occupancy(m, endpoint, mirror)
        m.d.comb += [
            endpoint.now.eq(self.now),
            endpoint.reserve.eq(self.reserve),
            mirror.node.eq(self.node),
            mirror.down.eq(down),
            mirror.reserve.eq(self.reserve),
            self.available.eq(endpoint.available),
            self.status.down.eq(down),
            self.status.fault.eq(endpoint.fault),
            self.status.replays.eq(endpoint.replays),
            self.idle.eq(endpoint.idle & mirror.idle),
            self.wake.eq(endpoint.wake),
        ]
        with m.If(down):
            m.d.comb += self.available.eq(mirror.available)
        if self._roomy:
            m.d.comb += self.roomy.eq(Mux(down, mirror.available, endpoint.roomy))
        if params.reliable:
            present, partial = Signal(reset_less=True), self._partial(m)
            m.d.sync += present.eq(self.link.up)
            m.d.comb += [
                mirror.present.eq(present),
                endpoint.drained.eq(empty & mirror.empty & ~partial.any()),
            ]
        return m

    def _occupancy(self, m: Module, endpoint, mirror):
        """Tell the mirror which VCs have room and which a packet that is not over; return whether
        all buffers are empty."""
        params = self._params
        # The totals of all VCs in one word: one addition serves whichever VC it is. What is held
        # follows from them where it is asked for, while the link is down.
        width = params.total_bits
        totals = data.ArrayLayout(unsigned(width), params.vcs)
        came, went, open_ = Signal(totals), Signal(totals), Signal(params.vcs)
        comes, own, last = self.receive, mirror.own, Signal.like(open_)

        def one_more(counts, vc):
            return [counts[index].eq(counts[index] + (vc == index)) for index in range(params.vcs)]

        # The mirror's own packets are not the link's: they are never cut.
        with m.If(comes.valid):
            m.d.comb += last.eq(1 << comes.payload.vc)
            m.d.sync += [one_more(came, comes.payload.vc),
                         open_.eq(open_ & ~last | Mux(comes.payload.tail, 0, last))]
        with m.If(self.free.valid):
            m.d.sync += one_more(went, self.free.payload)
        m.d.comb += mirror.open.eq(open_)
        with m.If(endpoint.down):
            m.d.comb += mirror.room.eq(Cat(
                (came[vc] - went[vc] + (own.valid & (own.payload == vc)))[:width]
                != params.vc_depth for vc in range(params.vcs)))
            m.d.sync += open_.eq(open_ & ~mirror.closes)
        return (came == went) & (open_ == 0) & ~comes.valid

    def _partial(self, m: Module) -> Signal:
        """VCs of which a packet has been sent in part."""
        sent, partial = self.send.payload, Signal(self._params.vcs)
        bit = Signal.like(partial)
        with m.If(self.send.valid):
            m.d.comb += bit.eq(1 << sent.vc)
            m.d.sync += partial.eq(partial & ~bit | (~sent.tail).replicate(len(bit)) & bit)
        return partial
