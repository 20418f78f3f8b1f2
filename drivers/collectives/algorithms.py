"""The algorithms by name, and proved schedules of theirs.

An algorithm is a function of a :class:`~drivers.collectives.Task` and a
:class:`~drivers.collectives.Setting` that returns a schedule, or raises
:class:`~drivers.collectives.AlgorithmError` if it does not serve them. Packages add their own as
entry points of the group ``supernode.collectives``, see ``docs/write-a-collective.md``; like ours
they run only if the checker proves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.metadata import entry_points

from .checker import check
from .direct import bruck, direct, pairwise
from .halving import doubling, halving
from .ring import bidirectional, ring
from .schedule import Schedule
from .setting import Setting
from .task import Task
from .tree import tree

__all__ = ["Algorithm", "algorithm_names", "algorithms", "proved_schedule"]

Algorithm = Callable[[Task, Setting], Schedule]

_OURS: Mapping[str, Algorithm] = {
    "ring": ring, "bidirectional": bidirectional, "halving": halving, "doubling": doubling,
    "tree": tree, "direct": direct, "pairwise": pairwise, "bruck": bruck}


@cache
def algorithms() -> Mapping[str, Algorithm]:
    """All algorithms that write schedules, those of other packages included.

    Raises
    ------
    ValueError
        If a package calls its algorithm like another one.
    """
    found = dict(_OURS)
    for entry in entry_points(group="supernode.collectives"):
        if entry.name in found:
            raise ValueError(f"{entry.value} calls its algorithm {entry.name!r}, and there is one "
                             f"of that name")
        found[entry.name] = entry.load()
    return found


def algorithm_names() -> tuple[str, ...]:
    """What ``algorithm=`` accepts, for one collective or another."""
    return ("auto", "dimensions", *algorithms())


@lru_cache(maxsize=64)
def proved_schedule(algorithm: str, task: Task, setting: Setting) -> Schedule:
    """The schedule of an algorithm, proved.

    Raises
    ------
    AlgorithmError
        If the algorithm does not serve the task in this setting.
    ScheduleError
        If it wrote a schedule that cannot be proved.
    """
    schedule = algorithms()[algorithm](task, setting)
    check(schedule)
    return schedule
