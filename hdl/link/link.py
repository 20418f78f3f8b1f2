"""Link endpoint: one end of a link, where flits become link words and words become flits.

Both ends of every link are this block: a router's link port, a router's local port, a NIC's rail.

::

    send ──────────────┐                  ┌──────── rx pins
    tell (CreditReceiver) ─┴─► tx register ─► tx pins     ├─► receive (same cycle)
    free ─► CreditReceiver                └─► CreditSender ─► available

Latency law: a flit sent in cycle ``t`` is on the tx pins in ``t + 1``; a flit on the rx pins in
``t`` is at ``receive`` in ``t``. A credit freed in ``t`` is on the tx pins in ``t + 2`` at the
earliest, and one on the rx pins in ``t`` shows in ``available`` in ``t + 1``. Over a link of
latency L the credit round trip from tx pins to a send of the same credit is therefore
2 L + 3 cycles plus what the flit waits in the receive buffer.

Flow control: flits are sent only for VCs with credit (see ``credit``), so an arriving flit always
has room and ``receive`` needs no ready. Control rides in every word: totals never wait behind
flits. A word with neither flit nor changed total has strobe 0 and is all zero.

``LinkParams.reliable`` makes it an end of a link that survives bit errors (see ``reliable``), with
the same interface and, without errors, the same cycles. A plain link that loses its signal is dead
for good, since nobody knows what was on it; a reliable one starts again.
"""

from dataclasses import replace

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS, LinkFault, flit
from hdl.link.credit import CreditReceiver, CreditSender
from hdl.link.reliable import elaborate_reliable
from hdl.params import LinkParams
from hdl.ports import LinkSignature, ValidSignature

__all__ = ["LinkEndpoint"]


