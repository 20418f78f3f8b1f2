"""Compacted Verilog: registers are clocked processes, equal modules are one, memories are short.

That its meaning stays is what every other bench shows: all of them run on compacted Verilog.
"""

import re

from amaranth.back import verilog
from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.compact import compact


class Leaf(wiring.Component):
    """A register with enable, and logic that is not a register."""

    enable: In(1)
    value: In(8)
    held: Out(8)
    chosen: Out(8)

    def elaborate(self, platform):
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.held.eq(self.value)
            m.d.comb += self.chosen.eq(self.value + 1)
        return m


class Top(wiring.Component):
    """Three equal leaves and a memory."""

    enable: In(1)
    value: In(24)
    total: Out(8)
    read: Out(8)

    def elaborate(self, platform):
        m = Module()
        total = 0
        for index in range(3):
            m.submodules[f"shared_leaf_{index}"] = leaf = Leaf()
            m.d.comb += [leaf.enable.eq(self.enable),
                         leaf.value.eq(self.value.word_select(index, 8))]
            total = total ^ leaf.held ^ leaf.chosen
        m.submodules.ram = ram = memory.Memory(shape=8, depth=64, init=[])
        write, read = ram.write_port(), ram.read_port()
        unused = Signal(8)
        m.d.comb += [self.total.eq(total), write.addr.eq(self.value[:6]), write.en.eq(self.enable),
                     write.data.eq(self.value[8:16]), read.addr.eq(self.value[16:22]),
                     read.en.eq(1), self.read.eq(read.data), unused.eq(total + 1)]
        return m


def texts():
    text = verilog.convert(Top(), name="top", emit_src=False, strip_internal_attrs=True)
    return text, compact(text)


def test_equal_modules_become_one_that_stays_a_function():
    before, after = texts()
    assert len(re.findall(r"^module .*leaf", before, re.M)) == 3
    assert len(re.findall(r"^module .*leaf", after, re.M)) == 1
    assert len(re.findall(r"^  \\top\.shared_leaf_\d  shared_leaf_\d \(", after, re.M)) == 3
    assert after.count("verilator no_inline_module") == 1


def test_registers_become_clocked_processes_and_logic_stays_logic():
    _, after = texts()
    leaf = after[after.index("module \\top.shared"):]
    assert re.search(r"always @\(posedge clk\) begin\n    if \(enable\) begin\n"
                     r"      held  <= value;\n    end\n    if \(rst\) begin\n      held  <= 8'h00;",
                     leaf)
    assert re.search(r"always @\* begin\n.*\n    chosen = 8'h00;", leaf)


def test_a_zero_memory_is_cleared_in_a_loop():
    before, after = texts()
    assert before.count("= 8'h00;\n    ") > 60
    loop = (r"  integer (\w+);\n  initial begin\n    for \(\1 = 0; \1 < 64; \1 = \1 \+ 1\)\n"
            r" +\S+ ?\[\1\] = 8'h0;\n  end\n")
    assert re.search(loop, after)


def test_wires_that_nobody_reads_go_and_ports_stay():
    _, after = texts()
    assert "unused" not in after
    assert re.search(r"^module top\((?=.*enable)(?=.*value)(?=.*total)(?=.*read)", after, re.M)


def test_a_second_pass_changes_nothing():
    _, after = texts()
    assert compact(after).count("module ") == after.count("module ")
