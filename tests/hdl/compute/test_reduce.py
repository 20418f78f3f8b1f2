"""The reduction adder against exact fractions: specials, ties, subnormals, cancellation."""

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction

import cocotb
import numpy as np
import pytest

from hdl.compute.reduce import LATENCY, ReduceAdder, add
from hdl.layouts import DType
from tests.bench import Bench, run_bench

FRACTION_BITS = {DType.F32: 23, DType.BF16: 7}


def decode(bits: int, dtype: DType) -> Fraction | str:
    fraction_bits = FRACTION_BITS[dtype]
    sign = -1 if bits >> fraction_bits + 8 else 1
    exponent = bits >> fraction_bits & 0xFF
    fraction = bits & (1 << fraction_bits) - 1
    if exponent == 0xFF:
        return "nan" if fraction else ("-inf" if sign < 0 else "inf")
    if exponent:
        fraction |= 1 << fraction_bits
    return sign * fraction * Fraction(2) ** (max(exponent, 1) - 127 - fraction_bits)


def encode(value: Fraction, negative_zero: bool, dtype: DType) -> int:
    """Round to nearest even: find the exponent, then compare the exact remainder with a half."""
    fraction_bits = FRACTION_BITS[dtype]
    top = fraction_bits + 8
    if not value:
        return int(negative_zero) << top
    sign, size = (1 << top if value < 0 else 0), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = min(max(exponent - (size < Fraction(2) ** exponent) + 127, 1), 0xFF)
    scaled = size / Fraction(2) ** (exponent - 127 - fraction_bits)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    # The code of a magnitude grows by one per step, across binades too.
    code = whole + ((exponent - 1) << fraction_bits)
    return sign | min(code, 0xFF << fraction_bits)


def oracle(a: int, b: int, dtype: DType) -> int:
    fraction_bits = FRACTION_BITS[dtype]
    x, y = decode(a, dtype), decode(b, dtype)
    nan = (0xFF << fraction_bits) | 1 << fraction_bits - 1
    if "nan" in (x, y) or {x, y} == {"inf", "-inf"}:
        return nan
    if isinstance(x, str) or isinstance(y, str):
        return a if isinstance(x, str) else b
    top = fraction_bits + 8
    return encode(x + y, bool(a >> top and b >> top), dtype)


def specials(dtype: DType) -> list[int]:
    fraction_bits = FRACTION_BITS[dtype]
    ones = (1 << fraction_bits) - 1
    sizes = [exponent << fraction_bits | fraction
             for exponent in (0, 1, 2, 3, fraction_bits, fraction_bits + 3, 126, 127, 128, 253, 254,
                              255)
             for fraction in (0, 1, ones >> 1, ones >> 1 | 1 << fraction_bits - 1, ones)]
    return [sign << fraction_bits + 8 | size for size in sizes for sign in (0, 1)]


def pairs(dtype: DType, rng: random.Random, count: int) -> Iterator[tuple[int, int]]:
    """All special pairs, then random ones near each other, near ties, and anywhere."""
    yield from itertools.product(specials(dtype), repeat=2)
    fraction_bits = FRACTION_BITS[dtype]
    width = fraction_bits + 9
    for _ in range(count):
        a = rng.getrandbits(width)
        kind = rng.randrange(5)
        if kind == 0:
            b = rng.getrandbits(width)
        elif kind == 1:  # close in magnitude, any signs: cancellation
            b = (a ^ rng.getrandbits(3) ^ rng.getrandbits(1) << width - 1)
            b = (b + (rng.randrange(-2, 3) << fraction_bits)) % (1 << width)
        elif kind == 2:  # few fraction bits at a distance that makes ties
            distance = rng.randrange(0, fraction_bits + 5)
            exponent = max(0, (a >> fraction_bits & 0xFF) - distance)
            b = (rng.getrandbits(1) << width - 1 | exponent << fraction_bits
                 | rng.getrandbits(2) << fraction_bits - 2)
        elif kind == 3:  # subnormals and the smallest normals
            a &= ~(0xFC << fraction_bits)
            b = rng.getrandbits(width) & ~(0xFC << fraction_bits)
        else:  # near overflow
            a |= 0xFC << fraction_bits
            b = rng.getrandbits(width) | 0xFC << fraction_bits
        yield a, b


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_reference_model_equals_exact_fractions(dtype: DType) -> None:
    rng = random.Random(1)
    cases = list(pairs(dtype, rng, 4000))
    kind = np.uint32 if dtype is DType.F32 else np.uint16
    a, b = (np.array(column, kind) for column in zip(*cases, strict=True))
    for (x, y), got in zip(cases, add(a, b, dtype), strict=True):
        assert int(got) == oracle(x, y, dtype), (hex(x), hex(y))


