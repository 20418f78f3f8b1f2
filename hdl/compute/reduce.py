"""Reduction adder: one flit of f32 or bf16 elements per cycle, and its reference model.

A flit holds ``flit_bytes ÷ 4`` f32 or ``flit_bytes ÷ 2`` bf16 elements. Each 32-bit word has a
wide lane, which adds the word as f32 or its upper half as bf16, and a narrow lane for the lower
half as bf16.

Latency: 4 cycles in which ``enable`` is high. Flow control: ``enable`` holds the whole pipeline;
whoever drives it guarantees room for the result.
"""

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.compute.adder import LATENCY, AdderLane
from hdl.layouts import DType

__all__ = ["LATENCY", "ReduceAdder", "add"]


class ReduceAdder(wiring.Component):
    """The adder of a rail.

    Members
    -------
    enable : ``In(1)``
        The pipeline moves.
    valid, dtype, a, b : inputs
        Operands, taken while ``enable``; ``dtype`` is F32 or BF16.
    result, result_valid : outputs
        Registers, held while not ``enable``.
    busy : ``Out(1)``
        A register or more of the pipeline holds an operation, the result included.
    """

    def __init__(self, *, flit_bytes: int = 32) -> None:
        if flit_bytes not in (16, 32, 64):
            raise ValueError(f"flit_bytes must be one of 16, 32, 64, not {flit_bytes!r}")
        self.flit_bytes = flit_bytes
        super().__init__({
            "enable": In(1), "valid": In(1), "dtype": In(DType),
            "a": In(8 * flit_bytes), "b": In(8 * flit_bytes),
            "result": Out(8 * flit_bytes), "result_valid": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(LATENCY)
        held_narrow = Signal(LATENCY)
        valid, narrow = Signal(LATENCY), Signal(LATENCY)
        m.d.comb += [
            valid.eq(Cat(self.valid, held[:-1])),
            narrow.eq(Cat(self.dtype == DType.BF16, held_narrow[:-1])),
            self.result_valid.eq(held[-1]),
            self.busy.eq(held.any()),
        ]
        with m.If(self.enable):
            m.d.sync += [held.eq(valid), held_narrow.eq(narrow)]
        for word in range(self.flit_bytes // 4):
            bits = slice(32 * word, 32 * word + 32)
            a, b, result = self.a[bits], self.b[bits], self.result[bits]
            m.submodules[f"wide{word}"] = wide = AdderLane(precision=24)
            m.submodules[f"narrow{word}"] = low = AdderLane(precision=8)
            m.d.comb += [
                wide.enable.eq(self.enable),
                wide.valid.eq(valid),
                wide.narrow.eq(narrow),
                wide.a.eq(Cat(Mux(narrow[0], 0, a[:16]), a[16:])),
                wide.b.eq(Cat(Mux(narrow[0], 0, b[:16]), b[16:])),
                low.enable.eq(self.enable),
                low.valid.eq(valid & narrow),
                low.a.eq(a[:16]),
                low.b.eq(b[:16]),
                result.eq(Cat(Mux(held_narrow[-1], low.result, wide.result[:16]),
                              wide.result[16:])),
            ]
        return m


def add(a_bits: npt.ArrayLike, b_bits: npt.ArrayLike, dtype: DType) -> np.ndarray:
    """Add elements as the hardware does: the reference model.

    Parameters
    ----------
    a_bits, b_bits : array_like
        Encodings: uint32 for F32, uint16 for BF16; broadcast against each other.

    Returns
    -------
    ndarray
        Encodings of the sums, of the same type.

    Raises
    ------
    ValueError
        If the adder does not know ``dtype``.
    """
    if dtype is DType.F32:
        a, b = (np.asarray(bits, np.uint32).view(np.float32) for bits in (a_bits, b_bits))
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.asarray(a + b, np.float32)
        return np.where(np.isnan(total), np.uint32(0x7FC00000), total.view(np.uint32))
    if dtype is DType.BF16:
        # An f32 sum of two bf16 values, rounded again, is rounded right: 24 ≥ 2 · 8 + 2.
        a32, b32 = (np.asarray(bits, np.uint16).astype(np.uint32) << 16
                    for bits in (a_bits, b_bits))
        total32 = add(a32, b32, DType.F32)
        upper = (total32 + 0x7FFF + (total32 >> 16 & 1)) >> 16
        return np.where(total32 == 0x7FC00000, 0x7FC0, upper).astype(np.uint16)
    raise ValueError(f"dtype must be F32 or BF16, not {dtype!r}")
