"""An array of equal components becomes one module, in which operands stand under their enables."""

import re

from amaranth.hdl import Fragment, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.once import Once
from hdl.sink import sink
from hdl.verilog import generate


class Cell(wiring.Component):
    """Two registers with one enable, and operands of theirs alone."""

    made = 0

    def __init__(self) -> None:
        Cell.made += 1
        super().__init__({"enable": In(1), "a": In(8), "b": In(8), "x": Out(8), "y": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shared = Signal(8)
        m.d.comb += shared.eq(self.a ^ self.b)
        with m.If(self.enable):
            m.d.sync += [self.x.eq(self.x + (shared & ~self.a)), self.y.eq((self.a | self.b) - 3)]
        return m


class Row(wiring.Component):
    """Three cells."""

    def __init__(self) -> None:
        super().__init__({"enable": In(3), "a": In(8), "b": In(8), "y": Out(8).array(3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for index, cell in enumerate(Once.array("cell", Cell, 3)):
            m.submodules[f"cell{index}"] = cell
            m.d.comb += [cell.enable.eq(self.enable[index]), cell.a.eq(self.a), cell.b.eq(self.b),
                         self.y[index].eq(cell.x ^ cell.y)]
        return m


def test_an_array_is_one_module_with_many_instances():
    Cell.made = 0
    text = generate(Row(), "row").text
    assert Cell.made == 1
    assert len(re.findall(r"^module cell_0\(", text, re.M)) == 1
    assert len(re.findall(r"^  cell_0  ?cell\d \(", text, re.M)) == 3
    assert text.count("no_inline_module") == 1


def test_without_a_conversion_every_element_is_a_component_of_its_own():
    Cell.made = 0
    Fragment.get(Row(), None)
    assert Cell.made == 3


def test_registers_of_one_enable_share_a_process_that_holds_their_operands():
    text = generate(Row(), "row").text
    cell = text[text.index("module cell_0("):]
    process, = re.findall(r"^  always @\(posedge clk\) begin\n.*?^  end\n", cell, re.M | re.S)
    under = process[process.index("if (enable)"):process.index("if (rst)")]
    assert "x  <=" in under and "y  <=" in under
    operands = re.findall(r"^      (\\\$\d+)  = ", under, re.M)
    assert operands
    for name in operands:
        assert f"assign {name} " not in cell
        assert re.search(rf"^  reg (\[\d+:\d+\] )?{re.escape(name)} ;$", cell, re.M)


def test_what_others_read_stays_where_it_is():
    module = ("module top(clk, q, p);\n  wire [3:0] \\$1 ;\n  wire [3:0] \\$2 ;\n"
              "  assign \\$1  = q + 4'h1;\n  assign \\$2  = \\$1  ^ 4'h3;\n  assign p = \\$1 ;\n"
              "  always @(posedge clk) begin\n    if (e) begin\n      q <= \\$2 ;\n    end\n"
              "  end\nendmodule\n")
    text = sink(module)
    assert "  assign \\$1  = q + 4'h1;\n" in text and "  wire [3:0] \\$1 ;\n" in text
    assert "    if (e) begin\n      \\$2  = \\$1  ^ 4'h3;\n      q <= \\$2 ;\n    end\n" in text
    assert "  reg [3:0] \\$2 ;\n" in text
