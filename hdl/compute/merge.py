"""Several readers on one memory read port, in turn.

The port's tag says whose a response is. Requests pass through one register, so an offer once made
stays as it is; each reader still gets its responses in the order of its requests, and cannot refuse
them.

Timing: a request one cycle later, a response in the same cycle. Two busy readers share the port
evenly.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..ports import MemoryReadSignature

__all__ = ["ReadMerge"]


class ReadMerge(wiring.Component):
    """Joins ``count`` readers to one port.

    Members
    -------
    readers : ``In(MemoryReadSignature).array(count)``
    port : ``Out(MemoryReadSignature)``
    active : ``Out(1)``
    """

    def __init__(self, *, count: int, flit_bytes: int) -> None:
        if not 1 <= count <= 16:
            raise ValueError(f"count must be from 1 to 16, not {count}: the tag has 4 bits")
        self._count = count
        super().__init__({"readers": In(MemoryReadSignature(flit_bytes)).array(count),
                          "port": Out(MemoryReadSignature(flit_bytes)), "active": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        request, response = self.port.request, self.port.response
        valid = Signal(self._count)
        after = Signal(self._count)  # readers behind the one that was served last
        m.d.comb += [valid.eq(Cat(reader.request.valid for reader in self.readers)),
                     self.active.eq(request.valid)]
        behind = Signal(self._count)
        candidates, grant = Signal(self._count), Signal(self._count)
        m.d.comb += [behind.eq(valid & after), candidates.eq(Mux(behind.any(), behind, valid)),
                     grant.eq(candidates & -candidates)]
        take = Signal()
        m.d.comb += take.eq(~request.valid | request.ready)
        with m.If(take):
            m.d.sync += request.valid.eq(valid.any())
        for index, reader in enumerate(self.readers):
            m.d.comb += [
                reader.request.ready.eq(take & grant[index]),
                reader.response.payload.eq(response.payload),
                reader.response.valid.eq(response.valid & (response.payload.tag == index))]
            with m.If(take & grant[index]):
                m.d.sync += [request.payload.index.eq(reader.request.payload.index),
                             request.payload.tag.eq(index),
                             after.eq((1 << self._count) - (2 << index))]
        return m
