"""Floating-point adder lane: IEEE 754 addition, rounded once to nearest even.

Subnormals are kept, a NaN result is the canonical quiet NaN, and zeros have IEEE signs:
x + −x = +0, −0 + −0 = −0. A lane's operands and results are words of ``8 + precision`` bits (sign,
8 exponent bits, fraction); ``precision`` 24 is f32 and 8 is bf16. A wide lane in ``narrow`` mode
adds bf16 values that sit in the upper half of its words.

Latency: 4 cycles in which ``enable`` is high. Flow control: none; ``enable`` moves all stages at
once, and the register behind stage ``k`` loads only while ``valid[k]`` says that it holds an
operation. One register per stage, so that a simulator has one test per stage for an idle adder.

::

    1 order by magnitude, align   2 add or subtract   3 find the leading one   4 shift, round, pack

The sum is 4 bits longer than the significand (carry, guard, round, sticky). One shift amount
serves every case: n = min(leading zeros, exponent), so that a carry (n = 0), a cancellation and
a subnormal result (n = exponent: the hidden bit stays 0) all leave the exponent field
exponent − n, plus the hidden bit. The minimum costs no comparison: a marker bit, ``exponent``
places below the top, joins the sum before its leading one is looked for.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LATENCY", "AdderLane"]

#: Cycles from operands to the result.
LATENCY = 4
_EXPONENT_BITS = 8
_EXTRA = 3  # guard, round, sticky
_BF16_PRECISION = 8


class AdderLane(wiring.Component):
    """One lane.

    Members
    -------
    enable : ``In(1)``
        Every stage moves on.
    valid : ``In(4)``
        Bit ``k``: stage ``k`` holds an operation (bit 0: the operands at the inputs).
    narrow : ``In(4)``
        Bit ``k``: that operation adds bf16. Only of wide lanes.
    a, b : ``In(8 + precision)``
    result : ``Out(8 + precision)``
        A register. In ``narrow`` mode its lower half has no meaning.
    """

    def __init__(self, *, precision: int) -> None:
        if precision not in (24, _BF16_PRECISION):
            raise ValueError(f"precision must be 24 or 8, not {precision!r}")
        self.precision = precision
        width = precision + _EXPONENT_BITS
        super().__init__({
            "enable": In(1), "valid": In(LATENCY), "narrow": In(LATENCY),
            "a": In(width), "b": In(width), "result": Out(width),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = self.precision
        sum_bits = p + _EXTRA + 1
        infinity = 0xFF << (p - 1)

        go = Signal(LATENCY)
        m.d.comb += go.eq(Mux(self.enable, self.valid, 0))

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
            with m.If(go[stage]):
                m.d.sync += held.eq(Cat(values.values()))
            return held

        # 1: order by magnitude, align the smaller operand
        low = p + _EXPONENT_BITS - 1
        a_size, b_size = self.a[:low], self.b[:low]
        swap = value(0, "swap", b_size > a_size)
        big = value(0, "big", Mux(swap, self.b, self.a))
        small = value(0, "small", Mux(swap, self.a, self.b))
        big_exponent = value(0, "big_exponent", big[p - 1:low] | ~big[p - 1:low].any())
        small_field = small[p - 1:low]
        # A subnormal has the exponent of the smallest normal number, and no hidden bit.
        distance = value(0, "distance", (big_exponent - (small_field | ~small_field.any()))[:8])
        limit = 2 ** (p + _EXTRA).bit_length() - 1
        shift = Mux(distance > limit, limit, distance)[:limit.bit_length()]
        aligned = value(0, "aligned", Cat(
            Const(0, limit), small[:p - 1], small_field.any()) >> shift)
        tail = limit - _EXTRA + 1
        minus = value(0, "minus", big[-1] ^ small[-1])
        infinite = value(0, "infinite", big[p - 1:low].all())
        nan = value(0, "nan", (big[:low] > infinity)
                    | infinite & (small[:low] == infinity) & minus)
        one = registers(
            0, big=Cat(big[:p - 1], big[p - 1:low].any()),
            small=Cat(aligned[:tail].any(), aligned[tail:]),
            exponent=big_exponent, sign=big[-1], minus=minus, infinite=infinite, nan=nan)

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
        drop = _EXTRA + 1

        def half_even(dropped: int) -> Value:
            """What to add so that cutting ``dropped`` bits rounds to nearest even."""
            return (1 << dropped - 1) - 1 + normal[dropped]

        rounding = half_even(drop)
        if p != _BF16_PRECISION:
            rounding = Mux(self.narrow[3], half_even(drop + p - _BF16_PRECISION), rounding)
        field = Mux(three.zero, 0, (three.exponent - three.shift)[:8])
        packed = value(3, "packed", (Cat(Const(0, sum_bits - 1), field)
                                  + normal + rounding)[drop:drop + low])
        number = Mux(three.infinite | packed[p - 1:].all(), infinity, packed)
        quiet = infinity | 1 << (p - 2)
        with m.If(go[3]):
            m.d.sync += self.result.eq(Mux(three.nan, quiet, Cat(number, three.sign)))
        return m
