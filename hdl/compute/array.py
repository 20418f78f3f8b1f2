"""The array: ``size`` × ``size`` exact multiply-accumulators, output-stationary.

Each cycle brings one column of A and one row of B, one byte per row and per column of the array.
Every byte is decoded once and broadcast; the multiply-accumulators do no decoding. A tile of C is
complete after its last column. It is then captured in the drain registers, which form one chain per
column towards row 0, while the next tile accumulates.

Timing: codes in cycle t, operands in t + 1, products in t + 2, sums in t + 3, drain registers and
``captured`` in t + 4 (of the tile's last codes). Nothing stalls: whoever feeds the last codes of a
tile has made sure that the drain registers are free.
"""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .fp8 import Decoder
from .pe import Control, Operand, Row, Sum

__all__ = ["Array", "Step"]


class Step(data.Struct):
    """What comes with a pair of columns: ``first`` and ``last`` of a tile; ``void`` makes them
    zeros, whatever the codes."""

    first: unsigned(1)
    last: unsigned(1)
    void: unsigned(1)


class Array(wiring.Component):
    """The multiply-accumulators and their operand registers.

    Parameters
    ----------
    size : int

    Members
    -------
    a, b : ``In(8 * size)``
        Codes.
    a_e5m2, b_e5m2 : ``In(1)``
        Their formats; constant during a tile.
    step : ``In(Step)``
    valid : ``In(1)``
    shift : ``In(1)``
        Row 0 of the drain registers is taken; it holds the next row two cycles later.
    drained : ``Out(ArrayLayout(Sum, size))``
        Row 0 of the drain registers.
    nans : ``Out(size)``
        Which results of that row are NaN because an operand was.
    captured : ``Out(1)``
        The drain registers hold a new tile.
    active : ``Out(1)``
    """

    def __init__(self, size: int) -> None:
        self._size = size
        super().__init__({
            "a": In(8 * size), "b": In(8 * size), "a_e5m2": In(1), "b_e5m2": In(1),
            "step": In(Step), "valid": In(1), "shift": In(1),
            "drained": Out(data.ArrayLayout(Sum, size)), "nans": Out(size),
            "captured": Out(1), "active": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        size = self._size
        control = Signal(Control)
        last, last_add = Signal(), Signal()
        first = Signal()

        infs, sides = [], []
        for side, codes, e5m2 in (("a", self.a, self.a_e5m2), ("b", self.b, self.b_e5m2)):
            operands = Signal(data.ArrayLayout(Operand, size), name=f"operands_{side}")
            nan = Signal(size, name=f"nan_{side}")
            seen = Signal(size, name=f"seen_nan_{side}")
            kept = Signal(size, name=f"drain_nan_{side}")
            for index in range(size):
                m.submodules[f"decode_{side}_{index}"] = decode = Decoder()
                code, out = decode.decoded, operands[index]
                m.d.comb += [decode.code.eq(codes.word_select(index, 8)), decode.e5m2.eq(e5m2)]
                infs.append(code.inf)
                linear = code.significand << code.exponent[:3]
                with m.If(self.valid):
                    m.d.sync += [
                        out.linear.eq(Mux(self.step.void, 0, Mux(code.sign, -linear, linear))),
                        out.coarse.eq(code.exponent[3:]), out.negative.eq(code.sign),
                        out.zero.eq(~code.significand.any()), out.inf.eq(code.inf),
                        nan[index].eq(code.nan & ~self.step.void)]
            product_nan = Signal(size, name=f"product_nan_{side}")
            m.d.sync += product_nan.eq(nan)
            with m.If(control.add):
                m.d.sync += seen.eq(Mux(control.first, 0, seen) | product_nan)
            sides.append((operands, seen, kept))

        m.d.sync += [
            control.valid.eq(self.valid),
            control.any_inf.eq(self.valid & ~self.step.void & Cat(infs).any()),
            first.eq(self.step.first & self.valid), last.eq(self.step.last & self.valid),
            control.add.eq(control.valid), control.add_inf.eq(control.any_inf),
            control.first.eq(first), last_add.eq(last),
            control.capture.eq(last_add), self.captured.eq(control.capture),
            control.shift.eq(self.shift)]

        (a, seen_a, kept_a), (b, seen_b, kept_b) = sides
        with m.If(control.capture):
            m.d.sync += [kept_a.eq(seen_a), kept_b.eq(seen_b)]
        with m.Elif(control.shift):
            m.d.sync += kept_a.eq(kept_a >> 1)
        m.d.comb += self.nans.eq(kept_b | kept_a[0].replicate(size))

        rows = []
        for index in range(size):
            m.submodules[f"shared_row_{index}"] = row = Row(size)
            m.d.comb += [row.feed.a.eq(a[index]), row.feed.b.eq(b), row.feed.control.eq(control)]
            rows.append(row)
        for row, below in pairwise(rows):
            m.d.comb += row.feed.below.eq(below.drained)
        m.d.comb += [
            self.drained.eq(rows[0].drained),
            self.active.eq(self.valid | control.valid | control.add | control.capture
                           | control.shift | last_add | self.captured)]
        return m
