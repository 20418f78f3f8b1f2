"""The reference GEMM against exact arithmetic."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from hdl.compute.fp8 import E4M3, E5M2
from hdl.compute.model import gemm

from .oracle import CANONICAL_NAN, gemm_bits, round_to_fp32, table

PAIRS = pytest.mark.parametrize(("a_format", "b_format"),
                                list(itertools.product((E4M3, E5M2), repeat=2)))
CODES = np.arange(256, dtype=np.uint8)


@PAIRS
def test_every_product_is_exact(a_format, b_format):
    found = gemm(CODES[:, None], CODES[None, :], a_format, b_format).view(np.uint32)
    assert np.array_equal(found, gemm_bits(CODES[:, None], CODES[None, :], a_format.name,
                                           b_format.name))


@PAIRS
@pytest.mark.parametrize("finite", [False, True])
def test_random_sums_are_exact(a_format, b_format, finite, seed):
    rng = np.random.default_rng(seed)
    for _ in range(6):
        m, k, n = rng.integers(0, 24, 3)
        a = rng.integers(0, 256, (m, k), dtype=np.uint8)
        b = rng.integers(0, 256, (k, n), dtype=np.uint8)
        if finite:
            a[a & 0x78 == 0x78] &= 0x87
            b[b & 0x78 == 0x78] &= 0x87
        assert np.array_equal(gemm(a, b, a_format, b_format).view(np.uint32),
                              gemm_bits(a, b, a_format.name, b_format.name))


def test_cancellation_leaves_the_smallest_product():
    # 57344² − 57344² + 2^-16 · 2^-16: 64 bits apart.
    a = np.array([[0x7B, 0x7B, 0x01]], dtype=np.uint8)
    b = np.array([[0x7B], [0xFB], [0x01]], dtype=np.uint8)
    assert gemm(a, b, E5M2, E5M2)[0, 0] == 2.0 ** -32


def test_exact_accumulation_differs_from_short_alignment():
    a = E4M3.encode(np.array([[448.0] + 31 * [1.0]]))
    assert gemm(a, a.T, E4M3, E4M3)[0, 0] == 200735


def test_zero_depth_gives_plus_zero():
    result = gemm(np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8), E4M3, E5M2)
    assert result.shape == (2, 3) and not result.view(np.uint32).any()


@pytest.mark.parametrize(("a", "b", "bits"), [
    ([0x7C], [0x00], CANONICAL_NAN), ([0x7C], [0x3C], 0x7F800000), ([0x7C], [0xBC], 0xFF800000),
    ([0x7C, 0xFC], [0x3C, 0x3C], CANONICAL_NAN), ([0xFC, 0xFC], [0x3C, 0x3C], 0xFF800000),
    ([0x7D, 0x7C], [0x3C, 0x3C], CANONICAL_NAN)])
def test_specials_follow_ieee(a, b, bits):
    left, right = np.array([a], np.uint8), np.array(b, np.uint8)[:, None]
    assert gemm(left, right, E5M2, E5M2).view(np.uint32)[0, 0] == bits


def test_wrong_shapes_and_types_are_refused():
    codes = np.zeros((2, 3), np.uint8)
    with pytest.raises(ValueError, match="3 and 2"):
        gemm(codes, codes, E4M3, E4M3)
    with pytest.raises(TypeError, match="float64"):
        gemm(codes, codes.T.astype(float), E4M3, E4M3)


def test_the_oracle_rounds_as_numpy_does(seed):
    rng = np.random.default_rng(seed)
    for value in rng.normal(size=200) * 2.0 ** rng.integers(-30, 60, 200):
        assert round_to_fp32(Fraction(value)) == np.float32(value).view(np.uint32)
    assert table("E4M3")[0x7E] == 448
