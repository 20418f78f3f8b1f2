"""Commands, descriptors and completion records, as bytes, from the layouts that the RTL has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from amaranth.lib import data

from hdl import layouts
from hdl.layouts import NO_COUNTER, DType, Op, ReduceOp, Status

__all__ = ["COMMAND_BYTES", "COMPLETION_BYTES", "DESCRIPTOR_BYTES", "Command", "CommandList",
           "CompletionRecord", "Gemm", "packet_count", "put_field"]

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
    #: Of a REDUCE: offset of the other operand in the target's memory, if it is not the target.
    addend: int | None = None

    def signalling(self) -> Command:
        return replace(self, signal=True)

    @classmethod
    def parse(cls, raw: bytes) -> Command:
        """The command that these bytes spell, as far as its fields are known here."""
        fields = layouts.unpack(layouts.Command, raw)
        flags, target = fields["flags"], fields["target"]
        names = ("op", "source", "length", "dtype", "redop", "rail", "target_counter",
                 "local_counter", "tag", "path")
        return cls(**{name: fields[name] for name in names}, ack=bool(flags["ack"]),
                   signal=bool(flags["signal"]), node=target["node"], address=target["offset"],
                   wait=(fields["wait_counter"], fields["wait_value"]) if flags["wait"] else None,
                   addend=fields["addend"] if flags["addend"] else None)

    def pack(self) -> bytes:
        counter, value = self.wait or (0, 0)
        return layouts.pack(layouts.Command, {
            "op": self.op,
            "flags": {"ack": self.ack, "signal": self.signal, "wait": self.wait is not None,
                      "addend": self.addend is not None},
            "tag": self.tag, "dtype": self.dtype, "redop": self.redop, "rail": self.rail,
            "path": self.path, "addend": self.addend or 0,
            "wait_counter": counter, "wait_value": value & 0xFFFF_FFFF,
            "target_counter": self.target_counter, "local_counter": self.local_counter,
            "length": self.length, "source": self.source,
            "target": {"offset": self.address, "node": self.node}})


@cache
def _field(*path: str) -> tuple[int, int]:
    """First bit and width of a field of a command."""
    layout, offset, width = data.Layout.cast(layouts.Command), 0, 0
    for name in path:
        field = layout[name]
        offset, width = offset + field.offset, field.width
        if name != path[-1]:
            layout = data.Layout.cast(field.shape)
    return offset, width


def put_field(raw: np.ndarray, path: Sequence[str], values: np.ndarray | int) -> None:
    """Set a field of packed commands, one a row of ``raw``: flags of one bit, or whole bytes."""
    offset, width = _field(*path)
    if width == 1:
        bit = np.uint8(1 << offset % 8)
        raw[:, offset // 8] = np.where(values, raw[:, offset // 8] | bit,
                                       raw[:, offset // 8] & ~bit)
        return
    if offset % 8 or width % 8:
        raise ValueError(f"{'.'.join(path)} is no field of whole bytes")
    words = np.broadcast_to(np.asarray(values, "<u8"), len(raw))
    lanes = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)
    raw[:, offset // 8:(offset + width) // 8] = lanes[:, :width // 8]


@dataclass(eq=False)
class CommandList:
    """Packed commands, one a row of 64 bytes, and which of them signal. Not to be used after it has
    been posted."""

    raw: np.ndarray
    signals: np.ndarray

    @classmethod
    def of(cls, commands: Sequence[Command]) -> CommandList:
        raw = b"".join(command.pack() for command in commands)
        return cls(np.frombuffer(bytearray(raw), np.uint8).reshape(-1, COMMAND_BYTES),
                   np.array([command.signal for command in commands], bool))

    def to_state(self) -> dict[str, Any]:
        """The list as plain data."""
        return {"raw": self.raw.tobytes().hex(), "signals": np.flatnonzero(self.signals).tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CommandList:
        """The list whose :meth:`to_state` this is."""
        raw = np.frombuffer(bytearray.fromhex(state["raw"]), np.uint8).reshape(-1, COMMAND_BYTES)
        signals = np.zeros(len(raw), bool)
        signals[state["signals"]] = True
        return cls(raw, signals)

    def __len__(self) -> int:
        return len(self.raw)

    def label(self, tag: int) -> None:
        """Give all commands a tag."""
        put_field(self.raw, ("tag",), tag)

    def signal(self, place: int) -> bool:
        """Let a command signal; return whether it did not before."""
        put_field(self.raw[place:place + 1], ("flags", "signal"), 1)
        changed = not self.signals[place]
        self.signals[place] = True
        return changed


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

    @staticmethod
    def phase(raw: np.ndarray) -> int:
        """The phase bit of a record, its first."""
        return int(raw[0]) & 1

    @classmethod
    def parse(cls, card: int, raw: bytes) -> CompletionRecord:
        """Return the record that ``raw`` holds."""
        fields = layouts.unpack(layouts.Completion, raw)
        names = ("queue", "op", "status", "tag", "peer", "link", "posted", "started", "ended")
        return cls(card, *(fields[name] for name in names))

    @property
    def ok(self) -> bool:
        return self.status == Status.OK
