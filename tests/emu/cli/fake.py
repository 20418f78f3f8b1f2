"""A supernode in numpy with the public face of the real one, for tests of what stands above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from drivers.collectives import Buffer, Region, Task
from drivers.dtypes import DTYPES
from emu.oracle import outputs_of, ring_sum
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
    order: tuple[int, ...] = ()
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

    @property
    def size(self) -> int:
        return self.values.size

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
        return SimpleNamespace(statistics=self._statistics, replays=lambda: 3, fabric=None,
                               link_statistics=list)

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
        self.corrupt(target)
        return FakeHandle(self.result)

    def gemms(self, products: list[tuple[FakeArray, FakeArray, FakeArray]], *,
              b_transposed: bool = False) -> FakeHandle:
        for a, b, c in products:
            assert a.card == b.card == c.card
            right = b.values.T if b_transposed else b.values
            # float64 holds every sum of E4M3 products of these sizes exactly.
            product = a.values.astype(np.float64) @ right.astype(np.float64)
            c.values = product.astype(np.float32)
            self.corrupt(c)
        return FakeHandle(self.result)

    def group(self, cards: Sequence[int]) -> FakeGroup:
        return FakeGroup(self, tuple(cards))

    def allreduce(self, arrays: list[FakeArray], op: str = "sum",
                  algorithm: str = "auto") -> FakeHandle:
        total = ring_sum(self.topology, self.params, [array.values for array in arrays])
        for array in arrays:
            array.values = total.copy()
            self.corrupt(array)
        return FakeHandle(self.result)

    def corrupt(self, array: FakeArray) -> None:
        if self.flip and array.values.size:
            array.values.view(np.uint8).reshape(-1)[-1] ^= 1


@dataclass(frozen=True)
class FakeGroup:
    """Some of its cards; every sum is added in the order of the ring."""

    machine: FakeSuperNode
    cards: tuple[int, ...]

    def start(self, task: Task, inputs: list[FakeArray], outputs: list[FakeArray], op: str = "sum",
              algorithm: str = "auto") -> FakeHandle:
        def of(arrays: list[FakeArray], member: int, region: Region) -> np.ndarray:
            return arrays[member].values[region.start:region.end]

        shares = [of(inputs if task.input(member).buffer is Buffer.INPUT else outputs, member,
                     task.input(member)).copy() for member in range(task.members)]
        handle = FakeHandle(self.machine.result, self.cards)
        found = outputs_of(self.machine.topology, self.machine.params, self.cards, task, shares,
                           handle, op)
        for member, values in enumerate(found):
            of(outputs, member, task.output(member))[:] = values
            self.machine.corrupt(outputs[member])
        return handle


_preset = preset
