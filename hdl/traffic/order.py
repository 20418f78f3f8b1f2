"""Order of packets: a table with the youngest packet that has come from each source.

256 sources, told apart by the low byte of their ids, have an entry. Where two share one they
displace each other, and the packet after a displacement is not compared with anything: the check
never accuses wrongly, and misses nothing in fabrics whose ids fit a byte.

Latency law: a packet looked up in cycle ``t`` is judged in ``t + 1`` (``valid`` and the two
verdicts); packets may come one per cycle.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS
from hdl.ports import ValidSignature

from .packet import AGE_BITS

__all__ = ["OrderTable"]

ENTRIES = 256


class _Entry(data.Struct):
    src: NODE_BITS
    created: AGE_BITS
    valid: 1


class OrderTable(wiring.Component):
    """Compares packets with their predecessors.

    Members
    -------
    packet : ``In(ValidSignature({src, created}))``
    busy : ``Out(1)``
        The packet of the cycle before is being judged.
    older, same : ``Out(1)``
        It was created before its predecessor, or is the same packet.
    """

    packet: In(ValidSignature(data.StructLayout({"src": NODE_BITS, "created": AGE_BITS})))
    busy: Out(1)
    older: Out(1)
    same: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.entries = entries = memory.Memory(shape=_Entry, depth=ENTRIES, init=[])
        write = entries.write_port()
        last = entries.read_port(transparent_for=(write,))
        came, src, created = Signal(), Signal(NODE_BITS), Signal(AGE_BITS)
        known, age = Signal(), Signal(AGE_BITS)
        m.d.sync += came.eq(self.packet.valid)
        with m.If(self.packet.valid):
            m.d.comb += [last.en.eq(1), last.addr.eq(self.packet.payload.src)]
            m.d.sync += [src.eq(self.packet.payload.src),
                         created.eq(self.packet.payload.created)]
        m.d.comb += [write.en.eq(came), write.addr.eq(src), self.busy.eq(came)]
        with m.If(came):
            m.d.comb += [
                write.data.src.eq(src),
                write.data.created.eq(created),
                write.data.valid.eq(1),
                known.eq(last.data.valid & (last.data.src == src)),
                age.eq(created - last.data.created),
                self.same.eq(known & (age == 0)),
                self.older.eq(known & age[-1]),
            ]
        return m
