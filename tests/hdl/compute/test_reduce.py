"""Reductions against exact fractions: specials, ties, subnormals, cancellation, and every pair of
8-bit codes."""

import itertools
import operator
import random
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import cocotb
import numpy as np
import pytest

from hdl.compute.reduce import LATENCY, Reducer, combine
from hdl.layouts import DType, ReduceOp
from tests.bench import Bench, run_bench


class Kind(NamedTuple):
    """A float type as its specification has it."""

    exponent_bits: int
    fraction_bits: int
    nan: int
    #: Code of the largest finite magnitude, and what is beyond it.
    largest: int
    beyond: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1


KINDS = {
    DType.F32: Kind(8, 23, 0x7FC00000, 0x7F7FFFFF, 0x7F800000),
    DType.BF16: Kind(8, 7, 0x7FC0, 0x7F7F, 0x7F80),
    DType.F16: Kind(5, 10, 0x7E00, 0x7BFF, 0x7C00),
    DType.E4M3: Kind(4, 3, 0x7F, 0x7E, 0x7E),
    DType.E5M2: Kind(5, 2, 0x7F, 0x7B, 0x7B),
}
INTEGERS = {DType.I32: 32, DType.I8: 8}
SIZES = {dtype: kind.width // 8 for dtype, kind in KINDS.items()} | {
    dtype: bits // 8 for dtype, bits in INTEGERS.items()}
EVERY = list(itertools.product(SIZES, (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX)))


@cache
def decode(bits: int, dtype: DType) -> Fraction | str:
    kind = KINDS[dtype]
    magnitude = bits & (1 << kind.width - 1) - 1
    sign = -1 if bits >> kind.width - 1 else 1
    if magnitude > kind.largest:
        infinite = dtype is not DType.E4M3 and magnitude == kind.largest + 1
        return ("inf" if sign > 0 else "-inf") if infinite else "nan"
    exponent = magnitude >> kind.fraction_bits
    fraction = magnitude & (1 << kind.fraction_bits) - 1
    if exponent:
        fraction |= 1 << kind.fraction_bits
    return sign * fraction * Fraction(2) ** (max(exponent, 1) - kind.bias - kind.fraction_bits)


def encode(value: Fraction, negative_zero: bool, dtype: DType) -> int:
    """Round to nearest even: find the exponent, then compare the exact remainder with a half."""
    kind = KINDS[dtype]
    if not value:
        return int(negative_zero) << kind.width - 1
    sign, size = (1 << kind.width - 1 if value < 0 else 0), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - (size < Fraction(2) ** exponent) + kind.bias, 1)
    scaled = size / Fraction(2) ** (exponent - kind.bias - kind.fraction_bits)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1):
        whole += 1
    # The code of a magnitude grows by one per step, across binades too.
    code = whole + ((exponent - 1) << kind.fraction_bits)
    return sign | (code if code <= kind.largest else kind.beyond)


def oracle(a: int, b: int, dtype: DType, op: ReduceOp) -> int:
    if dtype in INTEGERS:
        bits = INTEGERS[dtype]
        x, y = (code - (code >> bits - 1 << bits) for code in (a, b))
        result = {ReduceOp.SUM: operator.add, ReduceOp.MIN: min, ReduceOp.MAX: max}[op](x, y)
        return result % (1 << bits)
    kind = KINDS[dtype]
    x, y = decode(a, dtype), decode(b, dtype)
    if "nan" in (x, y):
        return kind.nan
    if op is not ReduceOp.SUM:
        def key(code: int) -> tuple[float | Fraction, bool]:
            value = decode(code, dtype)
            return float(value) if isinstance(value, str) else value, not code >> kind.width - 1
        return (min if op is ReduceOp.MIN else max)(a, b, key=key)
    if {x, y} == {"inf", "-inf"}:
        return kind.nan
    if isinstance(x, str) or isinstance(y, str):
        return a if isinstance(x, str) else b
    negative = 1 << kind.width - 1
    return encode(x + y, bool(a & negative and b & negative), dtype)


