"""Rounds a wide fixed-point number to binary32, once, to nearest even.

    value ──► magnitude ──► window ──► normalised ──► rounded
              (sign)        (32-bit    (5-bit         (pack)
                             steps)     steps)

One number per cycle; the result is there 4 cycles after its input, counted in cycles in which
``advance`` is high. Nothing moves while it is low, so a pipeline of this block and its neighbours
stalls as a whole.

The range of the input is checked when the block is built: its unit is at least 2**-126 and its
largest magnitude below 2**127, so a result is never subnormal and never overflows. An exact zero
is +0.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["CANONICAL_NAN", "FixedToFp32", "fixed_layout"]

CANONICAL_NAN = 0x7FC00000
_INF = 0x7F800000


def fixed_layout(width: int) -> data.StructLayout:
    """A fixed-point number of ``width`` bits, or a special: both infinities together mean NaN."""
    return data.StructLayout({"value": signed(width), "nan": unsigned(1),
                              "plus_inf": unsigned(1), "minus_inf": unsigned(1)})


class FixedToFp32(wiring.Component):
    """Fixed point to binary32.

    Parameters
    ----------
    width : int
        Bits of the number, sign included.
    lsb : range
        Exponents of two that the unit may have.

    Members
    -------
    advance : ``In(1)``
    lsb : ``In(signed(9))``
        Exponent of the unit: the number stands for ``value * 2**lsb``. Constant while numbers are
        in the pipeline.
    number : ``In(fixed_layout(width))``
    valid : ``In(1)``
    result : ``Out(32)``
    result_valid : ``Out(1)``
    """

    #: Cycles from input to result.
    LATENCY = 4

    def __init__(self, *, width: int, lsb: range) -> None:
        if not lsb or min(lsb) < -126 or width - 1 + max(lsb) > 127:
            raise ValueError(f"lsb must lie from -126 to {128 - width} for {width} bits, not {lsb}")
        self._width = width
        super().__init__({
            "advance": In(1), "lsb": In(signed(9)), "number": In(fixed_layout(width)),
            "valid": In(1), "result": Out(32), "result_valid": Out(1),
        })

    @property
    def width(self) -> int:
        return self._width

    def elaborate(self, platform) -> Module:
        m = Module()
        words = -(-(self._width - 1) // 32)
        valid = [Signal(name=f"valid_{stage}") for stage in range(self.LATENCY)]
        with m.If(self.advance):
            m.d.sync += Cat(valid).eq(Cat(self.valid, valid))
        m.d.comb += self.result_valid.eq(valid[-1])

        # Specials are settled at once: their result rides along.
        special = [Signal(name=f"special_{stage}") for stage in range(3)]
        negative = [Signal(name=f"negative_{stage}") for stage in range(3)]
        nan = [Signal(name=f"nan_{stage}") for stage in range(3)]
        magnitude = Signal(32 * words)
        number = self.number
        with m.If(self.advance & self.valid):
            m.d.sync += [
                magnitude.eq(Mux(number.value < 0, -number.value, number.value)),
                negative[0].eq(Mux(number.plus_inf | number.minus_inf, number.minus_inf,
                                   number.value[-1])),
                special[0].eq(number.nan | number.plus_inf | number.minus_inf),
                nan[0].eq(number.nan | number.plus_inf & number.minus_inf)]

        # The highest word that is not zero and the one below it; the rest only sticks.
        window, sticky, top = Signal(64), Signal(), Signal(range(words))
        with m.If(self.advance & valid[0]):
            m.d.sync += [negative[1].eq(negative[0]), special[1].eq(special[0]), nan[1].eq(nan[0])]
            for index in reversed(range(words)):
                with (m.If if index == words - 1 else m.Elif)(
                        magnitude.word_select(index, 32).any() if index else 1):
                    m.d.sync += [
                        window.eq(magnitude[32 * (index - 1):32 * (index + 1)] if index
                                  else magnitude[:32] << 32),
                        sticky.eq(magnitude[:32 * (index - 1)].any() if index > 1 else 0),
                        top.eq(index)]

        normal, rest = Signal(25), Signal()
        position = Signal(range(32 * words))
        zero = Signal()
        shifted: list = [window]
        shift = []
        for step in (16, 8, 4, 2, 1):
            empty = Signal(name=f"empty_{step}")
            out = Signal(64, name=f"shifted_{step}")
            m.d.comb += [empty.eq(~shifted[-1][64 - step:].any()),
                         out.eq(Mux(empty, shifted[-1] << step, shifted[-1]))]
            shifted.append(out)
            shift.append(empty)
        with m.If(self.advance & valid[1]):
            m.d.sync += [
                negative[2].eq(negative[1]), special[2].eq(special[1]), nan[2].eq(nan[1]),
                normal.eq(shifted[-1][39:]), rest.eq(shifted[-1][:39].any() | sticky),
                zero.eq(~shifted[-1][63]),
                position.eq(Cat(~Cat(reversed(shift)), top))]

        exponent = Signal(8)
        rounded = Signal(31)
        m.d.comb += [
            exponent.eq(self.lsb + 127 + position),
            # A carry out of the significand steps the exponent, as it should.
            rounded.eq(Cat(normal[1:24], exponent) + (normal[0] & (rest | normal[1])))]
        with m.If(self.advance & valid[2]):
            with m.If(special[2]):
                m.d.sync += self.result.eq(Mux(
                    nan[2], CANONICAL_NAN, Cat(Const(_INF, 31), negative[2])))
            with m.Elif(zero):
                m.d.sync += self.result.eq(0)
            with m.Else():
                m.d.sync += self.result.eq(Cat(rounded, negative[2]))
        return m
