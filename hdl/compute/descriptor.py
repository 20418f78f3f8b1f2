"""Fetches a GEMM descriptor and checks it before anything else is read or written.

Refused are: an address that is not a multiple of 128 or leaves memory; formats and accumulation
that are not built; reserved fields that are not zero; K above 2**30, where sums could overflow; a C
that is not aligned to 4 bytes; a matrix that leaves memory. A matrix of which no byte will be
touched (any with M or N zero, A and B with K zero) may be anywhere.

Timing: the verdict comes 14 cycles after the descriptor's last flit.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..layouts import ADDRESS_BITS, Accumulate, Descriptor, Format
from ..ports import MemoryReadSignature

__all__ = ["DescriptorReader", "MAX_K"]

#: Largest K for which the array's sums cannot overflow.
MAX_K = 1 << 30


class DescriptorReader(wiring.Component):
    """Reads and checks a descriptor.

    Parameters
    ----------
    flit_bytes : int

    Members
    -------
    start : ``In(1)``
    address : ``In(ADDRESS_BITS)``
    memory_bytes : ``In(ADDRESS_BITS + 1)``
    read : ``Out(MemoryReadSignature)``
    descriptor : ``Out(Descriptor)``
        Valid from ``done`` until the next start.
    done : ``Out(1)``
        For one cycle.
    refused : ``Out(1)``
        With ``done``: the descriptor is not to be followed.
    active : ``Out(1)``
    """

    def __init__(self, flit_bytes: int) -> None:
        self._flit_bytes = flit_bytes
        super().__init__({
            "start": In(1), "address": In(ADDRESS_BITS), "memory_bytes": In(ADDRESS_BITS + 1),
            "read": Out(MemoryReadSignature(flit_bytes)), "descriptor": Out(Descriptor),
            "done": Out(1), "refused": Out(1), "active": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        request, response, given = self.read.request, self.read.response, self.descriptor
        flits = 128 // self._flit_bytes
        to_ask, to_come = Signal(range(flits + 1)), Signal(range(flits + 1))
        waiting = Signal()

        # One multiplier serves the three matrices: last byte + 1 = base + (rows - 1) × pitch + row.
        matrix = Signal(2)
        rows, pitch, length = Signal(32), Signal(32), Signal(34)
        base, untouched = Signal(64), Signal()
        factor_rows, factor_pitch, end = Signal(32), Signal(32), Signal(67)
        product = Signal(64)
        across, down = Mux(given.b_transposed, given.k, given.n), Mux(
            given.b_transposed, given.n, given.k)
        empty = (given.m == 0) | (given.n == 0)
        with m.Switch(matrix):
            with m.Case(0):
                m.d.comb += [base.eq(given.a), rows.eq(given.m), pitch.eq(given.lda),
                             length.eq(given.k), untouched.eq(empty | (given.k == 0))]
            with m.Case(1):
                m.d.comb += [base.eq(given.b), rows.eq(down), pitch.eq(given.ldb),
                             length.eq(across), untouched.eq(empty | (given.k == 0))]
            with m.Default():
                m.d.comb += [base.eq(given.c), rows.eq(given.m), pitch.eq(given.ldc),
                             length.eq(given.n << 2), untouched.eq(empty)]

        def operand(code):
            return (code == Format.E4M3) | (code == Format.E5M2)

        with m.FSM(name="check") as fsm:
            with m.State("REST"):
                m.d.sync += [matrix.eq(0), to_ask.eq(flits), to_come.eq(flits),
                             request.payload.index.eq(self.address[
                                 (self._flit_bytes - 1).bit_length():])]
                with m.If(self.start):
                    m.d.sync += self.refused.eq(0)
                    m.next = "PLACE"
            with m.State("PLACE"):
                with m.If(self.address[:7].any() | (self.address + 128 > self.memory_bytes)):
                    m.d.sync += self.refused.eq(1)
                    m.next = "DONE"
                with m.Else():
                    m.d.sync += request.valid.eq(1)
                    m.next = "FETCH"
            with m.State("FETCH"):
                # Between its flits a descriptor is still moving into place elsewhere.
                m.d.comb += waiting.eq(~request.valid & (to_come == flits))
                with m.If(request.valid & request.ready):
                    m.d.sync += [to_ask.eq(to_ask - 1), request.valid.eq(to_ask != 1),
                                 request.payload.index.eq(request.payload.index + 1)]
                with m.If(response.valid):
                    m.d.sync += [
                        to_come.eq(to_come - 1), given.eq(
                            (given.as_value() >> 8 * self._flit_bytes)
                            | response.payload.data << 8 * (128 - self._flit_bytes))]
                with m.If(to_come == 0):
                    m.next = "FIELDS"
            with m.State("FIELDS"):
                with m.If(~operand(given.a_format) | ~operand(given.b_format)
                          | (given.c_format != Format.F32) | (given.accumulate != Accumulate.EXACT)
                          | given.reserved0.any() | given.reserved1.any() | given.reserved2.any()
                          | given.reserved3.any() | given.c[:2].any() | given.ldc[:2].any()
                          | (given.k > MAX_K)):
                    m.d.sync += self.refused.eq(1)
                m.next = "FACTORS"
            with m.State("FACTORS"):
                m.d.sync += [factor_rows.eq(rows - 1), factor_pitch.eq(pitch)]
                m.next = "MULTIPLY"
            with m.State("MULTIPLY"):
                m.d.sync += product.eq(factor_rows * factor_pitch)
                m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += end.eq(base + length + product)
                m.next = "COMPARE"
            with m.State("COMPARE"):
                with m.If(~untouched & (end > self.memory_bytes)):
                    m.d.sync += self.refused.eq(1)
                m.d.sync += matrix.eq(matrix + 1)
                m.next = "FACTORS"
                with m.If(matrix == 2):
                    m.next = "DONE"
            with m.State("DONE"):
                m.next = "REST"

        m.d.comb += [self.done.eq(fsm.ongoing("DONE")),
                     self.active.eq(~fsm.ongoing("REST") & ~waiting)]
        return m
