"""Sharing of a rail's memory ports.

A rail's tx read port also fetches commands, and its write port also stores completion records:
both are rare beside the payload, so a port of their own would stand idle.

Latency law: none is added. A port's request is the granted requester's request in the same cycle,
a response reaches its requester in the cycle in which memory gives it. Requests of a requester are
registers, so those of the shared port are functions of registers only.

Flow-control invariant: an offer that was not taken keeps the port until it is, so the payload
holds while ``valid`` does, whoever else arrives.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.ports import MEMORY_TAG_BITS, MemoryReadSignature, MemoryWriteSignature

__all__ = ["OWNER_BIT", "ReadArbiter", "WriteArbiter"]

#: Bit of a read's tag that names its requester; requesters have the bits below to themselves.
OWNER_BIT = MEMORY_TAG_BITS - 1


def _grant(m: Module, first, second, port):
    """Return a signal that is 1 while ``first`` has the port: it goes before ``second`` unless an
    offer of ``second`` already stands."""
    held, owner, grant = Signal(), Signal(), Signal()
    m.d.comb += grant.eq(Mux(held, owner, first.valid))
    m.d.comb += port.valid.eq(first.valid | second.valid)
    m.d.comb += first.ready.eq(port.ready & grant)
    m.d.comb += second.ready.eq(port.ready & ~grant)
    with m.If(port.valid):
        m.d.sync += held.eq(~port.ready)
        m.d.sync += owner.eq(grant)
    return grant


class ReadArbiter(wiring.Component):
    """Two requesters on one read port; bit :data:`OWNER_BIT` of a tag names the owner.

    Command fetches go first: they are short (one command), rare (at most a ring's prefetch depth
    is under way) and a late one starves the rail.

    Members
    -------
    tx : ``In(MemoryReadSignature)``
        Owner 0: the payload reader. Tags below ``1 << OWNER_BIT``.
    fetch : ``In(MemoryReadSignature)``
        Owner 1: the command fetcher. Tags below ``1 << OWNER_BIT``.
    port : ``Out(MemoryReadSignature)``
        To memory.
    """

    def __init__(self, *, flit_bytes: int) -> None:
        signature = MemoryReadSignature(flit_bytes)
        super().__init__({"tx": In(signature), "fetch": In(signature), "port": Out(signature)})

    def elaborate(self, platform) -> Module:
        m = Module()
        fetch, tx, port = self.fetch.request, self.tx.request, self.port.request
        grant = _grant(m, fetch, tx, port)
        m.d.comb += port.payload.index.eq(Mux(grant, fetch.payload.index, tx.payload.index))
        tag = Mux(grant, fetch.payload.tag, tx.payload.tag)
        m.d.comb += port.payload.tag.eq(Cat(tag[:OWNER_BIT], grant))
        response = self.port.response
        owner = response.payload.tag[OWNER_BIT]
        for requester, index in ((self.tx, 0), (self.fetch, 1)):
            m.d.comb += requester.response.valid.eq(response.valid & (owner == index))
            m.d.comb += requester.response.payload.data.eq(response.payload.data)
            m.d.comb += requester.response.payload.tag.eq(
                Cat(response.payload.tag[:OWNER_BIT], Const(0, 1)))
        return m


class WriteArbiter(wiring.Component):
    """Two writers on one write port.

    Completion records go first: they are rare (the writer of records offers one in three cycles at
    the most, so payload always gets the rest) and the end of a command should not wait behind
    another's payload.

    Members
    -------
    payload : ``In(MemoryWriteSignature)``
        The rail's rx.
    records : ``In(MemoryWriteSignature)``
        The writer of completion records.
    port : ``Out(MemoryWriteSignature)``
        To memory.
    """

    def __init__(self, *, flit_bytes: int) -> None:
        signature = MemoryWriteSignature(flit_bytes)
        super().__init__({"payload": In(signature), "records": In(signature),
                          "port": Out(signature)})

    def elaborate(self, platform) -> Module:
        m = Module()
        records, payload, port = self.records.request, self.payload.request, self.port.request
        grant = _grant(m, records, payload, port)
        with m.If(grant):
            m.d.comb += port.payload.eq(records.payload)
        with m.Else():
            m.d.comb += port.payload.eq(payload.payload)
        return m
