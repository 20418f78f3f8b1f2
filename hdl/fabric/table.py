"""Route table: where a node sends a packet, by its destination alone.

A table of all 65,536 node ids at every input would be larger than the buffers; but a node only
ever looks at one coordinate field of an id, and at which one depends on how far away the
destination is. So the table has up to four *levels*, tried in their order::

    level = first valid one with dst & mask == value
    index = dst >> shift, its low ``table_bits`` bits
    entry = table[level, index]

A single crossbar needs one level (``mask`` = ``value`` = 0). A leaf of a Clos finds its own nodes
by their low field, and spreads the others over its uplinks by any field of theirs; a switch of a
board tells board, rack and beyond. The choice depends on the destination alone, so packets to one
node stay in order. Where no level matches, a router computes its route instead.

Latency law: combinational from the header to the entry; an entry or level written in cycle ``t``
counts from ``t + 1``. Levels are invalid after reset. Entries survive it and are not defined before
they are written; every entry that packets meet must name a port that exists. Software writes while
no packet is under way.
"""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS, RouteEntry, RouteLevel, RouteWrite
from hdl.ports import ValidSignature

__all__ = ["LEVELS", "RouteChoice", "RouteTable", "table_index"]

#: Levels of a table.
LEVELS = 4


class RouteChoice(data.Struct):
    """What an entry says, see ``RouteEntry``."""

    port: 6
    lane: 3
    fixed: 1


def table_index(dst: int, levels: Sequence[Mapping[str, int]],
                table_bits: int) -> tuple[int, int] | None:
    """Return (level, index) of a destination, or ``None`` where no level matches: the reference
    model of the look-up. Only valid levels are given."""
    for number, level in enumerate(levels):
        if dst & level["mask"] == level["value"]:
            return number, dst >> level["shift"] & (1 << table_bits) - 1
    return None


class RouteTable(wiring.Component):
    """The look-up of one input port. Without ``valid`` its outputs mean nothing.

    Parameters
    ----------
    table_bits : int
        Bits of the destination that index a level.
    input_port : int or Value
        Number of the input port, which writes may name; a register where equal ports are to be one
        module.

    Members
    -------
    write : ``In(ValidSignature(RouteWrite))``
        From registers.
    valid : ``In(1)``
        There is a header.
    dst : ``In(16)``
        Its destination.
    match : ``Out(1)``
        A level matches.
    choice : ``Out(RouteChoice)``
    """

    def __init__(self, table_bits: int, *, input_port: int | Value = 0) -> None:
        self._table_bits, self._input_port = table_bits, input_port
        super().__init__({
            "write": In(ValidSignature(RouteWrite)),
            "valid": In(1),
            "dst": In(NODE_BITS),
            "match": Out(1),
            "choice": Out(RouteChoice),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels = Signal(data.ArrayLayout(RouteLevel, LEVELS))
        m.submodules.entries = entries = memory.Memory(
            shape=RouteChoice, depth=LEVELS << self._table_bits, init=[])
        write, read = entries.write_port(), entries.read_port(domain="comb")
        told = self.write.payload
        entry = data.View(RouteEntry, told.body)
        with m.If(self.write.valid & ~told.entry):
            m.d.sync += levels[told.level].eq(told.body)
        m.d.comb += [
            write.en.eq(self.write.valid & told.entry
                        & (entry.every_input | (entry.input == self._input_port))),
            write.addr.eq(Cat(entry.index[:self._table_bits], told.level)),
            write.data.port.eq(entry.port),
            write.data.lane.eq(entry.lane),
            write.data.fixed.eq(entry.fixed),
            self.choice.eq(read.data),
        ]
        # Inside If: a simulator then pays for headers only.
        matches = Signal(LEVELS)
        level, shift = Signal(range(LEVELS)), Signal(4)
        with m.If(self.valid):
            m.d.comb += matches.eq(Cat(
                each.valid & ((self.dst & each.mask) == each.value) for each in levels))
            m.d.comb += self.match.eq(matches.any())
            for number in reversed(range(LEVELS)):
                with m.If(matches[number]):
                    m.d.comb += [level.eq(number), shift.eq(levels[number].shift)]
            m.d.comb += read.addr.eq(Cat((self.dst >> shift)[:self._table_bits], level))
        return m
