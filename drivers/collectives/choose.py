"""The algorithm that a model of the machine finds fastest, and why.

Every algorithm that serves the collective writes its schedule, and :mod:`.predict` says how long
that takes. A dimension-wise program brings the cycles of the model that shaped it. The choice
depends on machine, group, sizes, places of buffers and free counters alone: nothing that happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hdl.params import CardParams
from hdl.topology import Topology

from .algorithms import algorithms
from .predict import predict
from .setting import AlgorithmError, Setting
from .task import Task

__all__ = ["Choice", "fastest"]

#: Schedules of more steps are not considered: to write and prove them takes seconds.
_MOST_STEPS = 40_000


class Choice(NamedTuple):
    """An algorithm, the cycles that the model gives it, and how the others compare."""

    algorithm: str
    cycles: int
    reason: str


@lru_cache(maxsize=256)
def fastest(task: Task, setting: Setting, topology: Topology, params: CardParams,
            cards: tuple[int, ...], *, counters: int, program: int | None = None) -> Choice:
    """Choose among the algorithms whose lists take no more than ``counters`` counters of a card,
    and a dimension-wise program of ``program`` cycles if there is one.

    Raises
    ------
    AlgorithmError
        If no algorithm is left.
    """
    found: list[tuple[int, str]] = [] if program is None else [(program, "dimensions")]
    refused: list[str] = []
    for name, write in algorithms().items():
        try:
            schedule = write(task, setting)
        except AlgorithmError:
            continue
        steps = sum(map(len, schedule.lists))
        needed = max(_per_member(schedule.arrivals, task.members))
        if needed > counters:
            refused.append(f"{name} needs {needed} counters")
        elif steps > _MOST_STEPS:
            refused.append(f"{name} has {steps:,} steps")
        else:
            found.append((predict(schedule, topology, params, cards, setting.item_size), name))
    if not found:
        raise AlgorithmError(f"no algorithm serves {task}: "
                             f"{', '.join(refused) or 'none is for it'}")
    found.sort()
    cycles, name = found[0]
    others = [f"{other} {more:,}" for more, other in found[1:]] + refused
    return Choice(name, cycles, f"{name}: {cycles:,} cycles by the model"
                  + (f"; {', '.join(others)}" if others else ""))


def _per_member(arrivals: dict[tuple[int, str], tuple[tuple[int, int], ...]],
                members: int) -> Sequence[int]:
    """Counters that each member needs."""
    needed = [0] * members
    for member, _ in arrivals:
        needed[member] += 1
    return needed
