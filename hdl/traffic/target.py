"""Destinations: a list with weights, and all nodes alike.

A random fraction is compared with the thresholds of the list (see ``random.cumulative``); the first
one above it names the destination. If none is, all nodes of the fabric are equally likely, the
node itself included. An empty list is uniform traffic, a list of one is a permutation.

Node ids pack coordinates: with up to four fields, each with a size and a place, every id is as
likely as another. One random number of 32 bits is used up field by field: times the size, its
integer part is the coordinate, its fraction serves the next field. With sizes that are powers of
two this is exact, otherwise to nodes ÷ 2^32.

Latency law: combinational. Entries written in cycle ``t`` count from ``t + 1``.
"""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS
from hdl.ports import ValidSignature

from .random import FRACTION_BITS
from .registers import Field, RegisterWrite, Target, TrafficRegisters

__all__ = ["FIELDS", "TargetChoice", "TargetModel"]

#: Fields of a node id.
FIELDS = 4


class TargetChoice(wiring.Component):
    """Chooses a destination.

    Parameters
    ----------
    registers : TrafficRegisters

    Members
    -------
    write : ``In(ValidSignature(RegisterWrite))``
        A register of the tile is written; this block holds ``target`` and ``field``.
    valid : ``In(1)``
        Choose; without it ``node`` means nothing.
    fraction, place : ``In(31)``, ``In(32)``
        Random: for the list, and among all nodes.
    node : ``Out(16)``
    """

    def __init__(self, registers: TrafficRegisters) -> None:
        self._registers = registers
        super().__init__({
            "write": In(ValidSignature(RegisterWrite)),
            "valid": In(1),
            "fraction": In(FRACTION_BITS),
            "place": In(32),
            "node": Out(NODE_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        registers, write = self._registers, self.write
        count = registers.target.count
        below = [Signal(FRACTION_BITS + 1, name=f"below{index}") for index in range(count)]
        fields = [Signal(Field, name=f"field{index}", init={"size": 1}) for index in range(FIELDS)]
        m.submodules.nodes = nodes = memory.Memory(shape=unsigned(NODE_BITS), depth=count, init=[])
        entry, name = nodes.write_port(), nodes.read_port(domain="comb")

        with m.If(write.valid):
            with m.Switch(write.payload.address):
                for index in range(count):
                    with m.Case(registers.target.at(index)):
                        new = data.View(Target, write.payload.data)
                        m.d.comb += [entry.en.eq(1), entry.addr.eq(index),
                                     entry.data.eq(new.node)]
                        m.d.sync += below[index].eq(new.below)
                for index in range(FIELDS):
                    with m.Case(registers.field.at(index)):
                        m.d.sync += fields[index].eq(write.payload.data)

        passed = Signal(range(count + 1))
        with m.If(self.valid):
            m.d.comb += passed.eq(sum(self.fraction >= threshold for threshold in below))
            with m.If(passed != count):
                m.d.comb += [name.addr.eq(passed), self.node.eq(name.data)]
            with m.Else():
                rest, node = self.place, 0
                for index, field in enumerate(fields):
                    product = Signal(32 + len(field.size), name=f"product{index}")
                    m.d.comb += product.eq(rest * field.size)
                    node |= (product[32:] << field.shift)[:NODE_BITS]
                    rest = product[:32]
                m.d.comb += self.node.eq(node)
        return m


class TargetModel:
    """Reference model of :class:`TargetChoice`."""

    def __init__(self, targets: Sequence[tuple[int, int]],
                 fields: Sequence[tuple[int, int]]) -> None:
        """``targets`` are (threshold, node), ``fields`` (size, shift)."""
        self._targets, self._fields = targets, fields

    def choose(self, fraction: int, place: int) -> int:
        for below, node in self._targets:
            if fraction < below:
                return node
        node = 0
        for size, shift in self._fields:
            coordinate, place = divmod(place * size, 1 << 32)
            node |= coordinate << shift
        return node
