"""What a GEMM must give, from the definition: exact fractions, one rounding, IEEE specials.

Independent of ``hdl.compute``: codes are decoded from the words of the OFP8 specification, sums are
Python integers, rounding is done on them.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from functools import cache

import numpy as np

__all__ = ["CANONICAL_NAN", "gemm_bits", "round_to_fp32", "table"]

CANONICAL_NAN = 0x7FC00000
#: name: (exponent bits, mantissa bits, exponent of the smallest subnormal)
_FORMATS = {"E4M3": (4, 3, -9), "E5M2": (5, 2, -16)}


@cache
def table(name: str) -> tuple[Fraction | str, ...]:
    """Value of each code: a fraction, or ``"nan"``, ``"+inf"``, ``"-inf"``."""
    exponent_bits, mantissa_bits, _ = _FORMATS[name]
    bias = 2 ** (exponent_bits - 1) - 1
    values: list[Fraction | str] = []
    for code in range(256):
        bits = f"{code:08b}"
        sign = -1 if bits[0] == "1" else 1
        exponent, mantissa = int(bits[1:1 + exponent_bits], 2), bits[1 + exponent_bits:]
        if name == "E4M3" and bits[1:] == "1111111":
            values.append("nan")
        elif name == "E5M2" and bits[1:6] == "11111":
            values.append(("+inf" if sign > 0 else "-inf") if mantissa == "00" else "nan")
        else:
            significand = Fraction(int(mantissa, 2), 2 ** mantissa_bits)
            values.append(sign * (significand * Fraction(2) ** (1 - bias) if exponent == 0
                                  else (1 + significand) * Fraction(2) ** (exponent - bias)))
    return tuple(values)


def round_to_fp32(value: Fraction) -> int:
    """Bits of the binary32 nearest to ``value``, ties to even; zero is +0."""
    if value == 0:
        return 0
    sign, magnitude = int(value < 0), abs(value)
    exponent = 0
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while magnitude < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, -126)
    scaled = magnitude / Fraction(2) ** (exponent - 23)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    # The hidden bit adds one to the biased exponent of normal numbers, and a carry another.
    bits = whole + (exponent + 126 << 23)
    return sign << 31 | min(bits, 0x7F800000)


def gemm_bits(a: np.ndarray, b: np.ndarray, a_name: str, b_name: str) -> np.ndarray:
    """Bits (uint32) of the product of two matrices of codes."""
    units = [Fraction(2) ** _FORMATS[name][2] for name in (a_name, b_name)]
    integers = [np.array([0 if isinstance(v, str) else int(v / unit) for v in table(name)],
                         dtype=object) for name, unit in zip((a_name, b_name), units, strict=True)]
    m, n = a.shape[0], b.shape[1]
    sums = (integers[0][a].dot(integers[1][b]) if a.shape[1]
            else np.zeros((m, n), dtype=object))
    bits = np.zeros((m, n), dtype=np.uint32)
    unit = units[0] * units[1]
    for i in range(m):
        for j in range(n):
            bits[i, j] = round_to_fp32(sums[i, j] * unit)
    special = [np.array([isinstance(v, str) for v in table(name)]) for name in (a_name, b_name)]
    rows, columns = special[0][a].any(axis=1), special[1][b].any(axis=0)
    for i in range(m):
        for j in range(n):
            if rows[i] or columns[j]:
                seen = {_product(table(a_name)[x], table(b_name)[y])
                        for x, y in zip(a[i], b[:, j], strict=True)}
                if "nan" in seen or {"+inf", "-inf"} <= seen:
                    bits[i, j] = CANONICAL_NAN
                elif "+inf" in seen or "-inf" in seen:
                    bits[i, j] = struct.unpack(
                        "<I", struct.pack("<f", float("inf" if "+inf" in seen else "-inf")))[0]
    return bits


def _product(x: Fraction | str, y: Fraction | str) -> str:
    if "nan" in (x, y):
        return "nan"
    if not isinstance(x, str) and not isinstance(y, str):
        return "finite"
    if x == 0 or y == 0:
        return "nan"
    negative = sum(v.startswith("-") if isinstance(v, str) else v < 0 for v in (x, y)) == 1
    return "-inf" if negative else "+inf"
