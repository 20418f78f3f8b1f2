"""Tiles that hold every cell of a netlist, with random operands."""

from __future__ import annotations

import random
from collections.abc import Callable

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS
from hdl.ports import MemoryReadSignature, MemoryWriteSignature

__all__ = ["BINARY", "UNARY", "CellTile", "operand_shape"]

Binary = Callable[[Value, Value], Value]

UNARY: dict[str, Callable[[Value], Value]] = {
    "not": lambda a: ~a, "negate": lambda a: -a, "bool": lambda a: a.bool(),
    "any": lambda a: a.any(), "all": lambda a: a.all(), "parity": lambda a: a.xor(),
}
BINARY: dict[str, Binary] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "equal": lambda a, b: a == b, "unequal": lambda a, b: a != b,
    "less": lambda a, b: a < b, "greater": lambda a, b: a > b,
    "at_most": lambda a, b: a <= b, "at_least": lambda a, b: a >= b,
    "left": lambda a, b: a << b.as_unsigned()[:4], "right": lambda a, b: a >> b.as_unsigned()[:7],
    "mux": lambda a, b: Mux(b[0], a, b),
    "bits": lambda a, b: a.as_unsigned().bit_select(b.as_unsigned()[:6], 5),
    "word": lambda a, b: a.as_unsigned().word_select(b.as_unsigned()[:4], 3),
    "constant": lambda a, b: a * 5 + (b & 0x5A) - Const(3, 4),
}


def operand_shape(random_: random.Random, *, narrow: bool = False) -> Shape:
    """A shape of up to 70 bits, or 32."""
    width = random_.randint(1, 32 if narrow else 70)
    return signed(width) if random_.random() < 0.4 else unsigned(width)


