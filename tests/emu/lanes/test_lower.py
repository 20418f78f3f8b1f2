"""Operators and cells on planes against Python's integers, and functions against gates."""

import random

import pytest
from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from emu.cache import BuildError
from emu.lanes.check import check_outputs, evaluate
from emu.lanes.cover import cover
from emu.lanes.lower import lower
from emu.lanes.netlist import read_tile
from emu.lanes.plan import ordered_units
from tests.emu.lanes.toys import BINARY, UNARY, operand_shape

LANES = 40


class Block(wiring.Component):
    """``out`` is a function of inputs; ``kept`` makes a clock necessary."""

    def __init__(self, function, shapes, out):
        self._function = function
        super().__init__({**{f"in{index}": In(shape) for index, shape in enumerate(shapes)},
                          "out": Out(out), "kept": Out(1)})

    def elaborate(self, platform):
        m = Module()
        inputs = [getattr(self, name) for name in self.signature.members if name.startswith("in")]
        m.d.comb += self.out.eq(self._function(m, *inputs))
        m.d.sync += self.kept.eq(~self.kept)
        return m


def lowered(function, shapes, out):
    return lower(read_tile(Block(function, shapes, out), "block"))


def planes_of(block, values):
    """Planes of inputs, of a value per lane and input."""
    planes = {}
    for index, lanes in enumerate(values):
        at, width = block.inputs[f"in{index}"]
        for bit in range(width):
            planes["i", at + bit] = sum((value >> bit & 1) << lane
                                        for lane, value in enumerate(lanes))
    return lambda array, index: planes.get((array, index), 0)


def results(block, values):
    """``out`` in each lane, as an unsigned integer."""
    planes = evaluate(block.graph, block.outputs["out"], planes_of(block, values), LANES)
    return [sum((plane >> lane & 1) << bit for bit, plane in enumerate(planes))
            for lane in range(LANES)]


def draw(chance, shape):
    low = -(1 << shape.width - 1) if shape.signed else 0
    high = (1 << shape.width - shape.signed) - 1
    return [chance.choice((low, high, chance.randint(low, high))) for _ in range(LANES)]


MODELS = {
    "negate": lambda a: -a, "bool": lambda a: a != 0, "any": lambda a: a != 0,
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "equal": lambda a, b: a == b, "unequal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "greater": lambda a, b: a > b, "at_most": lambda a, b: a <= b, "at_least": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_an_operator_is_that_of_the_integers(name, seed):
    chance = random.Random(f"{name} {seed}")
    arity = 1 if name in UNARY else 2
    for _ in range(6):
        shapes = [operand_shape(chance, narrow=name == "multiply") for _ in range(arity)]
        function = (UNARY if arity == 1 else BINARY)[name]
        block = lowered(lambda m, *operands, function=function: function(*operands), shapes,
                        unsigned(160))
        values = [draw(chance, shape) for shape in shapes]
        for got, operands in zip(results(block, values), zip(*values, strict=True), strict=True):
            assert got == expected(name, shapes, operands) % (1 << 160), (name, shapes, operands)


def expected(name, shapes, operands):
    raw = [value % (1 << shape.width) for value, shape in zip(operands, shapes, strict=True)]
    match name:
        case "not":
            return (~operands[0] if shapes[0].signed
                    else ~operands[0] % (1 << shapes[0].width))
        case "all":
            return raw[0] == (1 << shapes[0].width) - 1
        case "parity":
            return raw[0].bit_count() & 1
        case "bits":
            return raw[0] >> (raw[1] & 63) & 31
        case "word":
            return raw[0] >> 3 * (raw[1] & 15) & 7
        case "left":
            return operands[0] << (raw[1] & 15)
        case "right":
            return operands[0] >> (raw[1] & 127)
        case "constant":
            return operands[0] * 5 + (operands[1] & 0x5A if shapes[1].signed
                                      else raw[1] & 0x5A) - 3
        case "mux":
            return operands[0] if raw[1] & 1 else operands[1]
    return MODELS[name](*operands)


def test_a_function_of_three_is_its_gates(seed):
    chance = random.Random(seed)
    shapes = [signed(23), unsigned(30)]
    block = lowered(lambda m, a, b: Mux(a < b, a + b, (a ^ b) - 7) & ~(a >> b[:3]), shapes,
                    unsigned(64))
    graph, roots = block.graph, block.outputs["out"]
    gates = [unit for unit in ordered_units(graph, roots) if unit >= 0]
    functions = cover(graph, gates, [literal >> 1 for literal in roots])
    assert len(functions) < len(gates)
    plane = planes_of(block, [draw(chance, shape) for shape in shapes])
    nodes = tuple(2 * node for node in {*functions, *(leaf for function in functions.values()
                                                     for leaf in function.leaves)})
    values = dict(zip(nodes, evaluate(graph, nodes, plane, LANES), strict=True))
    for node, function in functions.items():
        for lane in range(LANES):
            index = sum((values[2 * leaf] >> lane & 1) << place
                        for place, leaf in enumerate(function.leaves))
            assert function.table >> index & 1 == values[2 * node] >> lane & 1


def test_bits_of_a_signal_may_depend_on_each_other(seed):
    def chain(m, start):
        steps = Signal(20)
        m.d.comb += steps[0].eq(start[0])
        with m.If(start[1]):
            m.d.comb += steps[1:].eq(steps ^ start)
        return steps

    block = lowered(chain, [unsigned(20)], unsigned(20))
    values = draw(random.Random(seed), unsigned(20))
    for got, start in zip(results(block, [values]), values, strict=True):
        steps = start & 1
        if start >> 1 & 1:
            for bit in range(1, 20):
                steps |= ((steps ^ start) >> bit - 1 & 1) << bit
        assert got == steps


def test_an_output_that_depends_on_an_input_is_refused():
    block = lowered(lambda m, a, b: a & b, [1, 1], 1)
    with pytest.raises(BuildError, match="output out of tile block depends on an input"):
        check_outputs(block)


def test_an_input_that_cannot_matter_is_no_dependence():
    block = lowered(lambda m, a: (a | Signal(1, init=1)) ^ (a & Signal(1, init=1)) ^ a, [1], 1)
    check_outputs(block)


def test_a_read_port_that_sees_some_writes_only_is_refused():
    def rows(m, address):
        m.submodules.rows = rows = memory.Memory(shape=8, depth=4, init=[])
        first, second = rows.write_port(), rows.write_port()
        read = rows.read_port(transparent_for=(first,))
        m.d.comb += [first.addr.eq(address), second.addr.eq(address), read.addr.eq(address),
                     first.en.eq(1), second.en.eq(address[0])]
        return read.data

    with pytest.raises(BuildError, match="tile block has a read port that sees some writes"):
        lowered(rows, [2], 8)


def test_division_is_refused():
    with pytest.raises(BuildError, match=r"tile block has an operator u//, which lane-parallel"):
        lowered(lambda m, a, b: a // b, [4, 4], 4)
