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

__all__ = ["LATENCY", "AdderLane", "Mode", "Numbers"]

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
        """The number of an element at the top of ``word``, its sign on top."""
        size, left = Cat(Const(0, self.width - form.width),
                         word[self.width - form.width:self.width - 1]), self._left(form)
        number = Cat(Const(0, left), size) if left >= 0 else size[-left:]
        return Cat(number, Const(0, self.bits - len(number)), word[-1])

    def pack(self, form: FloatFormat, number: Value) -> Value:
        """The word with that element."""
        left, size = -self._left(form), number[:-1]
        size = (Cat(Const(0, left), size) if left >= 0 else size[-left:])[:self.width - 1]
        return Cat(size, number[-1])

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
        mode, limit = self.mode[0], self.first.limit
        a, b = Signal(numbers.bits + 1), Signal(numbers.bits + 1)
        with m.If(self.valid[0]), m.Switch(mode.dtype):
            for dtype, form in numbers.formats.items():
                with m.Case(dtype):
                    m.d.comb += [a.eq(numbers.unpack(form, self.a)),
                                 b.eq(numbers.unpack(form, self.b))]
        # A SUM takes the larger magnitude first. MIN and MAX take one of two signs (−0 < +0), or
        # the magnitude that is right for the sign; of equal operands it does not matter which.
        takes_b = ((b[:-1] > a[:-1]) & ~(mode.select & (a[-1] ^ b[-1]))
                   ^ mode.select & ~(mode.largest ^ a[-1]))
        ordered = value(0, "ordered", Mux(takes_b, Cat(b, a), Cat(a, b)))
        big, small = ordered[:numbers.bits], ordered[numbers.bits + 1:-1]
        fraction, field = small[:p - 1], small[p - 1:]
        big_exponent = value(0, "big_exponent", big[p - 1:] | ~big[p - 1:].any())
        # A subnormal has the exponent of the smallest normal number, and no hidden bit.
        distance = value(0, "distance",
                         (big_exponent - (field | ~field.any()))[:exponent_bits])
        most = 2 ** (p + _EXTRA).bit_length() - 1
        shift = Mux(distance > most, most, distance)[:min(most.bit_length(), exponent_bits)]
        aligned = value(0, "aligned", Cat(Const(0, most), fraction, field.any()) >> shift)
        tail = most - _EXTRA + 1
        one = registers(
            0, big=Cat(big[:p - 1], big[p - 1:].any()),
            small=Mux(mode.select, 0, Cat(aligned[:tail].any(), aligned[tail:])),
            exponent=big_exponent, sign=ordered[numbers.bits],
            minus=~mode.select & (ordered[numbers.bits] ^ ordered[-1]),
            infinite=self.first.infinite & (big == limit),
            both_infinite=self.first.infinite & (small == limit),
            nan=(a[:-1] > limit) | (b[:-1] > limit))

        # 2: add or subtract
        other = Cat(one.small, Const(0, 1)) ^ one.minus.replicate(sum_bits)
        two = registers(
            1, total=(Cat(Const(0, _EXTRA), one.big) + other + one.minus)[:sum_bits],
            exponent=one.exponent, sign=one.sign, minus=one.minus, infinite=one.infinite,
            nan=one.nan | one.both_infinite & one.minus)

        # 3: how far to shift left. Each step halves what is left of the sum, above a bit of the
        # shift that says whether the upper half was empty.
        steps = (sum_bits - 1).bit_length()
        width = 1 << steps
        rest = value(2, "marked", (Cat(Const(0, width - sum_bits), two.total)
                                   | (Const(1 << width - 1, width) >> two.exponent))[:width])
        count: list[Value] = []
        for step in reversed(range(steps)):
            half = 1 << step
            upper, lower = rest[half:], rest[:half]
            found = Mux(upper.any(), Cat(Const(0, 1), upper), Cat(Const(1, 1), lower))
            if step:
                found = value(2, f"step{step}", found)
            count.insert(0, found[0])
            rest = found[1:]
        three = registers(2, total=two.total, shift=Cat(count), zero=~two.total.any(),
                          exponent=two.exponent, sign=two.sign, minus=two.minus,
                          infinite=two.infinite, nan=two.nan)

        # 4: shift, round, pack
        last = self.last
        normal = value(3, "normal", (three.total << three.shift)[:sum_bits])
        rounded = value(3, "rounded", (
            Cat(Const(0, sum_bits - 1),
                Mux(three.zero, 0, (three.exponent - three.shift)[:exponent_bits]))
            + normal + last.half + (normal & last.even).any()
        )[_EXTRA + 1:_EXTRA + 1 + numbers.bits])
        number = value(3, "number", Mux(three.nan, last.nan, Cat(
            Mux(three.infinite, last.limit, Mux(rounded >= last.over, last.overflow, rounded)),
            three.sign & ~(three.zero & three.minus))))
        with m.If(self.go[3]), m.Switch(self.mode[3].dtype):
            for dtype, form in numbers.formats.items():
                # What is below the format has served its rounding.
                with m.Case(dtype):
                    m.d.sync += self.result.eq(numbers.pack(form, number))
        return m