class CellTile(wiring.Component):
    """Takes operands from what it reads, and shows results page by page in what it writes.

    ``params`` is a seed.
    """

    def __init__(self, params: int) -> None:
        self._seed = params
        super().__init__({
            "now": In(CYCLE_BITS), "read": Out(MemoryReadSignature(32)),
            "results": Out(MemoryWriteSignature(32)), "payloads": Out(MemoryWriteSignature(32)),
            "idle": Out(1), "wake": Out(CYCLE_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        chance = random.Random(self._seed)
        given, valid = self.read.response.payload, self.read.response.valid
        fresh, old = Signal(256), Signal(256)
        with m.If(valid):
            m.d.sync += [fresh.eq(given.data), old.eq(fresh)]
        shown: list[Value] = []

        def operand(shape: Shape) -> Value:
            source = chance.choice((fresh, old))
            start = chance.randint(0, 256 - shape.width)
            part = source[start:start + shape.width]
            return part.as_signed() if shape.signed else part

        def show(value: Value) -> None:
            result = Signal.like(value)
            m.d.sync += result.eq(value)
            shown.append(result)

        for unary in UNARY.values():
            show(unary(operand(operand_shape(chance))))
        for name, binary in BINARY.items():
            for _ in range(2):
                shapes = [operand_shape(chance, narrow=name == "multiply") for _ in range(2)]
                show(binary(*map(operand, shapes)))
        self._choices(m, fresh, old, shown)
        self._registers(m, fresh, valid, shown)
        self._memories(m, fresh, old, valid, shown)
        self._payloads(m, given, fresh, valid)

        everything = Cat(shown)
        page, pages = Signal(8), -(-len(everything) // 256)
        m.d.sync += page.eq(Mux(page == pages - 1, 0, page + 1))
        m.d.comb += [
            self.results.request.valid.eq(1),
            self.results.request.payload.data.eq(everything.word_select(page, 256)),
            self.results.request.payload.index.eq(page),
            self.read.request.valid.eq(page[0]), self.read.request.payload.index.eq(old[:20]),
            self.wake.eq(fresh[7:7 + CYCLE_BITS]), self.idle.eq(fresh[3])]
        return m

    @staticmethod
    def _choices(m: Module, fresh: Signal, old: Signal, shown: list[Value]) -> None:
        """Switches, priorities, parts and arrays on the left."""
        chosen, parts = Signal(40), Signal(100)
        lanes = Array([Signal(9, name=f"lane{index}") for index in range(5)])
        with m.If(fresh[0]):
            with m.Switch(fresh[1:5]):
                with m.Case("1--0"):
                    m.d.sync += chosen.eq(old)
                with m.Case(3, 5):
                    m.d.sync += [chosen[7:30].eq(fresh[40:]), parts[50:].eq(old[100:])]
                with m.Case():
                    m.d.sync += chosen.eq(0x123456789A)
                with m.Default():
                    m.d.sync += chosen[:4].eq(9)
        with m.Elif(fresh[9] & ~old[9]):
            m.d.sync += parts.bit_select(fresh[10:17], 6).eq(old[20:])
        with m.Else():
            m.d.sync += [parts.word_select(fresh[17:20], 16).eq(old[60:]),
                         lanes[fresh[20:23]].eq(old[70:])]
        shown += [chosen, parts, *lanes]

    @staticmethod
    def _registers(m: Module, fresh: Signal, valid: Value, shown: list[Value]) -> None:
        """Registers that take each other's values, move within themselves, or keep theirs in
        reset."""
        left, right = Signal(40, init=0x5A5A5A5A5A), Signal(40)
        moving, kept = Signal(90, init=1), Signal(20, reset_less=True)
        with m.If(fresh[11]):
            m.d.sync += [left.eq(right), right.eq(left)]
        with m.Else():
            m.d.sync += right.eq(fresh[30:])
        m.d.sync += moving.eq(Cat(moving[-1] ^ valid, moving))
        with m.If(fresh[13]):
            m.d.sync += moving.eq(moving.rotate_right(17))
        m.d.sync += kept.eq(fresh[50:])
        shown += [left, right, moving, kept]

    @staticmethod
    def _memories(m: Module, fresh: Signal, old: Signal, valid: Value,
                  shown: list[Value]) -> None:
        """Widths, depths, kinds of ports, first contents, enables."""
        for width, depth, granularity in ((5, 16, None), (7, 4, None), (12, 8, 4), (40, 32, None),
                                          (130, 8, None), (64, 300, 32)):
            rows = memory.Memory(shape=unsigned(width), depth=depth,
                                 init=[row * 37 & (1 << width) - 1 for row in range(depth // 2)])
            m.submodules += rows
            write = rows.write_port(granularity=granularity)
            plain, through = rows.read_port(), rows.read_port(transparent_for=(write,))
            now = rows.read_port(domain="comb")
            address = Mux(fresh[:len(write.addr)] < depth, fresh[:len(write.addr)], 0)
            other = Mux(fresh[60:60 + len(write.addr)] < depth, fresh[60:60 + len(write.addr)], 1)
            m.d.comb += [write.addr.eq(address), write.data.eq(Cat(old, fresh)),
                         write.en.eq(fresh[25:28] | valid), plain.addr.eq(address),
                         plain.en.eq(fresh[28]), through.addr.eq(address), now.addr.eq(other)]
            kept = Signal(width)
            m.d.sync += kept.eq(now.data)
            shown += [plain.data, through.data, kept]

    def _payloads(self, m: Module, given: Value, fresh: Signal, valid: Value) -> None:
        """Payloads that move as a whole, and are looked into here and there."""
        stores = []
        for index, width in enumerate((256, 258)):
            rows = memory.Memory(shape=unsigned(width), depth=16, init=[])
            m.submodules[f"payloads{index}"] = rows
            write, read = rows.write_port(), rows.read_port()
            m.d.comb += [write.en.eq(valid & fresh[index]), write.addr.eq(fresh[4:8]),
                         write.data.eq(Cat(given.data, fresh[2:4])),
                         read.en.eq(fresh[8 + index]), read.addr.eq(fresh[12:16])]
            stores.append(read.data)
        choice, picked, held = Signal(3), Signal(256), Signal(256)
        m.d.sync += choice.eq(fresh[20:23])
        with m.Switch(choice):
            with m.Case(1):
                m.d.comb += picked.eq(stores[0])
            with m.Case(2, 3):
                m.d.comb += picked.eq(stores[1])
            with m.Case(4):
                m.d.comb += picked.eq(held)
        request = self.payloads.request
        m.d.sync += [request.valid.eq(choice[0]), request.payload.data.eq(0),
                     request.payload.index.eq(stores[1][250:])]
        with m.If(choice != 5):
            m.d.sync += request.payload.data.eq(picked)
        with m.If(picked[70] ^ valid):
            m.d.sync += held.eq(stores[0])
