"""What a schedule computes, bit for bit: its steps on numpy arrays, with the hardware's model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drivers.dtypes import ElementType, element_type
from hdl.compute.reduce import combine
from hdl.layouts import ReduceOp

from .program import Program
from .schedule import Schedule, Send
from .task import Buffer, Region

__all__ = ["reference"]


def reference(schedule: Schedule | Program, inputs: Sequence[np.ndarray],
              dtype: str | ElementType, op: ReduceOp = ReduceOp.SUM) -> list[np.ndarray]:
    """Return each member's output after ``schedule`` has run on ``inputs``, both flat.

    Sums depend on their order; every order that the schedule allows gives the same bits, or the
    checker would have refused it.
    """
    kind = element_type(dtype)
    if kind.code is None:
        raise ValueError(f"nothing adds elements of type {kind}")
    if isinstance(schedule, Program):
        schedule = schedule.expand()
    bits, task = np.dtype(f"u{kind.size}"), schedule.task
    memory = {(member, buffer): np.zeros(schedule.size(member, buffer), bits)
              for member in range(schedule.members) for buffer in Buffer}

    def of(member: int, region: Region) -> np.ndarray:
        return memory[member, region.buffer][region.start:region.end]

    for member, values in enumerate(inputs):
        of(member, task.input(member))[:] = np.asarray(values, kind.numpy).reshape(-1).view(bits)
    order, _ = schedule.run_order()
    for position, index in order:
        step = schedule.lists[position][index]
        if isinstance(step, Send):
            values = of(position, step.source)
            if step.addend:
                values = combine(of(step.peer, step.addend), values, kind.code, op)
            of(step.peer, step.target)[:] = values
    return [of(member, task.output(member)).view(kind.numpy).copy()
            for member in range(schedule.members)]