def test_reference_model_equals_ml_dtypes_on_bf16() -> None:
    import ml_dtypes

    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        for b in random.Random(2).sample(range(1 << 16), 24):
            other = np.uint16(b)
            want = codes.view(ml_dtypes.bfloat16) + other.view(ml_dtypes.bfloat16)
            nan = np.isnan(want.astype(np.float32))
            got = add(codes, other, DType.BF16)
            np.testing.assert_array_equal(got, np.where(nan, np.uint16(0x7FC0),
                                                        want.view(np.uint16)))


def test_reference_model_refuses_other_types() -> None:
    with pytest.raises(ValueError, match="F32 or BF16"):
        add(np.zeros(1, np.uint16), np.zeros(1, np.uint16), DType.F16)


@cocotb.test()
async def sums_are_exact_and_arrive_four_enabled_cycles_later(dut) -> None:
    bench = Bench(dut)
    rng = bench.rng
    flits: list[tuple[DType, int, int, int]] = []
    for dtype, lanes, count in ((DType.F32, 8, 12000), (DType.BF16, 16, 24000)):
        width = 256 // lanes
        cases = list(pairs(dtype, rng, count))
        kind = np.uint32 if dtype is DType.F32 else np.uint16
        a, b = (np.array(column, kind) for column in zip(*cases, strict=True))
        sums = add(a, b, dtype)
        for first in range(0, len(cases) - lanes + 1, lanes):
            words = [0, 0, 0]
            for lane in range(lanes):
                for column, values in enumerate((a, b, sums)):
                    words[column] |= int(values[first + lane]) << width * lane
            flits.append((dtype, *words))
    rng.shuffle(flits)
    waiting: list[tuple[int, int]] = []
    state = {"next": 0, "moved": 0, "checked": 0, "offered": False}

    def drive() -> None:
        dut.enable.value = int(rng.random() < 0.8)
        state["offered"] = state["next"] < len(flits) and rng.random() < 0.8
        dut.valid.value = int(state["offered"])
        if state["offered"]:
            dtype, a, b, _ = flits[state["next"]]
            dut.dtype.value, dut.a.value, dut.b.value = dtype.value, a, b

    def sample() -> None:
        due = bool(waiting) and state["moved"] == waiting[0][0] + LATENCY
        assert int(dut.result_valid.value) == int(due)
        assert int(dut.busy.value) == int(bool(waiting))
        if due:
            index = waiting[0][1]
            dtype, *operands, want = flits[index]
            got = int(dut.result.value)
            assert got == want, (f"{dtype.name} {operands[0]:064x} + {operands[1]:064x}: "
                                 f"{got:064x} instead of {want:064x}")
        if int(dut.enable.value):
            if due:
                waiting.pop(0)
                state["checked"] += 1
            if state["offered"]:
                waiting.append((state["moved"], state["next"]))
                state["next"] += 1
            state["moved"] += 1

    bench.on_drive(drive)
    bench.on_sample(sample)
    bench.on_stuck(lambda: f"{len(waiting)} sums in the pipeline")
    dut.enable.value = dut.valid.value = 0
    await bench.start()
    await bench.until(lambda: state["checked"] == len(flits), "last sum")
    await bench.cycles(5)
    assert not waiting


def test_reduce_adder() -> None:
    run_bench(ReduceAdder(), __name__)
