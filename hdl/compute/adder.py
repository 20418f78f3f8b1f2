"""Floating-point lane: IEEE 754 addition of several formats, rounded once, and their minimum.

Subnormals are kept, a NaN result is the format's canonical one, and zeros have IEEE signs:
x + −x = +0, −0 + −0 = −0, −0 < +0. A minimum or maximum is NaN if an operand is. What overflows is
the format's (:mod:`~hdl.compute.elements`): infinity, or the largest number; an operand that is
infinite stays so.

A lane is as wide as its widest format; elements of all formats sit at the top of it, so the sign is
one bit for all.

Latency: 4 steps of the pipeline. Flow control: none; who drives the lane says what stages hold
operations (``valid``) and what registers behind them load (``go``). One register per stage, so that
a simulator has one test per stage for an idle lane.

::

    1 order by magnitude, align   2 add or subtract   3 find the leading one   4 shift, round, pack

Between stages a number is an exponent field of the widest format and a fraction whose top is the
fraction of any format: narrower formats are short ones. So the stages within know no formats, only
stage 1, where elements are unpacked, and stage 4, where the place to round is chosen.

The sum is 4 bits longer than the significand (carry, guard, round, sticky). One shift amount
serves every case: n = min(leading zeros, exponent), so that a carry (n = 0), a cancellation and
a subnormal result (n = exponent: the hidden bit stays 0) all leave the exponent field
exponent − n, plus the hidden bit. The minimum costs no comparison: a marker bit, ``exponent``
places below the top, joins the sum before its leading one is looked for.

The operators MIN and MAX are the sum of one operand and zero, which is exact.
"""

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..layouts import DType
from .elements import FLOATS, FloatFormat

__all__ = ["LATENCY", "AdderLane", "Mode"]

#: Cycles from operands to the result.
LATENCY = 4
_EXTRA = 3  # guard, round, sticky


class Mode(data.Struct):
    """What an operation is, beside its operands."""

    dtype: DType
    #: It is a MIN or MAX.
    select: 1
    #: It is a MAX, if it is one of them.
    largest: 1


class Numbers:
    """Numbers between the stages of a lane: what it takes of a format to unpack and to pack.

    Parameters
    ----------
    dtypes : iterable of DType
        Types of the lane, whose width is that of the widest.
    """

    def __init__(self, dtypes: Iterable[DType]) -> None:
        self.formats: dict[DType, FloatFormat] = {dtype: FLOATS[dtype] for dtype in dtypes}
        forms = self.formats.values()
        self.width = max(form.width for form in forms)
        self.precision = max(form.precision for form in forms)
        self.exponent_bits = max(form.exponent_bits for form in forms)
        #: Exponent and fraction.
        self.bits = self.precision - 1 + self.exponent_bits
        #: What a format's constants are as numbers.
        self.constants = data.StructLayout({
            # The largest magnitude that is no NaN, and whether that is infinity.
            "limit": unsigned(self.bits), "infinite": unsigned(1),
            # The first magnitude that overflows (of E4M3 beyond its exponent's field), what it
            # becomes, and a NaN.
            "over": unsigned(self.bits), "overflow": unsigned(self.bits),
            "nan": unsigned(self.bits),
            # What to add to a sum for rounding, but for the bit that makes ties even, and that bit.
            "half": unsigned(self.precision + _EXTRA),
            "even": unsigned(self.precision + _EXTRA + 1),
        })

    def _left(self, form: FloatFormat) -> int:
        """How far a number is to the left of the element at the top of the lane's word."""
        return self.precision - self.width + form.exponent_bits

    def unpack(self, form: FloatFormat, word: Value) -> Value:
        """The number of an element at the top of ``word``, without its sign."""
        size, left = Cat(Const(0, self.width - form.width),
                         word[self.width - form.width:self.width - 1]), self._left(form)
        return (Cat(Const(0, left), size) if left >= 0 else size[-left:])[:self.bits]

    def pack(self, form: FloatFormat, number: Value, sign: Value) -> Value:
        """The word with that element."""
        left = -self._left(form)
        size = (Cat(Const(0, left), number) if left >= 0 else number[-left:])[:self.width - 1]
        return Cat(size, Const(0, self.width - 1 - len(size)), sign)

    def look_up(self, form: FloatFormat) -> dict[str, int]:
        """The constants of a format."""
        short = self.precision - form.precision
        codes = {"limit": form.limit, "over": form.limit + (not form.infinite),
                 "overflow": form.overflow, "nan": form.nan}
        even = 1 << _EXTRA + 1 + short
        return {name: code << short for name, code in codes.items()} | {
            "infinite": int(form.infinite), "half": (even >> 1) - 1, "even": even}


