"""Reductions: a flit of elements per cycle, summed or compared with another; and their model.

Each 32-bit word of a flit has a lane for every size of float: the widest takes the element at the
top of the word, whatever its size, the half one that at the top of the lower half, and two small
ones the bytes left. Integers have a lane of their own. A flit's type says which lanes work; the
others rest, to the last register.

::

    byte 3     byte 2   byte 1     byte 0
    ├─ wide: all floats ──────────────────┤
                        ├─ half: 16, 8 bits
               ├ small ─┤          ├ small ─┤   8 bits
    ├─ integer: i32, or i8 four times ────┤

Latency: 4 cycles in which ``enable`` is high. Flow control: ``enable`` holds the whole pipeline;
whoever drives it guarantees room for the result.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.compute.adder import LATENCY, AdderLane, Mode, Numbers
from hdl.compute.elements import ELEMENT_BYTES, FLOATS, INTEGERS, OPERATORS, FloatFormat
from hdl.compute.fp8 import E4M3, E5M2
from hdl.compute.integer import IntegerLane
from hdl.layouts import DType, ReduceOp

__all__ = ["LATENCY", "Reducer", "combine"]

_BYTES = tuple(dtype for dtype in FLOATS if ELEMENT_BYTES[dtype] == 1)
_HALVES = tuple(dtype for dtype in FLOATS if ELEMENT_BYTES[dtype] == 2)
#: Types of the float lanes.
_NUMBERS = {"wide": Numbers(FLOATS), "half": Numbers([*_HALVES, *_BYTES]),
            "small": Numbers(_BYTES)}


class _Use(data.Struct):
    """Lanes that work on an operation."""

    wide: 1
    half: 1
    small: 1
    integer: 1


class Reducer(wiring.Component):
    """What a rail reduces with.

    Members
    -------
    enable : ``In(1)``
        The pipeline moves.
    valid, dtype, op, a, b : inputs
        Operands, taken while ``enable``; a type of ``ELEMENT_BYTES``, one of ``OPERATORS``.
    result, result_valid : outputs
        Functions of registers, held while not ``enable``; ``result`` is 0 while not valid.
    busy : ``Out(1)``
        A register or more of the pipeline holds an operation, the result included.
    """

    def __init__(self, *, flit_bytes: int = 32) -> None:
        if flit_bytes not in (16, 32, 64):
            raise ValueError(f"flit_bytes must be one of 16, 32, 64, not {flit_bytes!r}")
        self.flit_bytes = flit_bytes
        super().__init__({
            "enable": In(1), "valid": In(1), "dtype": In(DType), "op": In(ReduceOp),
            "a": In(8 * flit_bytes), "b": In(8 * flit_bytes),
            "result": Out(8 * flit_bytes), "result_valid": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # What is in each stage: the operands at the inputs, and what four registers hold.
        use = [Signal(_Use, name=f"use{stage}") for stage in range(LATENCY + 1)]
        mode = [Signal(Mode, name=f"mode{stage}") for stage in range(LATENCY)]
        with m.If(self.valid):
            m.d.comb += [mode[0].dtype.eq(self.dtype), mode[0].select.eq(self.op != ReduceOp.SUM),
                         mode[0].largest.eq(self.op == ReduceOp.MAX)]
            with m.Switch(self.dtype):
                with m.Case(DType.F32):
                    m.d.comb += use[0].wide.eq(1)
                with m.Case(*_HALVES):
                    m.d.comb += [use[0].wide.eq(1), use[0].half.eq(1)]
                with m.Case(*_BYTES):
                    m.d.comb += [use[0].wide.eq(1), use[0].half.eq(1), use[0].small.eq(1)]
                with m.Case(*INTEGERS):
                    m.d.comb += use[0].integer.eq(1)
        with m.If(self.enable):
            m.d.sync += [after.eq(before) for before, after in pairwise(use)]
            for stage in range(LATENCY - 1):
                with m.If(use[stage].as_value().any()):
                    m.d.sync += mode[stage + 1].eq(mode[stage])
        done = use[-1]
        m.d.comb += [
            self.result_valid.eq(done.as_value().any()),
            self.busy.eq(Cat(*use[1:]).any()),
        ]

        # What lanes of one kind need: they have it in common, so a simulator tests it once.
        common: dict[str, dict[str, Value]] = {}
        for kind in ("wide", "half", "small", "integer"):
            valid, go = (Signal(LATENCY, name=f"{kind}_{name}") for name in ("valid", "go"))
            m.d.comb += valid.eq(Cat(each[kind] for each in use[:LATENCY]))
            with m.If(self.enable):
                m.d.comb += go.eq(valid)
            common[kind] = {"valid": valid, "go": go}
        for kind, numbers in _NUMBERS.items():
            for name, stage in (("first", 0), ("last", LATENCY - 1)):
                found = Signal(numbers.constants, name=f"{kind}_{name}")
                with m.If(use[stage][kind]), m.Switch(mode[stage].dtype):
                    for dtype, form in numbers.formats.items():
                        with m.Case(dtype):
                            m.d.comb += [found[constant].eq(value) for constant, value in
                                         numbers.look_up(form).items()]
                common[kind][name] = found

        # A sum of bytes drops the carries out of their top bits.
        cut = Signal(32)
        with m.If(use[0].integer & (self.dtype == DType.I8)):
            m.d.comb += cut.eq(0x80808080)
        common["integer"]["cut"] = cut

        def lane(kind: str, name: str, first: int, lane: AdderLane | IntegerLane) -> Signal:
            """The result of a lane that begins at byte ``first`` of the flit."""
            m.submodules[f"{kind}{name}"] = lane
            m.d.comb += [
                lane.a.eq(self.a[8 * first:8 * first + len(lane.a)]),
                lane.b.eq(self.b[8 * first:8 * first + len(lane.b)]),
                *(getattr(lane, port).eq(value) for port, value in common[kind].items()),
                *(lane.mode[stage].eq(mode[stage]) for stage in range(LATENCY))]
            return lane.result

        by_size: dict[str, list[Value]] = {kind: [] for kind in common}
        for word in range(self.flit_bytes // 4):
            wide = lane("wide", f"{word}", 4 * word, AdderLane(_NUMBERS["wide"]))
            half = lane("half", f"{word}", 4 * word, AdderLane(_NUMBERS["half"]))
            low = lane("small", f"{word}_0", 4 * word, AdderLane(_NUMBERS["small"]))
            high = lane("small", f"{word}_2", 4 * word + 2, AdderLane(_NUMBERS["small"]))
            by_size["wide"].append(wide)
            by_size["half"] += [half, wide[16:]]
            by_size["small"] += [low, half[8:], high, wide[24:]]
            by_size["integer"].append(lane("integer", f"{word}", 4 * word, IntegerLane()))
        with m.If(done.small):
            m.d.comb += self.result.eq(Cat(by_size["small"]))
        with m.Elif(done.half):
            m.d.comb += self.result.eq(Cat(by_size["half"]))
        with m.Elif(done.wide):
            m.d.comb += self.result.eq(Cat(by_size["wide"]))
        with m.Elif(done.integer):
            m.d.comb += self.result.eq(Cat(by_size["integer"]))
        return m


def combine(a_bits: npt.ArrayLike, b_bits: npt.ArrayLike, dtype: DType,
            op: ReduceOp = ReduceOp.SUM) -> np.ndarray:
    """Reduce elements as the hardware does: the reference model.

    Parameters
    ----------
    a_bits, b_bits : array_like
        Encodings, as unsigned integers of the element's size; broadcast against each other.

    Returns
    -------
    ndarray
        Encodings of the results, of the same type.

    Raises
    ------
    ValueError
        If there is no reduction of ``dtype`` by ``op``.
    """
    if dtype not in ELEMENT_BYTES or op not in OPERATORS:
        raise ValueError(f"there is no {getattr(op, 'name', op)} of {getattr(dtype, 'name', dtype)}"
                         f": types are {', '.join(known.name for known in ELEMENT_BYTES)}, "
                         f"operators {', '.join(known.name for known in OPERATORS)}")
    size = ELEMENT_BYTES[dtype]
    a, b = (np.asarray(bits, f"u{size}") for bits in (a_bits, b_bits))
    if dtype in INTEGERS:
        if op is ReduceOp.SUM:
            return np.asarray(a + b, a.dtype)
        choose = np.minimum if op is ReduceOp.MIN else np.maximum
        return np.asarray(choose(a.view(f"i{size}"), b.view(f"i{size}"))).view(a.dtype)
    if size == 1:
        return _byte_table(dtype, op)[a, b]
    return (_sum if op is ReduceOp.SUM else _selection)(a, b, dtype, op)


@cache
def _byte_table(dtype: DType, op: ReduceOp) -> np.ndarray:
    """Results of all pairs of 8-bit codes."""
    codes = np.arange(256, dtype=np.uint8)
    if op is not ReduceOp.SUM:
        return _selection(codes[:, None], codes[None, :], dtype, op)
    form = E4M3 if dtype is DType.E4M3 else E5M2
    with np.errstate(invalid="ignore"):
        values = form.decode(codes).astype(np.float64)  # so are all their sums exact
        total = values[:, None] + values[None, :]
    table = np.where(np.isnan(total), form.nan_code, form.encode(total))
    if form.inf_code is not None:
        # The encoder saturates infinities too; here only what is finite does.
        table = np.where(np.isinf(total), form.inf_code | np.signbit(total) << 7, table)
    return table.astype(np.uint8)


def _sum(a: np.ndarray, b: np.ndarray, dtype: DType, op: ReduceOp) -> np.ndarray:
    """Sums of at least 16 bits."""
    nan = FLOATS[dtype].nan
    with np.errstate(over="ignore", invalid="ignore"):
        # An f32 sum of two narrower values, rounded again, is rounded right: 24 ≥ 2 · 11 + 2.
        if dtype is DType.BF16:
            wide = _sum(a.astype(np.uint32) << 16, b.astype(np.uint32) << 16, DType.F32, op)
            upper = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16
            return np.where(wide == FLOATS[DType.F32].nan, nan, upper).astype(a.dtype)
        kind = np.float32 if dtype is DType.F32 else np.float16
        total = np.asarray(a.view(kind).astype(np.float32) + b.view(kind).astype(np.float32))
        return np.where(np.isnan(total), a.dtype.type(nan), total.astype(kind).view(a.dtype))


def _selection(a: np.ndarray, b: np.ndarray, dtype: DType, op: ReduceOp) -> np.ndarray:
    """IEEE 754-2019's minimum or maximum."""
    form: FloatFormat = FLOATS[dtype]
    sign = 1 << form.width - 1

    def rank(bits: np.ndarray) -> np.ndarray:
        magnitude = (bits & sign - 1).astype(np.int64)
        return np.where(bits & sign, -1 - magnitude, magnitude)  # −0 is below +0

    takes_b = (rank(b) < rank(a)) ^ (op is ReduceOp.MAX)
    nan = ((a & sign - 1) > form.limit) | ((b & sign - 1) > form.limit)
    return np.where(nan, form.nan, np.where(takes_b, b, a)).astype(a.dtype)
