"""What a schedule computes, bit for bit: its steps on numpy arrays, with the adder's own model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drivers.dtypes import ElementType, element_type
from hdl.compute.reduce import add

from .program import Program
from .schedule import Schedule, Send

__all__ = ["reference"]


def reference(schedule: Schedule | Program, inputs: Sequence[np.ndarray],
              dtype: str | ElementType) -> list[np.ndarray]:
    """Return each member's buffer after ``schedule`` has run on ``inputs``.

    Sums depend on their order; every order that the schedule allows gives the same bits, or the
    checker would have refused it.
    """
    kind = element_type(dtype)
    if kind.code is None:
        raise ValueError(f"nothing adds elements of type {kind}")
    if isinstance(schedule, Program):
        schedule = schedule.expand()
    bits = np.dtype(f"u{kind.size}")
    buffers = [np.array(values, kind.numpy).reshape(-1).view(bits) for values in inputs]
    order, _ = schedule.run_order()
    for position, index in order:
        step = schedule.lists[position][index]
        if not isinstance(step, Send):
            continue
        values = buffers[position][step.source.start:step.source.end]
        target = buffers[step.peer][step.target.start:step.target.end]
        target[:] = add(target, values, kind.code) if step.reduce else values
    return [buffer.view(kind.numpy).reshape(np.shape(values))
            for buffer, values in zip(buffers, inputs, strict=True)]
