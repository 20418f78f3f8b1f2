"""The route table says what was last written to the entry that the levels choose.

One entry, any of them, is followed: what was written to it last. The levels are kept beside the
table as the writes have set them. A header, any of them, is looked up in every cycle.
"""

import pytest
from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from hdl.fabric.table import LEVELS, RouteTable
from hdl.layouts import NODE_BITS, RouteEntry, RouteLevel, RouteWrite
from tests.formal.prove import Case, mutant, prove, reach, refute

INPUT = 3


def table_case(block: type[RouteTable], *, table_bits: int = 2, invariants: bool = True) -> Case:
    case = Case()
    m = case.m
    table = block(table_bits, input_port=INPUT)
    inside = case.block(table)
    write = Signal(RouteWrite)
    valid, dst = case.free(1, "write"), case.free(NODE_BITS, "dst")
    m.d.comb += [write.as_value().eq(case.free(len(write.as_value()), "written")),
                 table.write.valid.eq(valid), table.write.payload.eq(write),
                 table.valid.eq(1), table.dst.eq(dst)]
    entry, level = data.View(RouteEntry, write.body), data.View(RouteLevel, write.body)

    levels = [Signal(RouteLevel, name=f"level{number}") for number in range(LEVELS)]
    for number, each in enumerate(levels):
        with m.If(valid & ~write.entry & (write.level == number)):
            m.d.sync += each.eq(level)
    at_level, at_index = case.fixed(range(LEVELS), "at_level"), case.fixed(table_bits, "at_index")
    written = Signal()
    kept = Signal.like(table.choice.as_value(), name="kept")
    told = case.see(Cat(entry.port, entry.lane, entry.fixed), "told")
    with m.If(valid & write.entry & (write.level == at_level)
              & (entry.index[:table_bits] == at_index)
              & (entry.every_input | (entry.input == INPUT))):
        m.d.sync += [written.eq(1), kept.eq(told)]

    # The look-up by its definition, from the last level to the first.
    match, chosen, index = 0, 0, 0
    for number, each in reversed(list(enumerate(levels))):
        matches = each.valid & ((dst & each.mask) == each.value)
        match = match | matches
        chosen = Mux(matches, number, chosen)
        index = Mux(matches, (dst >> each.shift)[:table_bits], index)
    match, chosen = case.see(match, "match"), case.see(chosen, "chosen")
    hit = case.see(match & (chosen == at_level) & (index == at_index) & written, "hit")
    choice = case.see(table.choice.as_value(), "choice")
    case.must(table.match == match, "match")
    case.must(~hit | (choice == kept), "entry")
    case.reach(hit & (chosen == LEVELS - 1), "last_level")
    if invariants:
        for number, each in enumerate(levels):
            case.must(inside["levels"][number].as_value() == each.as_value(), f"level{number}")
        row = inside.row("entries", Cat(at_index, at_level), "row")
        case.must(~written | (row == kept), "kept")
    return case


def test_a_destination_finds_what_was_written_last_for_it():
    prove(table_case(RouteTable), "table", induction=1)
    reach(table_case(RouteTable, invariants=False), "table", bound=4)


@pytest.mark.parametrize(("old", "new", "broken_property"), [
    ("in reversed(range(LEVELS)):", "in range(LEVELS):", "entry"),
    ("each.valid & (", "(", "match"),
    ("(entry.every_input | (entry.input == self._input_port))", "1", "entry"),
], ids=["last level wins", "invalid levels match", "takes entries of others"])
def test_a_broken_table_is_refuted(old, new, broken_property):
    broken = mutant("hdl.fabric.table", (old, new)).RouteTable
    refute(table_case(broken, invariants=False), "table", bound=6, breaks=broken_property)
