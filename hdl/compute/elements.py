"""Element types of reductions: fields, special codes and sizes, for adders, checks and models.

=====  ========  ========  =========  ======================  ===============
type   exponent  fraction  infinity   NaN that results have   beyond the largest
=====  ========  ========  =========  ======================  ===============
F32    8         23        yes        0x7FC00000              infinity
BF16   8         7         yes        0x7FC0                  infinity
F16    5         10        yes        0x7E00                  infinity
E4M3   4         3         no         0x7F                    ±448
E5M2   5         2         yes        0x7F                    ±57344
I32    –         –         –          –                       modulo 2**32
I8     –         –         –          –                       modulo 2**8
=====  ========  ========  =========  ======================  ===============
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from amaranth.hdl import Value

from ..layouts import DType, ReduceOp
from .fp8 import E4M3, E5M2, Fp8Format

__all__ = ["ELEMENT_BYTES", "FLOATS", "FloatFormat", "INTEGERS", "OPERATORS", "is_reducible",
           "reducible"]


@dataclass(frozen=True)
class FloatFormat:
    """Sign, exponent and fraction, the sign on top. Codes are those of positive numbers."""

    exponent_bits: int
    fraction_bits: int
    #: The largest magnitude that is no NaN: infinity, or of E4M3 the largest number.
    limit: int
    #: ``limit`` is infinity.
    infinite: bool
    #: What a finite sum beyond the largest number becomes.
    overflow: int
    #: The NaN of all results that are one.
    nan: int

    @property
    def precision(self) -> int:
        """Bits of a significand, the hidden one included."""
        return self.fraction_bits + 1

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits


def _ieee(exponent_bits: int, fraction_bits: int) -> FloatFormat:
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    return FloatFormat(exponent_bits, fraction_bits, limit=infinity, infinite=True,
                       overflow=infinity, nan=infinity | 1 << fraction_bits - 1)


def _saturating(form: Fp8Format) -> FloatFormat:
    return FloatFormat(form.exponent_bits, form.mantissa_bits,
                       limit=form.max_code if form.inf_code is None else form.inf_code,
                       infinite=form.has_inf, overflow=form.max_code, nan=form.nan_code)


FLOATS: Mapping[DType, FloatFormat] = MappingProxyType({
    DType.F32: _ieee(8, 23), DType.BF16: _ieee(8, 7), DType.F16: _ieee(5, 10),
    DType.E4M3: _saturating(E4M3), DType.E5M2: _saturating(E5M2)})
#: Bits of the integer types, which are signed.
INTEGERS: Mapping[DType, int] = MappingProxyType({DType.I32: 32, DType.I8: 8})
#: Size of every type that can be reduced.
ELEMENT_BYTES: Mapping[DType, int] = MappingProxyType(
    {dtype: form.width // 8 for dtype, form in FLOATS.items()}
    | {dtype: bits // 8 for dtype, bits in INTEGERS.items()})
#: Operators of reductions.
OPERATORS = (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX)


def is_reducible(dtype: Any, op: Any, places: int) -> bool:
    """Whether there is a reduction of ``dtype`` by ``op``, and ``places``, the bitwise or of
    addresses and lengths, consists of multiples of the element."""
    return (dtype in ELEMENT_BYTES and op in OPERATORS
            and places % ELEMENT_BYTES[dtype] == 0)


def reducible(dtype: Value, op: Value, places: Value) -> Value:
    """:func:`is_reducible` in hardware."""
    found: Value | int = 0
    for size in (1, 2, 4):
        known = dtype.matches(*(kind for kind in ELEMENT_BYTES if ELEMENT_BYTES[kind] == size))
        found |= known & ~places[:size.bit_length() - 1].any()
    return op.matches(*OPERATORS) & found
