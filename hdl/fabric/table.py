"""Port table: where a switch sends a packet, by its destination alone.

A switch stands anywhere in a topology, so what it must know about node ids is a table that software
writes before traffic. A table of all 65,536 ids at each of 48 inputs would be larger than the
buffers; but a switch only ever looks at one coordinate field of the id, and at another one where
the destination is not below it. So the table has two pages, and an index is a field of the id::

    near  = dst & mask == value          is the destination below this switch?
    index = dst >> (near_shift if near else far_shift), its low ``table_bits`` bits
    port  = table[near, index]

A single crossbar uses the near page alone (``mask`` = ``value`` = 0). A leaf of a Clos finds its
own nodes by their low field, and spreads the others over its uplinks by any field of theirs; a
spine finds leaves by the high field. The choice depends on the destination alone, so packets to
one node stay in order.

Latency law: combinational from the header to the port; ``region`` is taken through a register,
and an entry written in cycle ``t`` counts from ``t + 1``. The table survives reset and is not
defined before it is written; every entry that packets meet must name a port that exists.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS
from hdl.params import SwitchParams
from hdl.ports import ValidSignature

__all__ = ["PortTable", "SwitchRegion", "table_entry", "table_index"]


class SwitchRegion(data.Struct):
    """Which destinations are near, and the fields that index the two pages of the table."""

    mask: NODE_BITS
    value: NODE_BITS
    near_shift: 4
    far_shift: 4


def table_entry(params: SwitchParams) -> data.StructLayout:
    """Layout of a write to the port table."""
    return data.StructLayout({
        "index": unsigned(params.table_bits), "near": 1, "port": unsigned(params.port_bits)})


def table_index(dst: int, region: dict[str, int], table_bits: int) -> tuple[int, int]:
    """Return (index, near) of a destination: the reference model of the look-up."""
    near = int(dst & region["mask"] == region["value"])
    shift = region["near_shift" if near else "far_shift"]
    return dst >> shift & (1 << table_bits) - 1, near


class PortTable(wiring.Component):
    """The look-up of one input. Without ``valid`` its output means nothing.

    Members
    -------
    region : ``In(SwitchRegion)``
        Configuration, from a register.
    write : ``In(ValidSignature(table_entry(params)))``
    valid : ``In(1)``
        There is a header.
    dst : ``In(16)``
        Its destination.
    port : ``Out(port_bits)``
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__({
            "region": In(SwitchRegion),
            "write": In(ValidSignature(table_entry(params))),
            "valid": In(1),
            "dst": In(NODE_BITS),
            "port": Out(params.port_bits),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, region = self._params, self.region
        m.submodules.entries = entries = memory.Memory(
            shape=unsigned(params.port_bits), depth=2 << params.table_bits, init=[])
        write, read = entries.write_port(), entries.read_port(domain="comb")
        entry = self.write.payload
        near, field = Signal(), Signal(params.table_bits)
        m.d.comb += [
            write.en.eq(self.write.valid),
            write.addr.eq(Cat(entry.index, entry.near)),
            write.data.eq(entry.port),
            read.addr.eq(Cat(field, near)),
            self.port.eq(read.data),
        ]
        # Inside If: a simulator then pays for headers only.
        with m.If(self.valid):
            m.d.comb += [
                near.eq((self.dst & region.mask) == region.value),
                field.eq(self.dst >> Mux(near, region.near_shift, region.far_shift)),
            ]
        return m
