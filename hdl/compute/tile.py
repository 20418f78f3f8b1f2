"""The compute tile of a card: the GEMM engine, as simulators and FPGAs see it.

It sleeps (``idle``) while it has no request, and while it waits for memory with nothing left to ask
for; it has no timers, so ``wake`` never comes.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import flipped

from ..connect import connect
from ..layouts import ADDRESS_BITS, CYCLE_BITS
from ..params import CardParams
from ..ports import ComputeSignature
from .gemm import GemmEngine

__all__ = ["ComputeTile"]


class ComputeTile(wiring.Component):
    """The GEMM engine behind the tile rules of ``hdl/ports.py``.

    Parameters
    ----------
    params : CardParams

    Members: see :class:`~hdl.ports.ComputeSignature`.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        super().__init__(ComputeSignature(params))

    @property
    def params(self) -> CardParams:
        return self._params

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.engine = engine = GemmEngine(self._params)
        # It settles during reset, which is why this register has none.
        memory_bytes = Signal(ADDRESS_BITS + 1, reset_less=True)
        m.d.sync += memory_bytes.eq(self.memory_bytes)
        m.d.comb += [engine.now.eq(self.now), engine.memory_bytes.eq(memory_bytes),
                     self.idle.eq(~engine.active), self.wake.eq((1 << CYCLE_BITS) - 1)]
        m.d.comb += self.activity.gemm.eq(engine.activity)
        connect(m, engine.gemm, flipped(self.gemm))
        connect(m, engine.done, flipped(self.done))
        connect(m, engine.write, flipped(self.write))
        for port, outer in zip(engine.read, self.read, strict=True):
            connect(m, port, flipped(outer))
        return m
