"""C++ out of plans: functions, and what the model around them needs to know.

Functions are short, because compilers take more than linear time for long ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .lowered import Lowered
from .plan import Plan, Run, plan_cycle, plan_outputs
from .rows import Rows, find_rows
from .statements import Statements

__all__ = ["ARGUMENTS", "SIGNATURE", "Emitted", "emit", "stretches"]

#: Units per function, about.
FUNCTION_UNITS = 400
SIGNATURE = "(State& __restrict s, Work& __restrict w)"
ARGUMENTS = "(s, w)"


@dataclass(frozen=True)
class Emitted:
    """A tile as C++."""

    #: Functions, the calls of a clock edge, and those of the outputs after it, by group.
    functions: tuple[str, ...]
    cycle: tuple[str, ...]
    outputs: dict[str, tuple[str, ...]]
    #: Runs of next states to be copied: (first, length).
    following: tuple[tuple[int, int], ...]
    #: Planes of each array.
    sizes: dict[str, int]
    #: Where the planes of an output are: array and index.
    ports: dict[str, tuple[str, int]]
    rows: tuple[Rows, ...]


def emit(lowered: Lowered, group_of: Mapping[str, str]) -> Emitted:
    """Return ``lowered`` as C++. Outputs in ``group_of`` are computed apart, group by group; the
    others are the group ``output``."""
    ports, moved = _output_planes(lowered)
    sinks: dict[str, dict[int, int]] = {
        group: {} for group in ("output", *dict.fromkeys(group_of.values()))}
    for name in moved:
        for offset, literal in enumerate(lowered.outputs[name]):
            sinks[group_of.get(name, "output")][ports[name][1] + offset] = literal
    cycle = plan_cycle(lowered)
    plans = {group: plan_outputs(lowered, each.values()) for group, each in sinks.items()}
    found = find_rows(lowered, (cycle, *plans.values()),
                      {name: plane for name, plane in ports.items() if name not in moved},
                      [*lowered.following.values(),
                       *(literal for each in sinks.values() for literal in each.values())])
    writer = _Writer(lowered, found)
    steps = writer.plan("step", cycle, lowered.following, "n")
    outputs = {group: tuple(writer.plan(group, plan, sinks[group], "o"))
               for group, plan in plans.items()}
    return Emitted(
        functions=tuple(writer.functions), cycle=tuple(steps), outputs=outputs,
        following=stretches(lowered.following),
        sizes={"q": lowered.registers, "i": sum(width for _, width in lowered.inputs.values()),
               "t": lowered.graph.next_plane, "x": writer.spilled,
               "o": sum(len(lowered.outputs[name]) for name in moved)},
        ports=ports, rows=tuple(found.values()))


def _output_planes(lowered: Lowered) -> tuple[dict[str, tuple[str, int]], list[str]]:
    """Where each output is found, and those that are computed; registers stay where they are."""
    graph, ports, moved, at = lowered.graph, {}, [], 0
    for name, literals in lowered.outputs.items():
        planes = [graph.plane(literal) if not literal & 1 else None for literal in literals]
        first = planes[0]
        if first is not None and first[0] == "q" and all(
                plane == ("q", first[1] + bit) for bit, plane in enumerate(planes)):
            ports[name] = first
        else:
            ports[name] = ("o", at)
            moved.append(name)
            at += len(literals)
    return ports, moved


def stretches(indices: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Consecutive numbers: (first, how many)."""
    result: list[tuple[int, int]] = []
    for index in sorted(indices):
        if result and sum(result[-1]) == index:
            result[-1] = (result[-1][0], result[-1][1] + 1)
        else:
            result.append((index, 1))
    return tuple(result)


class _Writer:
    def __init__(self, lowered: Lowered, rows: dict[tuple[str, int], Rows]) -> None:
        self._graph, self._rows = lowered.graph, rows
        self.functions: list[str] = []
        self.spilled = 0

    def plan(self, name: str, plan: Plan, sinks: dict[int, int], array: str) -> list[str]:
        """Write the functions of a plan; return their names in order. ``sinks`` are planes of
        ``array`` and the literals that they take."""
        parts = [Run(run.guards, run.units[start:start + FUNCTION_UNITS])
                 for run in plan.runs for start in range(0, len(run.units), FUNCTION_UNITS)]
        groups: list[list[Run]] = []
        for part in parts:
            if groups and sum(len(run.units) for run in groups[-1]) + len(
                    part.units) <= FUNCTION_UNITS:
                groups[-1].append(part)
            else:
                groups.append([part])
        body = Statements(self._graph, self._rows, parts, plan, sinks, array, self.spilled)
        names: list[str] = []

        def function(lines: Iterable[str]) -> None:
            names.append(f"{name}_{len(names)}")
            text = "\n".join(f"    {line}" for line in lines)
            self.functions.append(f"void {names[-1]}{SIGNATURE} {{\n{text}\n}}\n")

        for group in groups:
            function(line for run in group for line in body.run(run))
        rest = body.rest()
        for start in range(0, len(rest), FUNCTION_UNITS):
            function(rest[start:start + FUNCTION_UNITS])
        for start in range(0, len(plan.actions), 40):
            function(line for action in plan.actions[start:start + 40]
                     for line in body.action(action))
        self.spilled = body.spilled
        return names
