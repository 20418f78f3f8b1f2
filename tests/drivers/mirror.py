"""A card that is nothing but its boundary: it shows what a backend does to the ports.

A host write to byte address 8·i stores its data, and the cycle of the operation, in flit i. A host
read of 8·i is answered with the first word of flit i; the cycle of the memory request lands in flit
100 and that of the response in flit 101. ``completions`` counts writes. After a write to
:data:`BUSY` the card is never idle again.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import ADDRESS_BITS, CYCLE_BITS
from hdl.params import CardParams
from hdl.ports import (
    ConfigSignature,
    HostSignature,
    MemoryReadSignature,
    MemoryWriteSignature,
    RailMemorySignature,
)

__all__ = ["BUSY", "NODE", "Mirror"]

BUSY = 0x1000
#: Reads of this address return the node id and the memory size instead.
NODE = 0x1008


class Mirror(wiring.Component):
    """``cards`` mirrors with the port names of a flat fabric."""

    def __init__(self, params: CardParams, cards: int) -> None:
        self._params = params
        flit_bytes = params.link.flit_bytes
        network = wiring.Signature({
            "config": In(ConfigSignature(params.router)), "host": Out(HostSignature()),
            "memory": Out(RailMemorySignature(flit_bytes)).array(params.rails),
            "idle": Out(1), "wake": Out(CYCLE_BITS)})
        compute = wiring.Signature({
            "memory_bytes": In(ADDRESS_BITS + 1),
            "read": Out(MemoryReadSignature(flit_bytes)).array(params.compute.read_ports),
            "write": Out(MemoryWriteSignature(flit_bytes)),
            "idle": Out(1), "wake": Out(CYCLE_BITS)})
        super().__init__({"now": In(CYCLE_BITS), "network": Out(network).array(cards),
                          "compute": Out(compute).array(cards)})

    def elaborate(self, platform):
        m = Module()
        for network, compute in zip(self.network, self.compute, strict=True):
            self._card(m, network, compute)
        return m

    def _card(self, m, network, compute):
        host, memory = network.host, network.memory[0]
        busy, working = Signal(), Signal()
        write, read = memory.write.request, memory.tx_read.request
        never = (1 << CYCLE_BITS) - 1
        m.d.comb += [network.idle.eq(~busy & ~working), network.wake.eq(never),
                     compute.idle.eq(1), compute.wake.eq(never)]
        m.d.sync += [write.valid.eq(0), read.valid.eq(0), host.read_valid.eq(0),
                     compute.write.request.valid.eq(0), working.eq(host.valid)]
        with m.If(host.valid & host.write):
            m.d.sync += [write.valid.eq(1), write.payload.mask.eq(0xFFFF),
                         write.payload.index.eq(host.address[3:]),
                         write.payload.data.eq(Cat(host.data, self.now)),
                         host.completions.eq(host.completions + 1)]
            with m.If(host.address == BUSY):
                m.d.sync += busy.eq(1)
        with m.If(host.valid & ~host.write):
            with m.If(host.address == NODE):
                m.d.sync += [host.read_valid.eq(1), host.read_data.eq(
                    Cat(network.config.node, network.config.memory_bytes))]
            with m.Else():
                m.d.sync += [read.valid.eq(1), read.payload.index.eq(host.address[3:]),
                             read.payload.tag.eq(5)]
        stamp = compute.write.request
        with m.If(read.valid):
            m.d.sync += [stamp.valid.eq(1), stamp.payload.index.eq(100),
                         stamp.payload.mask.eq(0xFF), stamp.payload.data.eq(self.now)]
        response = memory.tx_read.response
        with m.If(response.valid & (response.payload.tag == 5)):
            m.d.sync += [host.read_valid.eq(1), host.read_data.eq(response.payload.data),
                         stamp.valid.eq(1), stamp.payload.index.eq(101),
                         stamp.payload.mask.eq(0xFF), stamp.payload.data.eq(self.now)]
