"""Integer lane: sum, minimum and maximum of one signed 32-bit element or four 8-bit ones.

Sums are modulo 2**32 and 2**8: one adder, in which no carry leaves a byte if elements are bytes.

Latency: 4 steps of the pipeline, as :mod:`~hdl.compute.adder`: the result is there after one and
waits for three. Flow control: as there.
"""

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .adder import LATENCY, Mode

__all__ = ["IntegerLane"]


class IntegerLane(wiring.Component):
    """One word.

    Members
    -------
    valid, go, mode : inputs
        As of :class:`~hdl.compute.adder.AdderLane`.
    cut : ``In(32)``
        Bits whose carry goes nowhere: the top ones of bytes if elements are bytes, or none.
    a, b : ``In(32)``
    result : ``Out(32)``
        A register.
    """

    valid: In(LATENCY)
    go: In(LATENCY)
    mode: In(data.ArrayLayout(Mode, LATENCY))
    cut: In(32)
    a: In(32)
    b: In(32)
    result: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, mode, cut = self.a, self.b, self.mode[0], self.cut
        found = Signal(32)
        stages = [Signal(32, name=f"stage{stage}", reset_less=True)
                  for stage in range(LATENCY - 1)]
        with m.If(self.valid[0]):
            with m.If(mode.select):
                less = a.as_signed() < b.as_signed()
                for byte in range(4):
                    x, y = a.word_select(byte, 8), b.word_select(byte, 8)
                    takes_a = Mux(cut[7], x.as_signed() < y.as_signed(), less) ^ mode.largest
                    m.d.comb += found.word_select(byte, 8).eq(Mux(takes_a, x, y))
            with m.Else():
                m.d.comb += found.eq((a & ~cut) + (b & ~cut) ^ (a ^ b) & cut)
        for stage, (before, after) in enumerate(pairwise([found, *stages, self.result])):
            with m.If(self.go[stage]):
                m.d.sync += after.eq(before)
        return m
