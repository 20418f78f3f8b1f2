"""The tiles of a card: what the engine instantiates and what an FPGA gets.

``NetworkTile`` is NIC and router, ``ComputeTile`` the GEMM engine; ``Card`` joins the two, which
meet at two registered streams. The engine runs the two tiles apart, so that a sleeping array costs
nothing while the network works, and the other way round.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from .compute.tile import ComputeTile
from .connect import connect
from .fabric.router import Router
from .layouts import ADDRESS_BITS, CYCLE_BITS, NODE_BITS
from .nic.nic import Nic
from .params import CardParams
from .ports import (
    ConfigSignature,
    HostSignature,
    LinkSignature,
    MemoryReadSignature,
    MemoryWriteSignature,
    NetworkSignature,
    RailMemorySignature,
)

__all__ = ["Card", "ComputeTile", "NetworkTile"]


class NetworkTile(wiring.Component):
    """NIC and router of a card, joined by one local port per rail.

    Parameters
    ----------
    params : CardParams

    Members: see :class:`~hdl.ports.NetworkSignature`.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        super().__init__(NetworkSignature(params))

    @property
    def params(self) -> CardParams:
        return self._params

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.nic = nic = Nic(params)
        m.submodules.router = router = Router(params.router)

        # Configuration passes through registers (the router has its own), so that a simulator does
        # not propagate it anew every cycle. They have no reset: they settle while it lasts.
        node = Signal(NODE_BITS, reset_less=True)
        memory_bytes = Signal(ADDRESS_BITS + 1, reset_less=True)
        m.d.sync += [node.eq(self.config.node), memory_bytes.eq(self.config.memory_bytes)]
        m.d.comb += [nic.now.eq(self.now), nic.node.eq(node), nic.memory_bytes.eq(memory_bytes),
                     router.node.eq(self.config.node), router.dims.eq(self.config.dims),
                     router.now.eq(self.now), nic.status.eq(router.status),
                     self.activity.commands.eq(nic.commands), self.activity.queues.eq(nic.queues),
                     self.activity.starved.eq(router.starved)]
        if params.router.table_bits:
            connect(m, nic.table, router.table)

        for index in range(params.router.links):
            connect(m, router.links[index], flipped(self.links[index]))
        for index in range(params.rails):
            m.d.comb += [
                nic.locals[index].rx.eq(router.locals[index].tx), nic.locals[index].up.eq(1),
                router.locals[index].rx.eq(nic.locals[index].tx), router.locals[index].up.eq(1)]
            m.d.comb += self.activity.rails[index].eq(nic.activity[index])
            connect(m, nic.memory[index].tx_read, flipped(self.memory[index].tx_read))
            connect(m, nic.memory[index].rx_read, flipped(self.memory[index].rx_read))
            connect(m, nic.memory[index].write, flipped(self.memory[index].write))
        connect(m, nic.host, flipped(self.host))
        connect(m, nic.gemm, flipped(self.gemm))
        connect(m, nic.done, flipped(self.done))
        m.d.comb += [self.idle.eq(nic.idle & router.idle),
                     self.wake.eq(Mux(nic.wake < router.wake, nic.wake, router.wake))]
        return m


class Card(wiring.Component):
    """A whole card: network and compute tiles, for an FPGA top or a testbench.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    now, config, links, host, memory : as of the network tile
    compute_read, compute_write : memory ports of the compute tile
    idle, wake : of both tiles together
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        flit_bytes = params.link.flit_bytes
        super().__init__({
            "now": In(CYCLE_BITS),
            "config": In(ConfigSignature(params.router)),
            "links": Out(LinkSignature(params.link)).array(params.router.links),
            "host": Out(HostSignature()),
            "memory": Out(RailMemorySignature(flit_bytes)).array(params.rails),
            "compute_read": Out(MemoryReadSignature(flit_bytes)).array(params.compute.read_ports),
            "compute_write": Out(MemoryWriteSignature(flit_bytes)),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
        })

    @property
    def params(self) -> CardParams:
        return self._params

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.network = network = NetworkTile(params)
        m.submodules.compute = compute = ComputeTile(params)
        m.d.comb += [
            network.now.eq(self.now), compute.now.eq(self.now),
            network.config.node.eq(self.config.node), network.config.dims.eq(self.config.dims),
            network.config.memory_bytes.eq(self.config.memory_bytes),
            compute.memory_bytes.eq(self.config.memory_bytes)]
        for index in range(params.router.links):
            connect(m, network.links[index], flipped(self.links[index]))
        for index in range(params.rails):
            for name in ("tx_read", "rx_read", "write"):
                connect(m, getattr(network.memory[index], name),
                        flipped(getattr(self.memory[index], name)))
        connect(m, network.host, flipped(self.host))
        connect(m, network.gemm, compute.gemm)
        connect(m, compute.done, network.done)
        for index in range(params.compute.read_ports):
            connect(m, compute.read[index], flipped(self.compute_read[index]))
        connect(m, compute.write, flipped(self.compute_write))
        moving = Signal()
        m.d.comb += [
            moving.eq(network.gemm.valid & network.gemm.ready
                      | compute.done.valid & compute.done.ready),
            self.idle.eq(network.idle & compute.idle & ~moving),
            self.wake.eq(Mux(network.wake < compute.wake, network.wake, compute.wake)),
        ]
        return m
