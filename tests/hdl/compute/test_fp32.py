# amaranth: UnusedElaboratable=no
# ruff: noqa: ERA001
"""The rounding unit against exact rounding: widths, ties, specials, stalls, latency."""

from fractions import Fraction

import cocotb
import pytest

from hdl.compute.fp32 import CANONICAL_NAN, FixedToFp32, fixed_layout
from hdl.layouts import pack
from tests.bench import Bench, run_bench

from .oracle import round_to_fp32

WIDTH = 95


class Unit:
    """Feeds numbers with random gaps and stalls, and collects results."""

    def __init__(self, dut, rate):
        self.dut, self.rate = dut, rate
        self.bench = Bench(dut)
        self.queue, self.expected, self.found = [], [], []
        #: Advancing cycles so far; in flight: at which of them a number went in.
        self.moved, self.entered = 0, []
        self.bench.on_drive(self._drive)
        self.bench.on_sample(self._sample)
        self.bench.on_stuck(lambda: f"{len(self.queue)} numbers to send")

    def send(self, lsb, value=0, nan=0, plus_inf=0, minus_inf=0):
        self.queue.append(int.from_bytes(pack(fixed_layout(WIDTH), {
            "value": value % (1 << WIDTH), "nan": nan, "plus_inf": plus_inf,
            "minus_inf": minus_inf}), "little"))
        if nan or (plus_inf and minus_inf):
            self.expected.append(CANONICAL_NAN)
        elif plus_inf or minus_inf:
            self.expected.append(0xFF800000 if minus_inf else 0x7F800000)
        else:
            self.expected.append(round_to_fp32(Fraction(value) * Fraction(2) ** lsb))

    def _drive(self):
        rng = self.bench.rng
        self.dut.advance.value = int(rng.random() < self.rate)
        offer = bool(self.queue) and rng.random() < self.rate
        self.dut.valid.value = int(offer)
        if offer:
            self.dut.number.value = self.queue[0]

    def _sample(self):
        if not int(self.dut.advance.value):
            return
        if int(self.dut.result_valid.value):
            self.found.append(int(self.dut.result.value))
            assert self.moved - self.entered.pop(0) == FixedToFp32.LATENCY, "latency"
        if int(self.dut.valid.value):
            self.queue.pop(0)
            self.entered.append(self.moved)
        self.moved += 1

    async def finish(self):
        await self.bench.until(lambda: len(self.found) == len(self.expected), "result")
        for index, (found, expected) in enumerate(zip(self.found, self.expected, strict=True)):
            assert found == expected, f"number {index}: {found:#x}, not {expected:#x}"
        await self.bench.cycles(10)
        assert len(self.found) == len(self.expected) and not self.entered


@cocotb.test()
async def numbers_of_every_magnitude_round_to_nearest_even(dut):
    unit = Unit(dut, rate=0.8)
    await unit.bench.start()
    rng = unit.bench.rng
    for lsb in (-32, -25, -18):
        dut.lsb.value = lsb
        for bits in range(WIDTH):
            for value in (1 << bits, (1 << bits) - 1, rng.getrandbits(bits + 1),
                          # Ties, and one off on either side.
                          (rng.getrandbits(25) | 1) << max(0, bits - 25),
                          ((rng.getrandbits(25) | 1) << max(0, bits - 25)) + rng.choice((-1, 1))):
                value = min(value, (1 << WIDTH - 1) - 1)
                unit.send(lsb, value if rng.random() < 0.5 else -value)
        unit.send(lsb, -(1 << WIDTH - 1))
        unit.send(lsb, 0)
        for nan in range(2):
            for signs in range(4):
                unit.send(lsb, rng.getrandbits(60), nan, signs & 1, signs >> 1)
        await unit.finish()


def test_rounding_unit_rounds_once():
    run_bench(FixedToFp32(width=WIDTH, lsb=range(-32, -17)), __name__)


def test_ranges_that_could_overflow_or_be_subnormal_are_refused():
    with pytest.raises(ValueError, match="lsb"):
        FixedToFp32(width=95, lsb=range(-127, 0))
    with pytest.raises(ValueError, match="lsb"):
        FixedToFp32(width=95, lsb=range(35))
