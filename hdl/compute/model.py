"""Reference GEMM: what the engine computes, on arrays, fast enough for whole networks.

Every product of two 8-bit codes is an integer multiple of ``2**(lsb_a + lsb_b)``; the engine adds
them exactly and rounds once. Here float64 does the same as long as no sum can exceed its 53 bits,
which is the usual case. Otherwise operands are split into parts of few bits, so that each pair of
parts has an exact matrix product in float64; these are added as Python integers and rounded once.

The code is independent of the hardware's: no bit position or structure is shared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .fp8 import Fp8Format

__all__ = ["gemm"]

#: Bits of an operand's integer that one part holds: products of 2 parts have twice as many.
_PART_BITS = 15
_CANONICAL_NAN = np.uint32(0x7FC00000)


def gemm(a_codes: ArrayLike, b_codes: ArrayLike, a_format: Fp8Format,
         b_format: Fp8Format) -> NDArray[np.float32]:
    """The product of two matrices of codes, exact but for one rounding to nearest even per result.

    Parameters
    ----------
    a_codes, b_codes : uint8 arrays of shape (m, k) and (k, n)
    a_format, b_format : Fp8Format

    Returns
    -------
    float32 array of shape (m, n)
        An exact zero, and every result for k = 0, is +0. A NaN operand, an infinity times zero and
        opposite infinities give the NaN 0x7FC00000; otherwise an infinite product gives itself.

    Raises
    ------
    TypeError
        If codes are not uint8.
    ValueError
        If shapes do not fit.
    """
    a, b = np.asarray(a_codes), np.asarray(b_codes)
    for name, codes in (("a_codes", a), ("b_codes", b)):
        if codes.dtype != np.uint8:
            raise TypeError(f"{name} must be uint8, not {codes.dtype}")
        if codes.ndim != 2:
            raise ValueError(f"{name} must be a matrix, not of shape {codes.shape}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"inner sizes must be equal, not {a.shape[1]} and {b.shape[0]}")

    left, right = _integers(a, a_format), _integers(b, b_format)
    lsb = a_format.lsb + b_format.lsb
    if _largest(left) * _largest(right) * a.shape[1] <= 1 << 53:
        # Every partial sum is exact in float64, whatever the order; + 0 turns -0 into +0.
        exact = left.astype(np.float64) @ right.astype(np.float64) + 0.0
        result = np.ldexp(exact, lsb).astype(np.float32)
    else:
        result = _round(_sums(left, right), lsb)
    return _specials(result, a_format.decode(a), b_format.decode(b))


def _integers(codes: NDArray[np.uint8], form: Fp8Format) -> NDArray[np.int64]:
    """Operands in units of the format's lsb; specials are 0."""
    table = np.where(np.isfinite(form.values), form.values, 0).astype(np.float64)
    return np.ldexp(table, -form.lsb).astype(np.int64)[codes]


def _largest(values: NDArray[np.int64]) -> int:
    return int(np.abs(values).max(initial=0))


def _parts(values: NDArray[np.int64]) -> list[tuple[int, NDArray[np.float64]]]:
    """``values`` as a sum of ``part << shift``, parts below ``2**_PART_BITS`` in magnitude."""
    parts = []
    rest, shift = np.abs(values), 0
    while rest.any():
        part = rest & (1 << _PART_BITS) - 1
        if part.any():
            parts.append((shift, np.copysign(part.astype(np.float64), values)))
        rest >>= _PART_BITS
        shift += _PART_BITS
    return parts


def _sums(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.object_]:
    """Exact sums of products, as Python integers."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype=object)
    step = 1 << 53 - 2 * _PART_BITS  # terms that float64 adds exactly
    for begin in range(0, a.shape[1], step):
        ours, theirs = a[:, begin:begin + step], b[begin:begin + step]
        parts_b = _parts(theirs)
        for shift_a, part_a in _parts(ours):
            for shift_b, part_b in parts_b:
                product = (part_a @ part_b).astype(np.int64).astype(object)
                total += product << shift_a + shift_b
    return total


def _round(sums: NDArray[np.object_], lsb: int) -> NDArray[np.float32]:
    """``sums * 2**lsb`` rounded once, to nearest even."""
    flat = np.zeros(sums.size, dtype=np.float32)
    for index, value in enumerate(int(value) for value in sums.flat):
        # 25 bits and one for all the rest: float64 holds them, and float32 rounds once.
        magnitude = abs(value)
        extra = max(0, magnitude.bit_length() - 25)
        kept, lost = magnitude >> extra, magnitude & (1 << extra) - 1
        exact = float(2 * kept + (lost != 0))
        flat[index] = np.float32(np.ldexp(exact if value >= 0 else -exact, extra - 1 + lsb))
    return flat.reshape(sums.shape)


def _specials(result: NDArray[np.float32], a: NDArray[np.float32],
              b: NDArray[np.float32]) -> NDArray[np.float32]:
    special_a, special_b = ~np.isfinite(a), ~np.isfinite(b)
    rows, columns = special_a.any(axis=1), special_b.any(axis=0)
    if not (rows.any() or columns.any()):
        return result

    def count(left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return (left.astype(np.float32) @ right.astype(np.float32)) > 0

    ones_a, ones_b = np.ones_like(special_a), np.ones_like(special_b)
    inf_a, inf_b = np.isinf(a), np.isinf(b)
    nan = (count(np.isnan(a), ones_b) | count(ones_a, np.isnan(b))
           | count(inf_a, b == 0) | count(a == 0, inf_b))
    plus = np.zeros_like(nan)
    minus = np.zeros_like(nan)
    for left, right in ((inf_a, ones_b), (ones_a, inf_b)):
        up_a, up_b = left & ~np.signbit(a), right & ~np.signbit(b)
        down_a, down_b = left & np.signbit(a), right & np.signbit(b)
        plus |= count(up_a, up_b) | count(down_a, down_b)
        minus |= count(up_a, down_b) | count(down_a, up_b)
    result = result.copy()
    result[plus] = np.inf
    result[minus] = -np.inf
    result.view(np.uint32)[nan | plus & minus] = _CANONICAL_NAN
    return result