class LinkEndpoint(wiring.Component):
    """One end of a link.

    Parameters
    ----------
    params : LinkParams
    reserve : bool
        Charge credits through ``reserve`` instead of with the flit: for a sender that decides some
        cycles before it has the flit. Each reserved credit is followed by one flit of its VC.
    roomy : bool
        Have the output of that name.
    local : bool
        A link within a tile: wires that do not err nor break, so it is plain whatever ``params``
        say, and has none of the members from ``now`` on.

    Members
    -------
    link : ``Out(LinkSignature(params))``
        The pins. While ``up`` is low nothing is sent and words are ignored; ``up`` is taken
        through a register.
    send : ``In(ValidSignature(flit(params)))``
        A flit to transmit, offered only for a VC whose bit of ``available`` is set, or, with
        ``reserve``, whose credit was reserved. Ignored while the link does not run.
    available : ``Out(vcs)``
        VCs with credit, a function of registers; counts what was charged in earlier cycles. 0 while
        the link does not run.
    roomy : ``Out(vcs)``
        Only with ``roomy``: VCs with credit for at least half their depth, likewise.
    reserve : ``In(vcs)``
        Only with ``reserve``: bit ``v`` charges one flit to VC ``v``, whose bit of ``available``
        is set; at most one bit per cycle.
    receive : ``Out(ValidSignature(flit(params)))``
        The flit that arrived in this cycle, combinational from the pins. It must be stored.
    free : ``In(ValidSignature(unsigned(vc_bits)))``
        One flit has left the receive buffer of this VC in this cycle.
    idle : ``Out(1)``
        Nothing changes before ``wake``, an arriving word, or a change of an input.
    now : ``In(48)``
    wake : ``Out(48)``
        A function of registers.
    down : ``Out(1)``
        The link has failed: it ran and does not, or could not start. A register. It falls when the
        link runs again.
    fault : ``Out(LinkFault)``
        Why it is down; NONE while it is not.
    drained : ``In(1)``
        The receive buffers of this end are empty, and no flit with a reserved credit is on its way
        to ``send``. A link that was down runs again only from a cycle in which this holds.
    replays : ``Out(32)``
        Total of flits sent again.
    refused : ``Out(32)``
        Total of words refused because of their CRC.
    """

    def __init__(self, params: LinkParams, *, reserve: bool = False, roomy: bool = False,
                 local: bool = False) -> None:
        self._params, self._reserve, self._roomy = params, bool(reserve), bool(roomy)
        self._local = bool(local)
        members = {
            "link": Out(LinkSignature(params)),
            "send": In(ValidSignature(flit(params))),
            "available": Out(params.vcs),
            "receive": Out(ValidSignature(flit(params))),
            "free": In(ValidSignature(unsigned(params.vc_bits))),
            "idle": Out(1),
        }
        if reserve:
            members["reserve"] = In(params.vcs)
        if roomy:
            members["roomy"] = Out(params.vcs)
        if not local:
            members |= {
                "now": In(CYCLE_BITS),
                "wake": Out(CYCLE_BITS),
                "down": Out(1),
                "fault": Out(LinkFault),
                "drained": In(1),
                "replays": Out(32),
                "refused": Out(32),
            }
        super().__init__(members)

    @property
    def params(self) -> LinkParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        if self._params.reliable and not self._local:
            return elaborate_reliable(self, reserve=self._reserve, roomy=self._roomy)
        m = Module()
        params = replace(self._params, reliable=False)
        rx, tx = self.link.rx, self.link.tx
        # It follows the pin during reset, so that a tile out of reset is already settled.
        up = Signal(reset_less=True)
        if self._local:
            m.d.sync += up.eq(self.link.up)
        else:
            m.d.sync += up.eq(self.link.up & ~self.down)
            with m.If(up & ~self.link.up):
                m.d.sync += self.down.eq(1)
            m.d.comb += [self.fault.eq(Mux(self.down, LinkFault.SIGNAL, LinkFault.NONE)),
                         self.wake.eq((1 << CYCLE_BITS) - 1)]

        m.submodules.sender = sender = CreditSender(params, roomy=self._roomy)
        m.submodules.receiver = receiver = CreditReceiver(params)
        arrived, sending = Signal(), Signal()
        m.d.comb += [
            arrived.eq(rx.strobe & up),
            sending.eq(self.send.valid & up),
            receiver.free.eq(self.free.valid << self.free.payload),
            receiver.told.eq(receiver.tell.valid & up),
            sender.learn.valid.eq(arrived & rx.credit),
            sender.learn.payload.vc.eq(rx.credit_vc),
            sender.learn.payload.freed.eq(rx.freed),
            self.available.eq(Mux(up, sender.available, 0)),
            self.receive.valid.eq(arrived & rx.valid),
            self.receive.payload.payload.eq(rx.payload),
            self.receive.payload.head.eq(rx.head),
            self.receive.payload.tail.eq(rx.tail),
            self.receive.payload.poison.eq(rx.poison),
            self.receive.payload.vc.eq(rx.vc),
            self.idle.eq(~(tx.strobe | receiver.told)),
        ]
        if self._roomy:
            m.d.comb += self.roomy.eq(Mux(up, sender.roomy, 0))
        if self._reserve:
            m.d.comb += sender.charge.eq(self.reserve)
        else:
            m.d.comb += sender.charge.eq(sending << self.send.payload.vc)

        m.d.sync += tx.eq(0)
        with m.If(sending):
            m.d.sync += [
                tx.strobe.eq(1),
                tx.valid.eq(1),
                tx.payload.eq(self.send.payload.payload),
                tx.head.eq(self.send.payload.head),
                tx.tail.eq(self.send.payload.tail),
                tx.poison.eq(self.send.payload.poison),
                tx.vc.eq(self.send.payload.vc),
            ]
        with m.If(receiver.told):
            m.d.sync += [
                tx.strobe.eq(1),
                tx.credit.eq(1),
                tx.credit_vc.eq(receiver.tell.payload.vc),
                tx.freed.eq(receiver.tell.payload.freed),
            ]
        return m
