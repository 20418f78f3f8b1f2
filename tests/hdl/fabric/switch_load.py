"""Traffic at clock speed around a switch: a generator and a sink in RTL at every port."""

from functools import reduce
from operator import add

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.switch import Switch
from hdl.layouts import RouteWrite
from hdl.link.link import LinkEndpoint
from hdl.params import SwitchParams
from hdl.ports import ValidSignature

__all__ = ["SwitchLoad"]


class SwitchLoad(wiring.Component):
    """A switch under load: every port always has a packet for a random port.

    Members
    -------
    table : ``In(ValidSignature(RouteWrite))``
        Destination ``n`` must lead to port ``n`` before ``on``.
    on : ``In(1)``
        Packets may start.
    length : ``In(8)``
        Flits per packet.
    mixed : ``In(1)``
        Packets are of class 0 or 1 at random, rather than of class 0.
    hot : ``In(radix)``
        Ports that send every other packet to port 0. If there are any, the others send it none.
    hold : ``In(1)``
        Sinks take flits but free none, so that all buffers fill up.
    clear : ``In(1)``
        Forget what was delivered.
    sent, delivered : ``Out(32)``
        Flits since the last clear.
    fewest : ``Out(32)``
        Of ``delivered``, what the output with the fewest got.
    hottest, clean, victims : ``Out(32)``
        Of ``delivered``: what port 0 got, what came from ports that are not hot, and what came
        from hot ones to other ports than 0.
    served : ``Out(1)``
        Every output has had a packet from every input since the last clear.
    wrong : ``Out(1)``
        A flit has come to another port than its own, or its packet was broken up; stays set.
    idle : ``Out(1)``
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__({
            "table": In(ValidSignature(RouteWrite)),
            "on": In(1), "length": In(8), "mixed": In(1), "hold": In(1),
            "hot": In(params.radix), "clear": In(1),
            "hottest": Out(32), "clean": Out(32), "victims": Out(32),
            "sent": Out(32), "delivered": Out(32), "fewest": Out(32), "served": Out(1),
            "wrong": Out(1), "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        ports, lanes = range(params.radix), self._params.link.vcs_per_class
        m.submodules.switch = switch = Switch(params)
        wiring.connect(m, wiring.flipped(self.table), switch.table)
        sends, counts, warms, served, wrong = [], [], [], [], []
        for port in ports:
            m.submodules[f"peer{port}"] = peer = LinkEndpoint(link)
            pins = switch.links[port]
            m.d.comb += [pins.rx.eq(peer.link.tx), peer.link.rx.eq(pins.tx),
                         pins.up.eq(1), peer.link.up.eq(1)]

            # xorshift32
            state = Signal(32, init=0x9E3779B9 * (port + 1) & 0xFFFFFFFF, name=f"state{port}")
            one, two = Signal(32, name=f"one{port}"), Signal(32, name=f"two{port}")
            m.d.comb += [one.eq(state ^ state << 13), two.eq(one ^ one >> 17)]
            m.d.sync += state.eq(two ^ two << 5)

            left, packet = Signal(8, name=f"left{port}"), Signal(32, name=f"packet{port}")
            held_to, to = (Signal(params.port_bits, name=f"{n}{port}") for n in ("held_to", "to"))
            anywhere, elsewhere = (Signal(params.port_bits, name=f"{n}{port}")
                                   for n in ("anywhere", "elsewhere"))
            held_second, second = (Signal(name=f"{n}{port}") for n in ("held_second", "second"))
            send, head, tail = peer.send, Signal(name=f"head{port}"), Signal(name=f"tail{port}")
            m.d.comb += [
                head.eq(left == 0),
                tail.eq(Mux(head, self.length == 1, left == 1)),
                anywhere.eq((state[:16] * params.radix)[16:]),
                elsewhere.eq(1 + (state[:16] * (params.radix - 1))[16:]),
                to.eq(Mux(head, Mux(self.hot[port], Mux(state[17], 0, anywhere),
                                    Mux(self.hot.any(), elsewhere, anywhere)), held_to)),
                second.eq(Mux(head, self.mixed & state[16], held_second)),
                send.valid.eq((self.on | ~head) & Mux(
                    second, peer.available[lanes * (link.classes > 1)], peer.available[0])),
                send.payload.head.eq(head),
                send.payload.tail.eq(tail),
                send.payload.vc.eq(Mux(second, lanes, 0)),
                # Destination and source where a header has them.
                send.payload.payload.eq(Cat(to | Signal(16), Signal(16) | port, packet)),
            ]
            with m.If(send.valid):
                m.d.sync += [left.eq(Mux(head, self.length - 1, left - 1)), held_to.eq(to),
                             held_second.eq(second), packet.eq(packet + tail)]
            sends.append(send.valid)

            got, flit = peer.receive.valid, peer.receive.payload
            kept = Signal(data.ArrayLayout(16, link.classes), name=f"kept{port}")
            for klass in range(link.classes):
                vc = klass * lanes
                freed = peer.free.valid & (peer.free.payload == vc)
                m.d.sync += kept[klass].eq(kept[klass] + (got & (flit.vc == vc)) - freed)
                with m.If(kept[klass].any() & ~self.hold):
                    m.d.comb += [peer.free.valid.eq(1), peer.free.payload.eq(vc)]
            count, warm = (Signal(32, name=f"{name}{port}") for name in ("count", "warm"))
            sources = Signal(params.radix, name=f"sources{port}")
            bad = Signal(name=f"bad{port}")
            with m.If(got):
                source = flit.payload[16:32]
                m.d.sync += [count.eq(count + 1), sources.eq(sources | 1 << source[:6])]
                m.d.sync += warm.eq(warm + (self.hot >> source[:6])[0])
                with m.If(flit.payload[:16] != port):
                    m.d.sync += bad.eq(1)
            for vc in range(0, link.vcs, lanes):
                within = Signal(name=f"within{port}_{vc}")
                last = Signal(48, name=f"last{port}_{vc}")
                with m.If(got & (flit.vc == vc)):
                    m.d.sync += [within.eq(~flit.tail), last.eq(flit.payload[16:64])]
                    # A flit of the open packet, or the head of another one.
                    with m.If((flit.head == within)
                              | within & (last != flit.payload[16:64])):
                        m.d.sync += bad.eq(1)
            with m.If(self.clear):
                m.d.sync += [count.eq(0), warm.eq(0), sources.eq(0)]
            counts.append(count)
            warms.append(warm)
            served.append(sources.all())
            wrong.append(bad)

        fewest = counts[0]
        for index, count in enumerate(counts[1:]):
            lower = Signal(32, name=f"lower{index}")
            m.d.comb += lower.eq(Mux(count < fewest, count, fewest))
            fewest = lower
        sent = Signal(32)
        m.d.sync += sent.eq(Mux(self.clear, 0, sent + reduce(add, sends)))
        m.d.sync += [
            self.fewest.eq(fewest), self.delivered.eq(reduce(add, counts)),
            self.hottest.eq(counts[0]), self.victims.eq(reduce(add, warms[1:])),
            self.clean.eq(reduce(add, counts) - reduce(add, warms))]
        m.d.comb += [self.sent.eq(sent), self.served.eq(Cat(served).all()),
                     self.wrong.eq(Cat(wrong).any()), self.idle.eq(switch.idle)]
        return m
