"""The OCP 8-bit floating-point formats E4M3FN and E5M2: software model and hardware in one object.

A finite code is ``(-1)**sign * significand * 2**exponent`` in units of the format's smallest
subnormal (``2**lsb``), with a significand of at most 4 bits and an exponent from 0 upwards. Zeros
and subnormals are ordinary values of that form, so the hardware has no special case for them.

============  ======  =======  =========  ====================
format        lsb     max      infinity   NaN
============  ======  =======  =========  ====================
E4M3FN        −9      448      none       S.1111.111
E5M2          −16     57344    S.11111.00 S.11111.{01, 10, 11}
============  ======  =======  =========  ====================

Source: OCP 8-bit Floating Point Specification (OFP8), revision 1.0.
"""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from amaranth.hdl import Module, Mux, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import ArrayLike, NDArray

from ..layouts import Format

__all__ = ["Decoded", "Decoder", "E4M3", "E5M2", "Fp8Format", "by_format"]


class Decoded(data.Struct):
    """A decoded code: ``significand << exponent`` units of ``2**lsb``, or a special.

    ``significand`` and ``exponent`` mean nothing while ``nan`` or ``inf``; ``sign`` always holds.
    """

    significand: unsigned(4)
    exponent: unsigned(5)
    sign: unsigned(1)
    nan: unsigned(1)
    inf: unsigned(1)