def specials(dtype: DType) -> list[int]:
    if dtype in INTEGERS:
        top = 1 << INTEGERS[dtype] - 1
        return [0, 1, 2, 0x7F, 0x80, 0xFF, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1,
                0x7F80FF01 % (2 * top), 0x80808080 % (2 * top)]
    kind = KINDS[dtype]
    fraction_bits, most = kind.fraction_bits, (1 << kind.exponent_bits) - 1
    ones = (1 << fraction_bits) - 1
    exponents = {0, 1, 2, 3, fraction_bits, fraction_bits + 3, kind.bias - 1, kind.bias,
                 kind.bias + 1, most - 2, most - 1, most}
    sizes = [exponent << fraction_bits | fraction
             for exponent in sorted(exponents) if exponent <= most
             for fraction in {0, 1, ones >> 1, ones >> 1 | 1 << fraction_bits - 1, ones}]
    return [sign << kind.width - 1 | size for size in sizes for sign in (0, 1)]


def pairs(dtype: DType, rng: random.Random, count: int) -> Iterator[tuple[int, int]]:
    """All special pairs, then random ones near each other, near ties, and anywhere; of 8-bit types
    all that there are."""
    width = 8 * SIZES[dtype]
    if width == 8:
        yield from itertools.product(range(256), repeat=2)
        return
    yield from itertools.product(specials(dtype), repeat=2)
    if dtype in INTEGERS:
        for _ in range(count):
            a = rng.getrandbits(width)
            yield a, rng.choice([rng.getrandbits(width), a ^ 1 << rng.randrange(width)])
        return
    kind = KINDS[dtype]
    fraction_bits, most = kind.fraction_bits, (1 << kind.exponent_bits) - 1
    for _ in range(count):
        a = rng.getrandbits(width)
        way = rng.randrange(5)
        if way == 0:
            b = rng.getrandbits(width)
        elif way == 1:  # close in magnitude, any signs: cancellation
            b = (a ^ rng.getrandbits(3) ^ rng.getrandbits(1) << width - 1)
            b = (b + (rng.randrange(-2, 3) << fraction_bits)) % (1 << width)
        elif way == 2:  # few fraction bits at a distance that makes ties
            distance = rng.randrange(0, fraction_bits + 5)
            exponent = max(0, (a >> fraction_bits & most) - distance)
            b = (rng.getrandbits(1) << width - 1 | exponent << fraction_bits
                 | rng.getrandbits(2) << fraction_bits - 2)
        elif way == 3:  # subnormals and the smallest normals
            a &= ~((most & ~3) << fraction_bits)
            b = rng.getrandbits(width) & ~((most & ~3) << fraction_bits)
        else:  # near overflow
            a |= (most & ~3) << fraction_bits
            b = rng.getrandbits(width) | (most & ~3) << fraction_bits
        yield a, b


