"""A compute tile with memory around it: lays out operands, runs GEMMs, compares every byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdl.layouts import Accumulate, Descriptor, Format, Status, pack, unpack
from hdl.ports import GemmDone, GemmRequest
from tests.bench import Bench, MemoryPorts, Sink, Source

from .oracle import gemm_bits

__all__ = ["Gemm", "GemmBench"]

_FORMATS = {"E4M3": Format.E4M3, "E5M2": Format.E5M2}


@dataclass
class Gemm:
    """One GEMM: operands as codes, and how they lie in memory.

    ``shift`` are the byte offsets of A and B (of 1) and C (of 4) from a flit boundary, ``pad`` what
    leading dimensions have more than a row.
    """

    a: np.ndarray
    b: np.ndarray
    a_format: str = "E4M3"
    b_format: str = "E4M3"
    b_transposed: bool = False
    shift: tuple[int, int, int] = (0, 0, 0)
    pad: tuple[int, int, int] = (0, 0, 0)
    #: Fields of the descriptor to replace.
    override: dict[str, Any] = field(default_factory=dict)
    status: Status = Status.OK

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]


class GemmBench:
    """Memory, request and done streams of a compute tile."""

    SIZE = 1 << 19

    def __init__(self, dut: Any, *, ports: int, latency: int = 64, rate: float = 1.0,
                 limit: int = 300_000) -> None:
        self.dut = dut
        self.bench = Bench(dut, limit=limit)
        self.rng = np.random.default_rng(self.bench.rng.getrandbits(32))
        self.memory = MemoryPorts(
            self.bench, [f"read__{index}" for index in range(ports)], ["write"], size=self.SIZE,
            latency=latency, rate=rate)
        self.requests = Source(self.bench, "gemm", rate=rate)
        self.done = Sink(self.bench, "done", rate=rate)
        self.bench.on_drive(self._now)
        self.bench.on_stuck(lambda: f"{len(self.requests.sent) - len(self.done.received)} "
                                    "GEMMs accepted and not done")
        self._next = 128
        self._expected: list[tuple[Gemm, int, int, bytes]] = []
        dut.memory_bytes.value = self.SIZE

    def _now(self) -> None:
        self.dut.now.value = max(0, self.bench.cycle)

    def _place(self, size: int, shift: int) -> int:
        address = -(-self._next // 128) * 128 + 128 + shift
        self._next = address + size
        assert self._next + 256 < self.SIZE, "bench memory is full"
        return address

    def reset(self) -> None:
        """Forget earlier GEMMs and reuse their memory."""
        self._next = 128
        self._expected.clear()

    def post(self, gemm: Gemm) -> None:
        """Write operands and descriptor of ``gemm`` to memory and queue its request."""
        data = self.memory.data
        m, n, k = gemm.sizes
        b = gemm.b.T if gemm.b_transposed else gemm.b
        fields: dict[str, Any] = {}
        for name, matrix, shift, pad in (("a", gemm.a, gemm.shift[0], gemm.pad[0]),
                                         ("b", b, gemm.shift[1], gemm.pad[1])):
            pitch = matrix.shape[1] + pad
            size = max(1, matrix.shape[0] * pitch)
            address = self._place(size, shift)
            # What lies between rows must not matter: NaNs and more.
            data[address - 32:address + size + 32] = self.rng.bytes(size + 64)
            for row in range(matrix.shape[0]):
                start = address + row * pitch
                data[start:start + matrix.shape[1]] = matrix[row].tobytes()
            fields |= {name: address, f"ld{name}": pitch}
        pitch = 4 * (n + gemm.pad[2])
        size = max(4, m * pitch)
        c = self._place(size, 4 * gemm.shift[2])
        data[c - 64:c + size + 64] = self.rng.bytes(size + 128)
        fields |= {"m": m, "n": n, "k": k, "c": c, "ldc": pitch, "c_format": Format.F32,
                   "a_format": _FORMATS[gemm.a_format], "b_format": _FORMATS[gemm.b_format],
                   "accumulate": Accumulate.EXACT, "b_transposed": gemm.b_transposed}
        descriptor = self._place(128, 0)
        data[descriptor:descriptor + 128] = pack(Descriptor, fields | gemm.override)

        before = bytes(data[c - 64:c + size + 64])
        expected = bytearray(before)
        if gemm.status is Status.OK:
            bits = gemm_bits(gemm.a, gemm.b, gemm.a_format, gemm.b_format)
            for row in range(m):
                start = 64 + row * pitch
                expected[start:start + 4 * n] = bits[row].astype("<u4").tobytes()
        slot = len(self._expected) % 16
        self._expected.append((gemm, slot, c - 64, bytes(expected)))
        self.requests.send(int.from_bytes(
            pack(GemmRequest, {"descriptor": descriptor, "slot": slot}), "little"))

    async def finish(self) -> list[int]:
        """Wait for all that was posted, check it, and return each GEMM's cycles."""
        count = len(self._expected)
        first = len(self.done.received)
        await self.bench.until(lambda: len(self.done.received) - first >= count, "GEMM done")
        # Done means written: nothing may follow.
        finished = len(self.memory.log)
        lengths = []
        for (cycle, payload), (gemm, slot, where, expected) in zip(
                self.done.received[first:], self._expected, strict=True):
            what = unpack(GemmDone, payload)
            assert what["slot"] == slot, f"slot {what['slot']}, not {slot}"
            assert what["status"] is gemm.status, f"{gemm.sizes}: {what['status']}"
            started = what["started"]
            assert started in [sent for sent, _ in self.requests.sent], f"started at {started}"
            lengths.append(cycle - started)
            found = bytes(self.memory.data[where:where + len(expected)])
            if found != expected:
                self._explain(gemm, found, expected)
        await self.bench.cycles(80)
        assert len(self.memory.log) == finished, "writes after done"
        assert int(self.dut.idle.value), "not idle at the end"
        self.reset()
        return lengths

    def _explain(self, gemm: Gemm, found: bytes, expected: bytes) -> None:
        wrong = [index for index in range(len(found)) if found[index] != expected[index]]
        pitch = 4 * (gemm.sizes[1] + gemm.pad[2])
        places = [divmod(index - 64, pitch) for index in wrong[:6]]
        words = [(found[i & ~3:(i & ~3) + 4][::-1].hex(), expected[i & ~3:(i & ~3) + 4][::-1].hex())
                 for i in wrong[:3]]
        raise AssertionError(
            f"m, n, k = {gemm.sizes}, {gemm.a_format}×{gemm.b_format}, B^T {gemm.b_transposed}, "
            f"shift {gemm.shift}, pad {gemm.pad}: {len(wrong)} wrong bytes, first at (row, byte) "
            f"{places}, found and expected {words}")
