"""One multiply-accumulator of the array, and a row of them.

Exact accumulation in two registers. A product of two operands is a signed integer of at most 23
bits shifted left by a multiple of eight, ``8 * coarse`` with coarse from 0 to 6. Those below bit 32
are added into ``low``, the others into ``high``, whose unit is 2**32. Each cycle ``low`` keeps its
lower 32 bits and hands the rest, a small signed carry, to ``high``: no carry chain is longer than
64 bits, and ``high * 2**32 + low`` is the exact sum at any time. |sum| stays below 2**94 for 2**30
products of the largest operands, so 64 bits of ``high`` cannot overflow.

Infinities have two sticky bits, one per sign; both set mean NaN (opposite infinities, or an
infinity times zero, which sets both). NaN operands are the array's business: a NaN in a row of A
makes a whole row of C NaN, so one bit per row and per column does.

Timing: operands in cycle t, product register in t+1, sums in t+2. ``capture``, two cycles after
the last operands of a tile, copies the sum into the drain register, while the next tile's first
product may already replace it.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Control", "Operand", "HIGH_BITS", "LOW_BITS", "PE", "Row", "Sum"]


#: Widths of the two halves of a sum.
LOW_BITS, HIGH_BITS = 48, 63


class Operand(data.Struct):
    """A decoded operand: ``linear << 8 * coarse`` units, or an infinity of the sign of
    ``negative``."""

    linear: signed(12)
    coarse: unsigned(2)
    negative: unsigned(1)
    zero: unsigned(1)
    inf: unsigned(1)


class Sum(data.Struct):
    """An exact sum, ``high * 2**32 + low`` units, and the infinities that went into it."""

    low: signed(LOW_BITS)
    high: signed(HIGH_BITS)
    plus_inf: unsigned(1)
    minus_inf: unsigned(1)


class Control(data.Struct):
    """What every multiply-accumulator does in this cycle.

    ``valid``: operands are there; ``any_inf``: one of them is infinite; ``add``, ``first``: take
    the product of the cycle before, as the first of a tile; ``capture``: copy the sum for draining;
    ``shift``: hand the drain registers on.
    """

    valid: unsigned(1)
    any_inf: unsigned(1)
    add: unsigned(1)
    add_inf: unsigned(1)
    first: unsigned(1)
    capture: unsigned(1)
    shift: unsigned(1)


class PE(wiring.Component):
    """A multiply-accumulator with its drain register.

    Members
    -------
    a, b : ``In(Operand)``
    control : ``In(Control)``
    below : ``In(Sum)``
        Drain register of the next row's neighbour.
    drained : ``Out(Sum)``
        This one's.
    """

    a: In(Operand)
    b: In(Operand)
    control: In(Control)
    below: In(Sum)
    drained: Out(Sum)

    def elaborate(self, platform) -> Module:
        m = Module()
        a, b, control = self.a, self.b, self.control

        product = Signal(signed(23))
        coarse = Signal(3)
        infinite, invalid, negative = Signal(), Signal(), Signal()
        with m.If(control.valid):
            m.d.sync += [product.eq(a.linear * b.linear), coarse.eq(a.coarse + b.coarse)]
        with m.If(control.any_inf):
            m.d.sync += [infinite.eq(a.inf | b.inf),
                         invalid.eq((a.inf & b.zero) | (b.inf & a.zero)),
                         negative.eq(a.negative ^ b.negative)]

        low, high = Signal(signed(LOW_BITS)), Signal(signed(HIGH_BITS))
        plus, minus = Signal(), Signal()
        drain = Signal(Sum)
        with m.If(control.capture):
            m.d.sync += [drain.low.eq(low), drain.high.eq(high),
                         drain.plus_inf.eq(plus), drain.minus_inf.eq(minus)]
        with m.Elif(control.shift):
            m.d.sync += drain.eq(self.below)

        shifted = Signal(signed(47))
        m.d.comb += shifted.eq(product << Cat(0, 0, 0, coarse[:2]))
        with m.If(control.add):
            m.d.sync += [
                low.eq(Mux(control.first, 0, low[:32]) + Mux(coarse[2], 0, shifted)),
                high.eq(Mux(control.first, 0, (high + low[32:].as_signed())[:HIGH_BITS].as_signed())
                        + Mux(coarse[2], shifted, 0))]
        with m.If(control.first):
            m.d.sync += [plus.eq(0), minus.eq(0)]
        with m.If(control.add_inf):
            m.d.sync += [
                plus.eq(Mux(control.first, 0, plus) | infinite & (invalid | ~negative)),
                minus.eq(Mux(control.first, 0, minus) | infinite & (invalid | negative))]
        m.d.comb += self.drained.eq(drain)
        return m


class Row(wiring.Component):
    """A row of multiply-accumulators: one operand of A, one of B per column.

    Parameters
    ----------
    columns : int

    Members
    -------
    a : ``In(Operand)``
    b : ``In(ArrayLayout(Operand, columns))``
    control : ``In(Control)``
    below, drained : ``ArrayLayout(Sum, columns)``
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        super().__init__({
            "a": In(Operand), "b": In(data.ArrayLayout(Operand, columns)), "control": In(Control),
            "below": In(data.ArrayLayout(Sum, columns)),
            "drained": Out(data.ArrayLayout(Sum, columns)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        for column in range(self._columns):
            m.submodules[f"pe_{column}"] = pe = PE()
            m.d.comb += [pe.a.eq(self.a), pe.b.eq(self.b[column]), pe.control.eq(self.control),
                         pe.below.eq(self.below[column]), self.drained[column].eq(pe.drained)]
        return m
