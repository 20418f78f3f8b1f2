"""A supernode in numpy with the public face of the real one, for tests of what stands above it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from drivers.dtypes import DTYPES
from emu.oracle import ring_sum
from hdl.params import preset
from hdl.topology import parse


@dataclass(frozen=True)
class FakeResult:
    cycles: int = 1000
    bound_cycles: int = 900
    limit: str = "injection"
    efficiency: float | None = 0.9
    time_ns: float = 1000.0
    waited_cycles: int = 7


@dataclass(frozen=True)
class FakeHandle:
    result: FakeResult
    schedule: None = None
    algorithm: str = "ring"

    @property
    def bound(self) -> Any:
        return SimpleNamespace(cycles=self.result.bound_cycles)

    def wait(self, timeout: int = 0) -> FakeResult:
        return self.result


class FakeArray:
    def __init__(self, shape: tuple[int, ...], dtype: str, card: int) -> None:
        self.shape, self.card = tuple(shape), card
        self.values = np.zeros(shape, DTYPES[dtype].numpy)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def write(self, values: np.ndarray) -> FakeArray:
        assert values.shape == self.shape
        assert values.dtype == self.values.dtype
        self.values = values.copy()
        return self

    def read(self) -> np.ndarray:
        return self.values.copy()


@dataclass
class FakeSuperNode:
    """Computes at once what the machine would; ``flip`` corrupts one bit of every result."""

    topology: Any
    params: Any
    flip: bool = False
    result: FakeResult = field(default_factory=FakeResult)
    closed: bool = False
    kept: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, spec: str, *, preset: str, flip: bool = False,
             result: FakeResult | None = None, **_: Any) -> FakeSuperNode:
        return cls(parse(spec), _preset(preset), flip, result or FakeResult())

    @property
    def cards(self) -> int:
        return self.topology.cards

    @property
    def backend(self) -> Any:
        return SimpleNamespace(statistics=self._statistics, replays=lambda: 3, fabric=None)

    def _statistics(self) -> Any:
        return SimpleNamespace(card_cycles_per_s=16000.0, stepped_card_cycles_per_s=4000.0)

    def close(self) -> None:
        self.closed = True

    def malloc(self, shape: tuple[int, ...], dtype: str, card: int) -> FakeArray:
        return FakeArray(shape, dtype, card)

    def free(self, *arrays: FakeArray) -> None:
        pass

    def start_write(self, source: FakeArray, target: FakeArray) -> FakeHandle:
        target.values = source.values.copy()
        self._corrupt(target)
        return FakeHandle(self.result)

    def gemms(self, products: list[tuple[FakeArray, FakeArray, FakeArray]], *,
              b_transposed: bool = False) -> FakeHandle:
        for a, b, c in products:
            assert a.card == b.card == c.card
            right = b.values.T if b_transposed else b.values
            # float64 holds every sum of E4M3 products of these sizes exactly.
            product = a.values.astype(np.float64) @ right.astype(np.float64)
            c.values = product.astype(np.float32)
            self._corrupt(c)
        return FakeHandle(self.result)

    def allreduce(self, arrays: list[FakeArray], op: str = "sum",
                  algorithm: str = "auto") -> FakeHandle:
        total = ring_sum(self.topology, self.params, [array.values for array in arrays])
        for array in arrays:
            array.values = total.copy()
            self._corrupt(array)
        return FakeHandle(self.result)

    def _corrupt(self, array: FakeArray) -> None:
        if self.flip and array.values.size:
            array.values.view(np.uint8).reshape(-1)[-1] ^= 1


_preset = preset
