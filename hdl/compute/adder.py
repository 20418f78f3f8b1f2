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

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
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


def _shifted(value: Value, left: int, width: int) -> Value:
    """``value`` shifted by a constant, right if ``left`` is negative, cut to ``width`` bits."""
    return (Cat(Const(0, left), value) if left >= 0 else value[-left:])[:width]


class AdderLane(wiring.Component):
    """One lane.

    Parameters
    ----------
    dtypes : iterable of DType
        Types that it adds.

    Members
    -------
    valid : ``In(4)``
        Bit ``k``: stage ``k`` holds an operation (bit 0: the operands at the inputs).
    go : ``In(4)``
        Bit ``k``: it does, and moves on.
    mode : ``In(ArrayLayout(Mode, 4))``
        Of the operation in each stage.
    a, b : ``In(width)``
        Elements, at the top.
    result : ``Out(width)``
        A register. Below the element it has no meaning.
    """

    def __init__(self, dtypes: Iterable[DType]) -> None:
        self.formats: dict[DType, FloatFormat] = {dtype: FLOATS[dtype] for dtype in dtypes}
        self.width = width = max(form.width for form in self.formats.values())
        super().__init__({
            "valid": In(LATENCY), "go": In(LATENCY), "mode": In(data.ArrayLayout(Mode, LATENCY)),
            "a": In(width), "b": In(width), "result": Out(width),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self.width
        p = max(form.precision for form in self.formats.values())
        exponent_bits = max(form.exponent_bits for form in self.formats.values())
        low = p - 1 + exponent_bits  # bits of a number between stages, without its sign
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

        def by_format(stage: int, **values: dict[DType, Value | int]) -> list[Signal]:
            """Values that depend on the format of the operation in a stage."""
            signals = [Signal(max(Value.cast(each).shape().width for each in choices.values()),
                              name=name) for name, choices in values.items()]
            with m.If(self.valid[stage]), m.Switch(self.mode[stage].dtype):
                for dtype in self.formats:
                    with m.Case(dtype):
                        m.d.comb += [signal.eq(choices[dtype]) for signal, choices in
                                     zip(signals, values.values(), strict=True)]
            return signals

        def each(expression) -> dict[DType, Value | int]:
            return {dtype: expression(form) for dtype, form in self.formats.items()}

        def place(form: FloatFormat) -> int:
            """How far a number between stages is to the left of an element's."""
            return p - width + form.exponent_bits

        # 1: order by magnitude, align the smaller operand
        mode = self.mode[0]
        a, b, limit, infinite_limit = by_format(
            0,
            a=each(lambda form: Cat(Const(0, width - form.width), self.a[width - form.width:])),
            b=each(lambda form: Cat(Const(0, width - form.width), self.b[width - form.width:])),
            limit=each(lambda form: form.limit << width - form.width),
            infinite_limit=each(lambda form: int(form.infinite)))
        a_size, b_size = a[:-1], b[:-1]
        swap = value(0, "swap", b_size > a_size)
        # −0 < +0. Of equal operands it does not matter which is taken.
        b_less = Mux(a[-1] ^ b[-1], b[-1], ~swap ^ b[-1])
        takes_b = value(0, "takes_b", Mux(mode.select, b_less ^ mode.largest, swap))
        first = value(0, "first", Mux(takes_b, b, a))
        second = value(0, "second", Mux(mode.select, 0, Mux(takes_b, a, b)))
        big, small = by_format(
            0, big=each(lambda form: _shifted(first[:-1], place(form), low)),
            small=each(lambda form: _shifted(second[:-1], place(form), low)))
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
        minus = value(0, "minus", ~mode.select & (first[-1] ^ second[-1]))
        infinite = value(0, "infinite", infinite_limit & (first[:-1] == limit))
        nan = value(0, "nan", (a_size > limit) | (b_size > limit)
                    | infinite & minus & (second[:-1] == limit))
        one = registers(
            0, big=Cat(big[:p - 1], big[p - 1:].any()),
            small=Cat(aligned[:tail].any(), aligned[tail:]),
            exponent=big_exponent, sign=first[-1], minus=minus, infinite=infinite, nan=nan)

        # 2: add or subtract
        big_long = Cat(Const(0, _EXTRA), one.big)
        total = value(1, "total", Mux(one.minus, big_long - one.small,
                                      big_long + one.small)[:sum_bits])
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
        normal = value(3, "normal", (three.total << three.shift)[:sum_bits])

        def half_even(form: FloatFormat) -> Value:
            """What to add so that cutting what is beyond the format rounds to nearest even."""
            dropped = _EXTRA + 1 + p - form.precision
            return (1 << dropped - 1) - 1 + normal[dropped]

        field = Mux(three.zero, 0, (three.exponent - three.shift)[:exponent_bits])
        rounding, = by_format(3, rounding=each(half_even))
        packed = value(3, "packed", (Cat(Const(0, sum_bits - 1), field)
                                     + normal + rounding)[_EXTRA + 1:_EXTRA + 2 + low])

        def finish(form: FloatFormat) -> Value:
            """The element without its sign, if it is no NaN."""
            # One bit more than the element's: E4M3's sums may have an exponent beyond its field.
            size = _shifted(packed, -place(form), width)[width - form.width:]
            over = size >= (form.limit if form.infinite else form.limit + 1)
            code = Mux(three.infinite, form.limit, Mux(over, form.overflow, size))
            return Cat(Const(0, width - form.width), Mux(three.nan, form.nan, code)
                       )[:width - 1]

        with m.If(self.go[3]), m.Switch(self.mode[3].dtype):
            for dtype, form in self.formats.items():
                with m.Case(dtype):
                    m.d.sync += self.result.eq(Cat(finish(form), three.sign & ~three.nan))
        return m