class AdderLane(wiring.Component):
    """One lane.

    Parameters
    ----------
    numbers : Numbers
        Of the types that it adds.

    Members
    -------
    valid : ``In(4)``
        Bit ``k``: stage ``k`` holds an operation (bit 0: the operands at the inputs).
    go : ``In(4)``
        Bit ``k``: it does, and moves on.
    mode : ``In(ArrayLayout(Mode, 4))``
        Of the operation in each stage.
    first, last : ``In(numbers.constants)``
        Of the formats in stages 0 and 3.
    a, b : ``In(width)``
        Elements, at the top.
    result : ``Out(width)``
        A register. Below the element it has no meaning.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        width = numbers.width
        super().__init__({
            "valid": In(LATENCY), "go": In(LATENCY), "mode": In(data.ArrayLayout(Mode, LATENCY)),
            "first": In(numbers.constants), "last": In(numbers.constants),
            "a": In(width), "b": In(width), "result": Out(width),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers = self.numbers
        p, exponent_bits = numbers.precision, numbers.exponent_bits
        sum_bits = p + _EXTRA + 1

        def value(stage: int, name: str, expression: Value) -> Signal:
            """A value that a stage uses more than once, and that matters while it holds an
            operation: a simulator then pays for operations only."""
            signal = Signal(expression.shape(), name=name)
            with m.If(self.valid[stage]):
                m.d.comb += signal.eq(expression)
            return signal

        def registers(stage: int, **values: Value) -> data.View:
            """What passes to the next stage, as one register."""
            held = Signal(data.StructLayout({name: len(each) for name, each in values.items()}),
                          name=f"stage{stage}", reset_less=True)
            with m.If(self.go[stage]):
                m.d.sync += held.eq(Cat(values.values()))
            return held

        # 1: order by magnitude, align the smaller operand
        mode = self.mode[0]
        a, b = Signal(numbers.bits), Signal(numbers.bits)
        with m.If(self.valid[0]), m.Switch(mode.dtype):
            for dtype, form in numbers.formats.items():
                with m.Case(dtype):
                    m.d.comb += [a.eq(numbers.unpack(form, self.a)),
                                 b.eq(numbers.unpack(form, self.b))]
        # MIN and MAX take the operand of one sign, or that of the right magnitude; −0 < +0. Of
        # equal ones it does not matter which.
        a_sign, b_sign = self.a[-1], self.b[-1]
        wanted = b_sign ^ mode.largest
        takes_b = value(0, "takes_b", Mux(mode.select & (a_sign ^ b_sign), wanted,
                                          (b > a) ^ (mode.select & ~wanted)))
        big = value(0, "big", Mux(takes_b, b, a))
        small = value(0, "small", Mux(mode.select, 0, Mux(takes_b, a, b)))
        big_exponent = value(0, "big_exponent", big[p - 1:] | ~big[p - 1:].any())
        small_field = small[p - 1:]
        # A subnormal has the exponent of the smallest normal number, and no hidden bit.
        distance = value(0, "distance",
                         (big_exponent - (small_field | ~small_field.any()))[:exponent_bits])
        most = 2 ** (p + _EXTRA).bit_length() - 1
        shift = Mux(distance > most, most, distance)[:min(most.bit_length(), exponent_bits)]
        aligned = value(0, "aligned", Cat(
            Const(0, most), small[:p - 1], small_field.any()) >> shift)
        tail = most - _EXTRA + 1
        minus = value(0, "minus", ~mode.select & (a_sign ^ b_sign))
        limit = self.first.limit
        infinite = value(0, "infinite", self.first.infinite & (big == limit))
        one = registers(
            0, big=Cat(big[:p - 1], big[p - 1:].any()),
            small=Cat(aligned[:tail].any(), aligned[tail:]),
            exponent=big_exponent, sign=Mux(takes_b, b_sign, a_sign), minus=minus,
            infinite=infinite,
            nan=(a > limit) | (b > limit) | infinite & minus & (small == limit))

        # 2: add or subtract
        big_long = Cat(Const(0, _EXTRA), one.big)
        total = Mux(one.minus, big_long - one.small, big_long + one.small)[:sum_bits]
        two = registers(1, total=total, exponent=one.exponent, sign=one.sign, minus=one.minus,
                        infinite=one.infinite, nan=one.nan)

        # 3: how far to shift left
        steps = (sum_bits - 1).bit_length()
        top = 1 << (1 << steps) - 1
        pad = (1 << steps) - sum_bits
        rest = value(2, "marked", (Cat(Const(0, pad), two.total)
                                   | (Const(top, 1 << steps) >> two.exponent))[:1 << steps])
        count: list[Signal] = []
        for step in reversed(range(steps)):
            half = 1 << step
            clear = value(2, f"clear{half}", ~rest[-half:].any())
            count.insert(0, clear)
            # Only the part that the next step looks at is kept.
            rest = value(2, f"rest{half}", Mux(clear, rest[:-half], rest[half:])[-half:])
        zero = value(2, "zero", ~two.total.any())
        three = registers(2, total=two.total, shift=Cat(count), zero=zero, exponent=two.exponent,
                          sign=two.sign & ~(zero & two.minus), infinite=two.infinite, nan=two.nan)

        # 4: shift, round, pack
        last = self.last
        normal = value(3, "normal", (three.total << three.shift)[:sum_bits])
        field = Mux(three.zero, 0, (three.exponent - three.shift)[:exponent_bits])
        rounded = value(3, "rounded", (
            Cat(Const(0, sum_bits - 1), field) + normal + last.half + (normal & last.even).any()
        )[_EXTRA + 1:_EXTRA + 1 + numbers.bits])
        number = value(3, "number", Mux(three.nan, last.nan, Mux(
            three.infinite, last.limit, Mux(rounded >= last.over, last.overflow, rounded))))
        with m.If(self.go[3]), m.Switch(self.mode[3].dtype):
            for dtype, form in numbers.formats.items():
                # What is below the format has served its rounding.
                with m.Case(dtype):
                    m.d.sync += self.result.eq(
                        numbers.pack(form, number, three.sign & ~three.nan))
        return m
