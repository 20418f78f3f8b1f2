"""The tile of a traffic node: the router of a card, with a generator and a checker in place of its
NIC.

::

    host port ──► registers ─┬─► generator ──► endpoint ──► local port 0 ─┐
                             └─► checker  ◄── endpoint ◄── local port 0 ◄─┤
                                                                       router ── link ports

**Latency law.** A packet of one flit that crosses ``h`` links of latency ``L`` without meeting
another one has a latency of h · (3 + L) + 4 cycles, from its creation to the checker: one to the
local port's pins, and three for each of the h + 1 routers. A further flit adds one.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from hdl.connect import connect
from hdl.fabric.router import Router
from hdl.layouts import NODE_BITS
from hdl.link.link import LinkEndpoint
from hdl.params import TrafficParams
from hdl.ports import TrafficSignature

from .checker import Checker
from .generator import Generator
from .host import HostPort
from .registers import TrafficRegisters

__all__ = ["TrafficTile"]


class TrafficTile(wiring.Component):
    """A node of traffic.

    Parameters
    ----------
    params : TrafficParams

    Members: see :class:`~hdl.ports.TrafficSignature`. Its registers are
    :class:`~hdl.traffic.registers.TrafficRegisters`.
    """

    def __init__(self, params: TrafficParams) -> None:
        self._params = params
        super().__init__(TrafficSignature(params))

    @property
    def params(self) -> TrafficParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        registers = TrafficRegisters(params)
        m.submodules.router = router = Router(params.router)
        m.submodules.endpoint = endpoint = LinkEndpoint(link, local=True)
        m.submodules.host = host = HostPort(registers)
        m.submodules.generator = generator = Generator(link, registers)
        m.submodules.checker = checker = Checker(link, registers, bins=params.bins,
                                                 ordered=not params.router.adaptive)

        # Constant in use: taken through a register, without reset, so that it settles while it
        # lasts.
        node = Signal(NODE_BITS, reset_less=True)
        m.d.sync += node.eq(self.config.node)
        m.d.comb += [router.now.eq(self.now), router.node.eq(self.config.node),
                     router.dims.eq(self.config.dims)]
        for pins, port in zip(self.links, router.links, strict=True):
            connect(m, port, flipped(pins))
        m.d.comb += [
            endpoint.link.rx.eq(router.locals[0].tx), endpoint.link.up.eq(1),
            router.locals[0].rx.eq(endpoint.link.tx), *(port.up.eq(1) for port in router.locals)]

        connect(m, host.host, flipped(self.host))
        connect(m, host.write, generator.write)
        connect(m, host.write, checker.write)
        connect(m, generator.send, endpoint.send)
        connect(m, endpoint.receive, checker.receive)
        connect(m, generator.sent, host.sent)
        connect(m, checker.received, host.received)
        m.d.comb += [
            generator.available.eq(endpoint.available),
            endpoint.free.valid.eq(endpoint.receive.valid),
            endpoint.free.payload.eq(endpoint.receive.payload.vc),
            generator.now.eq(self.now), checker.now.eq(self.now),
            generator.node.eq(node), checker.node.eq(node), host.node.eq(node),
            host.next.eq(generator.next),
            checker.read.eq(host.read_bin), host.bin.eq(checker.bin),
            self.idle.eq(router.idle & endpoint.idle & host.idle & generator.idle & checker.idle),
            self.wake.eq(self._earlier(generator.wake, router.wake)),
            self.activity.starved.eq(router.starved),
        ]
        return m

    def _earlier(self, generator: Signal, router: Signal) -> Value:
        """The router has deadlines of its own only if its links have."""
        if not self._params.link.reliable:
            return generator
        return Mux(generator < router, generator, router)