class Fp8Format:
    """One 8-bit format.

    Parameters
    ----------
    name : str
        Name in error messages and reports.
    exponent_bits, mantissa_bits : int
        Field widths; together 7.
    has_inf : bool
        Whether the top exponent holds infinities and NaNs (as IEEE) or one NaN per sign only.
    """

    def __init__(self, name: str, *, exponent_bits: int, mantissa_bits: int, has_inf: bool) -> None:
        if exponent_bits + mantissa_bits != 7:
            raise ValueError(f"exponent and mantissa must have 7 bits together, not "
                             f"{exponent_bits} + {mantissa_bits}")
        self._name = name
        self._exponent_bits = exponent_bits
        self._mantissa_bits = mantissa_bits
        self._has_inf = has_inf
        top = (1 << exponent_bits) - 1 << mantissa_bits
        #: Code of the largest finite value.
        self.max_code = top - 1 if has_inf else 0x7E
        self.inf_code = top if has_inf else None
        self.nan_code = 0x7F
        exact = [self.fraction(code) for code in range(self.max_code + 1)]
        # One value beyond the largest, where the next exponent step would put it: rounding at the
        # target width comes first, the test for overflow second.
        ulp = Fraction(2) ** ((self.max_code >> mantissa_bits) - 1 + self.lsb)
        exact.append(exact[-1] + ulp)
        self._midpoints = np.array([float((low + high) / 2)
                                    for low, high in pairwise(exact)])
        self._values = np.array([self._float(code) for code in range(256)], dtype=np.float32)
        self._values.flags.writeable = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def exponent_bits(self) -> int:
        return self._exponent_bits

    @property
    def mantissa_bits(self) -> int:
        return self._mantissa_bits

    @property
    def has_inf(self) -> bool:
        return self._has_inf

    @property
    def bias(self) -> int:
        return (1 << self._exponent_bits - 1) - 1

    @property
    def lsb(self) -> int:
        """Exponent of the smallest subnormal: every finite value is a multiple of ``2**lsb``."""
        return 1 - self.bias - self._mantissa_bits

    @property
    def max(self) -> float:
        """Largest finite value."""
        return float(self.fraction(self.max_code))

    @property
    def values(self) -> NDArray[np.float32]:
        """The float32 value of each of the 256 codes; exact."""
        return self._values

    def __repr__(self) -> str:
        return self._name

    def is_inf(self, code: int) -> bool:
        return self._has_inf and code & 0x7F == self.inf_code

    def is_nan(self, code: int) -> bool:
        return code & 0x7F > (self.max_code if self.inf_code is None else self.inf_code)

    def parts(self, code: int) -> tuple[int, int, int]:
        """``(sign, significand, exponent)`` of a code, as the hardware decodes it."""
        mantissa = code & (1 << self._mantissa_bits) - 1
        field = code >> self._mantissa_bits & (1 << self._exponent_bits) - 1
        return code >> 7, mantissa | bool(field) << self._mantissa_bits, max(field, 1) - 1

    def fraction(self, code: int) -> Fraction:
        """The exact value of a finite code (both zeros give 0).

        Raises
        ------
        ValueError
            If the code is an infinity or a NaN.
        """
        if not 0 <= code <= 255:
            raise ValueError(f"code must be from 0 to 255, not {code!r}")
        if self.is_nan(code) or self.is_inf(code):
            raise ValueError(f"{self._name} code {code:#04x} is not finite")
        sign, significand, exponent = self.parts(code)
        return (-1) ** sign * significand * Fraction(2) ** (exponent + self.lsb)

    def _float(self, code: int) -> float:
        if self.is_nan(code):
            magnitude = math.nan
        elif self.is_inf(code):
            magnitude = math.inf
        else:
            magnitude = abs(float(self.fraction(code)))
        return math.copysign(magnitude, -1.0 if code >> 7 else 1.0)

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Values of an array of codes (uint8); exact.

        Raises
        ------
        TypeError
            If ``codes`` is not of type uint8.
        """
        array = np.asarray(codes)
        if array.dtype != np.uint8:
            raise TypeError(f"codes must be uint8, not {array.dtype}")
        return self._values[array]

    def encode(self, values: ArrayLike, saturate: bool = True) -> NDArray[np.uint8]:
        """Codes of an array of float values, rounded to nearest even once, from any float type.

        Overflow and infinities become ± the largest value when ``saturate``; otherwise ±infinity,
        or NaN where the format has none. NaNs stay NaNs; signs are kept, those of zeros and NaNs
        too.

        Raises
        ------
        TypeError
            If ``values`` is not of a floating-point type of at most 64 bits.
        """
        array = np.asarray(values)
        if array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise TypeError(f"values must be float16, float32 or float64, not {array.dtype}")
        # float64 holds every input, and the comparisons with midpoints are exact.
        with np.errstate(invalid="ignore"):  # a signalling NaN is quieted, silently
            magnitude = np.abs(array.astype(np.float64))
        code = np.searchsorted(self._midpoints, magnitude, side="left")
        tie = magnitude == np.append(self._midpoints, np.inf)[code]
        code = code + (tie & (code % 2 == 1))
        over = self.max_code if saturate else (self.nan_code if self.inf_code is None
                                               else self.inf_code)
        code = np.where(code > self.max_code, over, code)
        code = np.where(np.isnan(magnitude), self.nan_code, code)
        return (code | np.signbit(array).astype(np.int64) << 7).astype(np.uint8)


#: E4M3FN.
E4M3 = Fp8Format("E4M3", exponent_bits=4, mantissa_bits=3, has_inf=False)
#: E5M2.
E5M2 = Fp8Format("E5M2", exponent_bits=5, mantissa_bits=2, has_inf=True)


def by_format(code: Format) -> Fp8Format:
    """The format object of a descriptor's operand format.

    Raises
    ------
    ValueError
        If it is not an 8-bit format.
    """
    try:
        return {Format.E4M3: E4M3, Format.E5M2: E5M2}[code]
    except KeyError:
        raise ValueError(f"operand format must be E4M3 or E5M2, not {code!r}") from None


class Decoder(wiring.Component):
    """Decodes one code of either format; combinational.

    Members
    -------
    code : ``In(8)``
    e5m2 : ``In(1)``
        The code is E5M2, not E4M3.
    decoded : ``Out(Decoded)``
    """

    code: In(8)
    e5m2: In(1)
    decoded: Out(Decoded)

    def elaborate(self, platform) -> Module:
        m = Module()
        code, out = self.code, self.decoded
        field = Mux(self.e5m2, code[2:7], code[3:7])
        normal = field.any()
        m.d.comb += [
            out.sign.eq(code[7]),
            out.significand.eq(Mux(self.e5m2, code[:2] | normal << 2, code[:3] | normal << 3)),
            out.exponent.eq(field - normal),
            out.nan.eq(Mux(self.e5m2, code[2:7].all() & code[:2].any(), code[:7].all())),
            out.inf.eq(self.e5m2 & code[2:7].all() & ~code[:2].any()),
        ]
        return m
