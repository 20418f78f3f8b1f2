"""Read stream of tx: asks memory for the flits of one transfer after the other, ahead of need.

Latency law: a range accepted in cycle ``t`` is asked for from ``t + 1``, one flit per cycle that
memory accepts, across ranges without a gap; a flit that memory gives in ``t`` is offered in
``t + 1``.

Flow control: a flit is asked for only when the buffer has a free place that no earlier request
will fill, so a response always has room. Two ranges are held: one being asked for, one next.
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.nic.fifo import Fifo
from hdl.ports import MemoryReadSignature, memory_index_bits

__all__ = ["Reader", "flit_range"]


def flit_range(flit_bytes: int) -> data.StructLayout:
    """Layout of a run of whole flits in memory: the first one's index, and how many."""
    return data.StructLayout({
        "index": unsigned(memory_index_bits(flit_bytes)),
        # 2^32 - 1 bytes from the last byte of a flit on
        "count": unsigned(33 - (flit_bytes - 1).bit_length()),
    })


class Reader(wiring.Component):
    """Reads runs of flits into a buffer of ``depth`` flits.

    Members
    -------
    run : ``In(stream.Signature(flit_range(flit_bytes)))``
        What to read; ``count`` is not 0.
    read : ``Out(MemoryReadSignature(flit_bytes))``
        Requests are functions of registers.
    flits : ``Out(stream.Signature(8 * flit_bytes))``
    idle : ``Out(1)``
        No request is being made.
    """

    def __init__(self, *, flit_bytes: int, depth: int) -> None:
        self.flit_bytes, self.depth = flit_bytes, depth
        super().__init__({
            "run": In(stream.Signature(flit_range(flit_bytes))),
            "read": Out(MemoryReadSignature(flit_bytes)),
            "flits": Out(stream.Signature(8 * flit_bytes)),
            "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = flit_range(self.flit_bytes)
        now, then = Signal(layout), Signal(layout)
        waiting = Signal()
        room = Signal(range(self.depth + 1), init=self.depth)

        m.submodules.buffer = buffer = Fifo(8 * self.flit_bytes, depth=self.depth)
        wiring.connect(m, buffer.read, wiring.flipped(self.flits))
        request, response = self.read.request, self.read.response
        asked, taken, over = Signal(), Signal(), Signal()
        m.d.comb += [
            buffer.write.valid.eq(response.valid),
            buffer.write.payload.eq(response.payload.data),
            request.valid.eq((now.count != 0) & (room != 0)),
            request.payload.index.eq(now.index),
            self.run.ready.eq(~waiting),
            self.idle.eq(~request.valid),
            asked.eq(request.valid & request.ready),
            taken.eq(self.flits.valid & self.flits.ready),
            over.eq(now.count == asked),
        ]
        m.d.sync += room.eq(room + taken - asked)
        with m.If(over):
            m.d.sync += [
                now.eq(Mux(waiting, then, self.run.payload)),
                waiting.eq(0),
            ]
            with m.If(~waiting & ~self.run.valid):
                m.d.sync += now.count.eq(0)
        with m.Else():
            with m.If(asked):
                m.d.sync += [now.index.eq(now.index + 1), now.count.eq(now.count - 1)]
            with m.If(~waiting):
                m.d.sync += [then.eq(self.run.payload), waiting.eq(self.run.valid)]
        return m
