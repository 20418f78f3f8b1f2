"""Host port of a traffic node: registers are written by telling all blocks, and read from them.

Latency law: an operation in cycle ``t`` is carried out in ``t + 1``; the result of a read is on the
port in ``t + 3``. Operations may come one per cycle, and results keep their order.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, flipped

from hdl.layouts import CYCLE_BITS, NODE_BITS
from hdl.ports import HostSignature, ValidSignature

from .registers import (
    IDENT,
    ReceivedSignature,
    RegisterWrite,
    SentSignature,
    TrafficRegisters,
)

__all__ = ["HostPort"]


class HostPort(wiring.Component):
    """The registers of a traffic node.

    Parameters
    ----------
    registers : TrafficRegisters

    Members
    -------
    host : ``Out(HostSignature())``
    node : ``In(16)``
    write : ``Out(ValidSignature(RegisterWrite))``
        A register is written; each block knows its own.
    next, sent, received : inputs
        What can be read.
    read_bin : ``Out(1)``
        The next bin of the histogram is read; ``bin`` has it in the next cycle.
    bin : ``In(32)``
    idle : ``Out(1)``
    """

    def __init__(self, registers: TrafficRegisters) -> None:
        self._registers = registers
        super().__init__({
            "host": Out(HostSignature()),
            "node": In(NODE_BITS),
            "write": Out(ValidSignature(RegisterWrite)),
            "next": In(CYCLE_BITS),
            "sent": In(SentSignature()),
            "received": In(ReceivedSignature()),
            "read_bin": Out(1),
            "bin": In(32),
            "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        registers, pins = self._registers, flipped(self.host)
        operation = Signal(data.StructLayout({"valid": 1, "write": 1}))
        address, written = Signal.like(pins.address), Signal(64)
        m.d.sync += operation.valid.eq(pins.valid)
        with m.If(pins.valid):
            m.d.sync += [operation.write.eq(pins.write), address.eq(pins.address),
                         written.eq(pins.data)]
        reading = Signal()
        m.d.comb += [
            self.write.valid.eq(operation.valid & operation.write),
            self.write.payload.address.eq(address),
            self.write.payload.data.eq(written),
            reading.eq(operation.valid & ~operation.write),
        ]

        values = {registers.ident: IDENT, registers.node: self.node, registers.next: self.next}
        for side, signature in (("sent", SentSignature()), ("received", ReceivedSignature())):
            values |= {getattr(registers, f"{side}_{name}"): getattr(getattr(self, side), name)
                       for name in signature.members}
        value, found, binned = Signal(64), Signal(), Signal()
        m.d.sync += [found.eq(reading), self.host.read_valid.eq(found)]
        with m.If(reading):
            m.d.comb += self.read_bin.eq(address == registers.bin.offset)
            m.d.sync += [value.eq(0), binned.eq(self.read_bin)]
            with m.Switch(address):
                for register, source in values.items():
                    with m.Case(register.offset):
                        m.d.sync += value.eq(source)
        with m.If(found):
            m.d.sync += self.host.read_data.eq(Mux(binned, self.bin, value))
        m.d.comb += self.idle.eq(~(operation.valid | found | self.host.read_valid))
        return m
