"""The FP8 formats: every code against the specification, encoding against ml_dtypes and its
boundaries, the hardware decoder against the software one."""

from fractions import Fraction

import cocotb
import ml_dtypes
import numpy as np
import pytest
from cocotb.triggers import Timer

from hdl.compute.fp8 import E4M3, E5M2, Decoded, Decoder, by_format
from hdl.layouts import Format, unpack
from tests.bench import run_bench

from .oracle import table

FORMATS = pytest.mark.parametrize("form", [E4M3, E5M2], ids=str)
TYPES = {"E4M3": ml_dtypes.float8_e4m3fn, "E5M2": ml_dtypes.float8_e5m2}
CODES = np.arange(256, dtype=np.uint8)


@FORMATS
def test_every_code_has_the_value_of_the_specification(form):
    for code, value in enumerate(table(form.name)):
        if value == "nan":
            assert form.is_nan(code) and np.isnan(form.values[code])
        elif isinstance(value, str):
            assert form.is_inf(code) and form.values[code] == float(value)
        else:
            assert form.fraction(code) == value == Fraction(float(form.values[code]))
        assert np.signbit(form.values[code]) == (code >= 128)
    expected = CODES.view(TYPES[form.name]).astype(np.float32)
    assert np.array_equal(form.decode(CODES), expected, equal_nan=True)


@FORMATS
def test_encoding_returns_every_code_and_keeps_signs(form):
    codes = CODES[~np.isnan(form.values)]
    assert np.array_equal(form.encode(form.decode(codes), saturate=False), codes)
    nan = np.array([np.nan, -np.nan], dtype=np.float32)
    assert list(form.encode(nan)) == [0x7F, 0xFF]
    assert list(form.encode(np.array([0.0, -0.0]))) == [0, 0x80]


@FORMATS
def test_encoding_equals_ml_dtypes_on_random_float32(form, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = (rng.normal(size=1 << 18) * form.max / 3).astype(np.float32)
    small = (rng.normal(size=1 << 16) * 2.0 ** form.lsb).astype(np.float32)
    values = np.concatenate([words[~np.isnan(words)], near, small])
    found = form.encode(values, saturate=False)
    expected = values.astype(TYPES[form.name]).view(np.uint8)
    same = (found == expected) | np.isnan(form.decode(found)) & np.isnan(form.decode(expected))
    assert same.all(), values[~same][:5]


@pytest.mark.parametrize(("form", "value", "saturated", "other"), [
    (E4M3, 464.0, 448, 448), (E4M3, 464.00003, 448, np.nan), (E4M3, -1e30, -448, np.nan),
    (E4M3, np.inf, 448, np.nan), (E4M3, 2.0 ** -10, 0, 0), (E4M3, 0.00097656256, 2 ** -9, 2 ** -9),
    (E5M2, 61439.99, 57344, 57344), (E5M2, 61440.0, 57344, np.inf),
    (E5M2, -np.inf, -57344, -np.inf), (E5M2, 2.0 ** -17, 0, 0),
    (E5M2, 2.0 ** -17 * 1.0000001, 2 ** -16, 2 ** -16)])
def test_rounding_comes_before_overflow(form, value, saturated, other):
    array = np.array([value], dtype=np.float32)
    assert form.decode(form.encode(array))[0] == saturated
    assert np.array_equal(form.decode(form.encode(array, saturate=False)), [np.float32(other)],
                          equal_nan=True)


def test_float64_is_rounded_once():
    assert E4M3.decode(E4M3.encode(np.array([-431.99999999999994])))[0] == -416


def test_wrong_types_are_refused_by_name():
    with pytest.raises(TypeError, match="int64"):
        E4M3.encode(np.array([1]))
    with pytest.raises(TypeError, match="float32"):
        E4M3.decode(np.array([1.0], dtype=np.float32))
    with pytest.raises(ValueError, match="not finite"):
        E5M2.fraction(0x7C)
    with pytest.raises(ValueError, match="E4M3 or E5M2"):
        by_format(Format.F32)


@cocotb.test()
async def every_code_decodes_as_in_software(dut):
    for e5m2, form in enumerate((E4M3, E5M2)):
        for code in range(256):
            dut.code.value, dut.e5m2.value = code, e5m2
            await Timer(1, "ns")
            found = unpack(Decoded, int(dut.decoded.value))
            sign, significand, exponent = form.parts(code)
            assert found["sign"] == sign
            assert found["nan"] == form.is_nan(code) and found["inf"] == form.is_inf(code)
            if not form.is_nan(code) and not form.is_inf(code):
                assert (found["significand"], found["exponent"]) == (significand, exponent)


def test_decoder_equals_the_software_model():
    run_bench(Decoder(), __name__)