def columns(cases: list[tuple[int, int]], dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    first, second = zip(*cases, strict=True)
    kind = f"u{SIZES[dtype]}"
    return np.array(first, kind), np.array(second, kind)


@pytest.mark.parametrize(("dtype", "op"), EVERY)
def test_reference_model_equals_exact_fractions(dtype: DType, op: ReduceOp) -> None:
    cases = list(pairs(dtype, random.Random(1), 4000))
    results = combine(*columns(cases, dtype), dtype, op)
    assert results.dtype == f"u{SIZES[dtype]}"
    for (x, y), got in zip(cases, results.tolist(), strict=True):
        assert got == oracle(x, y, dtype, op), (hex(x), hex(y))


def test_sums_of_8_bits_saturate_and_keep_infinities() -> None:
    def total(a: int, b: int, dtype: DType) -> int:
        return int(combine(np.uint8(a), np.uint8(b), dtype))

    assert total(0x7E, 0x7E, DType.E4M3) == 0x7E and total(0xFE, 0xFE, DType.E4M3) == 0xFE
    assert total(0x7E, 0x58, DType.E4M3) == 0x7E  # 448 + 16 = 464, the tie
    assert total(0x7B, 0x7B, DType.E5M2) == 0x7B
    assert total(0x7C, 0xFB, DType.E5M2) == 0x7C and total(0x7C, 0xFC, DType.E5M2) == 0x7F
    assert total(0x7F, 0xFF, DType.E4M3) == 0x7F


def test_reference_model_equals_ml_dtypes_on_bf16() -> None:
    import ml_dtypes

    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        for b in random.Random(2).sample(range(1 << 16), 24):
            other = np.uint16(b)
            want = codes.view(ml_dtypes.bfloat16) + other.view(ml_dtypes.bfloat16)
            nan = np.isnan(want.astype(np.float32))
            got = combine(codes, other, DType.BF16)
            np.testing.assert_array_equal(got, np.where(nan, np.uint16(0x7FC0),
                                                        want.view(np.uint16)))


@pytest.mark.parametrize(("dtype", "op"), [(9, ReduceOp.SUM), (DType.F16, ReduceOp.SWAP)])
def test_reference_model_refuses_what_there_is_not(dtype: DType, op: ReduceOp) -> None:
    with pytest.raises(ValueError, match="types are F32, BF16, F16, E4M3, E5M2, I32, I8"):
        combine(np.zeros(1, np.uint16), np.zeros(1, np.uint16), dtype, op)


class Flit(NamedTuple):
    dtype: DType
    op: ReduceOp
    a: int
    b: int
    result: int


def flits_of(dtype: DType, op: ReduceOp, cases: list[tuple[int, int]], size: int) -> list[Flit]:
    """As many whole flits of ``size`` bytes as there are, in an order of chance."""
    a, b = columns(cases, dtype)
    arrays = [a, b, combine(a, b, dtype, op)]
    step = size // SIZES[dtype]
    return [Flit(dtype, op, *(int.from_bytes(array[first:first + step].tobytes(), "little")
                              for array in arrays))
            for first in range(0, len(cases) - step + 1, step)]


@cocotb.test()
async def results_are_exact_and_arrive_four_enabled_cycles_later(dut) -> None:
    bench = Bench(dut)
    rng = bench.rng
    size = len(dut.a) // 8
    flits: list[Flit] = []
    for dtype, op in EVERY:
        count = 32 * size * (12 if op is ReduceOp.SUM else 3) // SIZES[dtype]
        cases = list(pairs(dtype, rng, count))
        rng.shuffle(cases)
        if op is not ReduceOp.SUM:
            del cases[4 * count:]
        flits += flits_of(dtype, op, cases, size)
    # Types change from flit to flit, or rest for a while.
    rng.shuffle(flits)
    flits[len(flits) // 2:] = sorted(flits[len(flits) // 2:], key=lambda flit: flit.dtype.value)
    waiting: list[tuple[int, int]] = []
    state = {"next": 0, "moved": 0, "checked": 0, "offered": False}

    def drive() -> None:
        dut.enable.value = int(rng.random() < 0.8)
        state["offered"] = state["next"] < len(flits) and rng.random() < 0.8
        dut.valid.value = int(state["offered"])
        if state["offered"]:
            flit = flits[state["next"]]
            dut.dtype.value, dut.op.value = flit.dtype.value, flit.op.value
            dut.a.value, dut.b.value = flit.a, flit.b

    def sample() -> None:
        due = bool(waiting) and state["moved"] == waiting[0][0] + LATENCY
        assert int(dut.result_valid.value) == int(due)
        assert int(dut.busy.value) == int(bool(waiting))
        if due:
            flit = flits[waiting[0][1]]
            got = int(dut.result.value)
            assert got == flit.result, (
                f"{flit.op.name} of {flit.dtype.name} {flit.a:0{2 * size}x} and "
                f"{flit.b:0{2 * size}x}: {got:0{2 * size}x} instead of {flit.result:0{2 * size}x}")
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
    bench.on_stuck(lambda: f"{len(waiting)} results in the pipeline")
    dut.enable.value = dut.valid.value = 0
    await bench.start()
    await bench.until(lambda: state["checked"] == len(flits), "last result")
    await bench.cycles(5)
    assert not waiting


@pytest.mark.parametrize("flit_bytes", [
    32, pytest.param(16, marks=pytest.mark.slow), pytest.param(64, marks=pytest.mark.slow)])
def test_reducer(flit_bytes: int) -> None:
    run_bench(Reducer(flit_bytes=flit_bytes), __name__)
