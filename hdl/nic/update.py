"""Memory update of rx: writes payload, or reduces it with what memory holds, strictly in order.

::

    step ──► steps (FIFO) ────────────────────┬─────────────► write register ──┬─► write port
    rx_read response ──► fresh (FIFO) ───► reducer (4 stages) ──────────────────┘

A *step* is one payload flit, or the empty end of a packet without (usable) payload. Steps leave in
the order in which they came, so the last one's ``retire`` says that all of the packet's writes, and
those of the packets before it, are accepted.

Latency law: a step taken in cycle ``t`` to an idle block is on the write port in ``t + 2``. A
reduction's step enters the reducer one cycle after its data came from memory and is on the write
port 4 cycles after that. One step per cycle; only a step that does not reduce, behind one that
does, waits for the reducer to be empty.

Flow control: the taker of a step's place looks at ``room``; whoever asks memory for a reduction's
data first takes a place for its step. ``fresh`` is as deep as ``steps``, so a response has room. A
write that memory refuses holds the reducer and everything behind it.
"""

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.compute.reduce import LATENCY, Reducer
from hdl.layouts import DType, ReduceOp
from hdl.nic.fifo import Fifo
from hdl.ports import MemoryWriteSignature, ValidSignature, memory_index_bits

__all__ = ["Update", "step_layout"]


def step_layout(flit_bytes: int) -> data.StructLayout:
    """Layout of a step. A ``mask`` of 0 writes nothing; ``last`` ends a packet, which was cut if
    ``poison`` is set too."""
    return data.StructLayout({
        "data": unsigned(8 * flit_bytes),
        "mask": unsigned(flit_bytes),
        "index": unsigned(memory_index_bits(flit_bytes)),
        "reduce": unsigned(1),
        "dtype": DType,
        "redop": ReduceOp,
        "last": unsigned(1),
        "poison": unsigned(1),
    })


class Update(wiring.Component):
    """Memory update.

    Members
    -------
    step : ``In(ValidSignature(step_layout(flit_bytes)))``
        A step to do; there is room.
    room : ``Out(1)``
    fresh : ``In(ValidSignature(8 * flit_bytes))``
        What memory holds, for each step that reduces, in order.
    write : ``Out(MemoryWriteSignature(flit_bytes))``
        A function of registers.
    retire, poisoned : ``Out(1)``
        The oldest packet's last step is done in this cycle; the packet was cut.
    idle : ``Out(1)``
        Nothing moves without data from memory.
    """

    def __init__(self, *, flit_bytes: int, depth: int) -> None:
        self.flit_bytes, self.depth = flit_bytes, depth
        super().__init__({
            "step": In(ValidSignature(step_layout(flit_bytes))),
            "room": Out(1),
            "fresh": In(ValidSignature(8 * flit_bytes)),
            "write": Out(MemoryWriteSignature(flit_bytes)),
            "retire": Out(1),
            "poisoned": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        flit_bytes = self.flit_bytes
        m.submodules.steps = steps = Fifo(step_layout(flit_bytes), depth=self.depth)
        m.submodules.fresh = fresh = Fifo(8 * flit_bytes, depth=self.depth)
        m.submodules.reducer = reducer = Reducer(flit_bytes=flit_bytes)
        m.d.comb += [
            steps.write.valid.eq(self.step.valid),
            steps.write.payload.eq(self.step.payload),
            self.room.eq(steps.room),
            fresh.write.valid.eq(self.fresh.valid),
            fresh.write.payload.eq(self.fresh.payload),
        ]

        # What goes with the operands through the reducer; the last place is at the write port.
        place = data.StructLayout({
            "valid": 1, "last": 1, "poison": 1, "mask": flit_bytes,
            "index": memory_index_bits(flit_bytes)})
        pipe = [Signal(place, name=f"place{stage}") for stage in range(LATENCY)]
        port = pipe[-1]
        direct = Signal()                 # the write port's data is not the reducer's
        direct_data = Signal(8 * flit_bytes)

        step = steps.read.payload
        waiting, leaves, moves = Signal(), Signal(), Signal()
        reduce_ready, direct_ready, reducing = Signal(), Signal(), Signal()
        m.d.comb += [
            reducing.eq(pipe[0].valid | pipe[1].valid | pipe[2].valid),
            waiting.eq(port.valid & (port.mask != 0)),
            leaves.eq(port.valid & (self.write.request.ready | ~waiting)),
            moves.eq(~port.valid | leaves),
            reduce_ready.eq(steps.read.valid & step.reduce & fresh.read.valid),
            direct_ready.eq(steps.read.valid & ~step.reduce & ~reducing),
            steps.read.ready.eq(moves & Mux(step.reduce, fresh.read.valid, ~reducing)),
            fresh.read.ready.eq(moves & steps.read.valid & step.reduce),
            reducer.enable.eq(moves),
            reducer.valid.eq(reduce_ready),
            reducer.dtype.eq(step.dtype),
            reducer.op.eq(step.redop),
            reducer.a.eq(fresh.read.payload),
            reducer.b.eq(step.data),
        ]
        entering = Signal(place)
        m.d.comb += [
            entering.last.eq(step.last),
            entering.poison.eq(step.poison),
            entering.mask.eq(step.mask),
            entering.index.eq(step.index),
        ]
        with m.If(moves):
            m.d.sync += [
                pipe[0].eq(entering),
                pipe[0].valid.eq(reduce_ready),
                port.eq(Mux(direct_ready, entering, pipe[-2])),
                direct.eq(direct_ready),
            ]
            m.d.sync += [after.eq(before) for before, after in pairwise(pipe[:-1])]
            with m.If(direct_ready):
                m.d.sync += [port.valid.eq(1), direct_data.eq(step.data)]

        request = self.write.request
        m.d.comb += [
            request.valid.eq(waiting),
            request.payload.mask.eq(port.mask),
            request.payload.index.eq(port.index),
            self.retire.eq(leaves & port.last),
            self.poisoned.eq(port.poison),
            self.idle.eq(~(port.valid | reducing | reduce_ready | direct_ready)),
        ]
        with m.If(waiting):
            m.d.comb += request.payload.data.eq(Mux(direct, direct_data, reducer.result))
        return m
