"""First-in first-out buffer in RAM with a synchronous read port.

Latency law: what is written in cycle ``t`` to an empty buffer is offered in ``t + 1``; one write
and one read every cycle.

Flow control: the writer looks at ``room``, or knows by its own count that there is some; there is
no way to refuse a write.
"""

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.ports import ValidSignature

__all__ = ["Fifo"]


class Fifo(wiring.Component):
    """A buffer of ``depth`` items.

    Members
    -------
    write : ``In(ValidSignature(shape))``
        An item to store; there is room.
    read : ``Out(stream.Signature(shape))``
        The oldest item, from registers.
    room : ``Out(1)``
        There is room for an item, a function of registers.
    """

    def __init__(self, shape: ShapeLike, *, depth: int) -> None:
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self.shape, self.depth = shape, depth
        super().__init__({
            "write": In(ValidSignature(shape)),
            "read": Out(stream.Signature(shape)),
            "room": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The RAM stores plain words: a layout may hold enumerations, which have no zero.
        width = Shape.cast(self.shape).width
        m.submodules.items = items = memory.Memory(shape=width, depth=self.depth, init=[])
        write = items.write_port()
        read = items.read_port(transparent_for=(write,))

        put, take = Signal(range(self.depth)), Signal(range(self.depth))
        level = Signal(range(self.depth + 1))
        after = Signal(range(self.depth))
        taken = Signal()

        def following(pointer: Signal) -> Signal:
            return Mux(pointer == self.depth - 1, 0, pointer + 1)

        m.d.comb += [
            self.read.valid.eq(level != 0),
            self.room.eq(level != self.depth),
            taken.eq(self.read.valid & self.read.ready),
            after.eq(Mux(taken, following(take), take)),
            write.en.eq(self.write.valid),
            write.addr.eq(put),
            write.data.eq(self.write.payload),
            # The word at the front is read again only when another one may be there.
            read.en.eq(taken | (level == 0)),
            read.addr.eq(after),
            self.read.payload.eq(read.data),
        ]
        m.d.sync += [take.eq(after), level.eq(level + self.write.valid - taken)]
        with m.If(self.write.valid):
            m.d.sync += put.eq(following(put))
        return m
