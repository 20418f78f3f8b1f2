"""One multiply-accumulator of the array, and a row of them.

Exact accumulation in two registers. A product of two operands is a signed integer of at most 23
bits shifted left by ``8 * coarse``, coarse from 0 to 6. Those with coarse below 4 are added into
``low``, the others, shifted by 32 less, into ``high``, whose unit is 2**32. Each cycle ``low``
keeps its lower 32 bits and hands the rest, a small signed carry, to ``high``. No carry chain is
longer than 63 bits, and ``high * 2**32 + low`` is the exact sum at any time. The largest products,
49 * 2**58, give 49 * 2**56 < 2**62 in ``high`` when 2**30 of them are added: it cannot overflow.

Infinities have two sticky bits, one per sign; both set mean NaN (opposite infinities, or an
infinity times zero, which sets both). NaN operands are the array's business: a NaN in a row of A
makes a whole row of C NaN, so one bit per row and per column does.

Timing: operands in cycle t, product register in t + 1, sums in t + 2. ``capture``, two cycles after
the last operands of a tile, copies the sum into the drain register, while the next tile's first
product may already replace it.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Control", "Operand", "HIGH_BITS", "LOW_BITS", "PE", "Row", "Sum",
           "feed_layout"]


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
    """An exact sum, ``high * 2**32 + low`` units, and the infinities that went into it.

    The spare bits put both halves on machine words for simulators; hardware has none.
    """

    low: signed(LOW_BITS)
    plus_inf: unsigned(1)
    minus_inf: unsigned(1)
    spare0: unsigned(62 - LOW_BITS)
    high: signed(HIGH_BITS)
    spare1: unsigned(64 - HIGH_BITS)


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

        # Nothing here is read before it is written, so nothing needs a reset.
        product, upper = Signal(signed(47), reset_less=True), Signal(reset_less=True)
        coarse = Signal(3)
        infinite, invalid, negative = (
            Signal(name=name, reset_less=True) for name in ("infinite", "invalid", "negative"))
        m.d.comb += coarse.eq(a.coarse + b.coarse)
        with m.If(control.valid):
            m.d.sync += [product.eq((a.linear * b.linear) << Cat(0, 0, 0, coarse[:2])),
                         upper.eq(coarse[2])]
        with m.If(control.any_inf):
            m.d.sync += [infinite.eq(a.inf | b.inf),
                         invalid.eq((a.inf & b.zero) | (b.inf & a.zero)),
                         negative.eq(a.negative ^ b.negative)]

        low = Signal(signed(LOW_BITS), reset_less=True)
        high = Signal(signed(HIGH_BITS), reset_less=True)
        plus, minus = Signal(reset_less=True), Signal(reset_less=True)
        drain = Signal(Sum, reset_less=True)
        with m.If(control.capture):
            m.d.sync += [drain.low.eq(low), drain.high.eq(high),
                         drain.plus_inf.eq(plus), drain.minus_inf.eq(minus)]
        with m.Elif(control.shift):
            m.d.sync += drain.eq(self.below)

        with m.If(control.add):
            m.d.sync += [
                low.eq(Mux(control.first, 0, low[:32]) + Mux(upper, 0, product)),
                high.eq(Mux(control.first, 0, (high + low[32:].as_signed())[:HIGH_BITS].as_signed())
                        + Mux(upper, product, 0))]
        with m.If(control.first):
            m.d.sync += [plus.eq(0), minus.eq(0)]
        with m.If(control.add_inf):
            m.d.sync += [
                plus.eq(Mux(control.first, 0, plus) | infinite & (invalid | ~negative)),
                minus.eq(Mux(control.first, 0, minus) | infinite & (invalid | negative))]
        m.d.comb += self.drained.eq(drain)
        return m


def feed_layout(columns: int) -> data.StructLayout:
    """What a row takes in a cycle: the drain registers of the next row, an operand of B per column,
    one of A, and what to do."""
    return data.StructLayout({
        "below": data.ArrayLayout(Sum, columns), "b": data.ArrayLayout(Operand, columns),
        "a": Operand, "control": Control})


class Row(wiring.Component):
    """A row of multiply-accumulators.

    Its inputs of a cycle come as one word: a simulator then takes them in one place, and all other
    code is the same for every row (``hdl/compact.py``).

    Parameters
    ----------
    columns : int

    Members
    -------
    feed : ``In(feed_layout(columns))``
    drained : ``Out(ArrayLayout(Sum, columns))``
        The row's drain registers.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        super().__init__({"feed": In(feed_layout(columns)),
                          "drained": Out(data.ArrayLayout(Sum, columns))})

    def elaborate(self, platform) -> Module:
        m = Module()
        feed = self.feed
        for column in range(self._columns):
            m.submodules[f"pe_{column}"] = pe = PE()
            m.d.comb += [pe.a.eq(feed.a), pe.b.eq(feed.b[column]), pe.control.eq(feed.control),
                         pe.below.eq(feed.below[column]), self.drained[column].eq(pe.drained)]
        return m
