"""Commands, descriptors and completion records, as bytes, from the layouts that the RTL has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hdl import layouts
from hdl.layouts import NO_COUNTER, DType, Op, ReduceOp, Status

__all__ = ["COMMAND_BYTES", "COMPLETION_BYTES", "DESCRIPTOR_BYTES", "Command", "CompletionRecord",
           "Gemm", "packet_count"]

COMMAND_BYTES = 64
COMPLETION_BYTES = 32
DESCRIPTOR_BYTES = 128


def packet_count(address: int, length: int, mtu: int) -> int:
    """Packets that a transfer of ``length`` bytes to target offset ``address`` makes, and so what
    it adds to its target counter. Packets split where the address crosses a multiple of ``mtu``;
    length 0 is one packet."""
    return max(1, -(-(address % mtu + length) // mtu))


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command. Field meanings are those of :class:`hdl.layouts.Command`."""

    op: Op
    source: int = 0
    node: int = 0
    address: int = 0
    length: int = 0
    dtype: DType = DType.F32
    redop: ReduceOp = ReduceOp.SUM
    rail: int = 0
    #: (counter of this card, total), or ``None``.
    wait: tuple[int, int] | None = None
    target_counter: int = NO_COUNTER
    local_counter: int = NO_COUNTER
    ack: bool = False
    signal: bool = False
    tag: int = 0
    path: int = 0

    def labelled(self, tag: int) -> Command:
        return replace(self, tag=tag)

    def signalling(self) -> Command:
        return replace(self, signal=True)

    def pack(self) -> bytes:
        counter, value = self.wait or (0, 0)
        return layouts.pack(layouts.Command, {
            "op": self.op,
            "flags": {"ack": self.ack, "signal": self.signal, "wait": self.wait is not None},
            "tag": self.tag, "dtype": self.dtype, "redop": self.redop, "rail": self.rail,
            "path": self.path,
            "wait_counter": counter, "wait_value": value & 0xFFFF_FFFF,
            "target_counter": self.target_counter, "local_counter": self.local_counter,
            "length": self.length, "source": self.source,
            "target": {"offset": self.address, "node": self.node}})


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """One GEMM descriptor: addresses are offsets in the card's own memory, leading dimensions
    bytes. Field meanings are those of :class:`hdl.layouts.Descriptor`."""

    m: int
    n: int
    k: int
    a: int
    b: int
    c: int
    lda: int
    ldb: int
    ldc: int
    a_format: layouts.Format
    b_format: layouts.Format
    c_format: layouts.Format = layouts.Format.F32
    accumulate: layouts.Accumulate = layouts.Accumulate.EXACT
    b_transposed: bool = False

    def pack(self) -> bytes:
        return layouts.pack(layouts.Descriptor, vars(self))


@dataclass(frozen=True)
class CompletionRecord:
    """How one command of ``card`` ended, and when."""

    card: int
    queue: int
    op: Op | int
    status: Status | int
    tag: int
    peer: int
    link: int
    posted: int
    started: int
    ended: int

    @classmethod
    def parse(cls, card: int, raw: bytes) -> tuple[int, CompletionRecord]:
        """Return the phase bit and the record."""
        fields = layouts.unpack(layouts.Completion, raw)
        names = ("queue", "op", "status", "tag", "peer", "link", "posted", "started", "ended")
        return fields["phase"], cls(card, *(fields[name] for name in names))

    @property
    def ok(self) -> bool:
        return self.status == Status.OK
