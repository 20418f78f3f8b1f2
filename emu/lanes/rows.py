"""What moves in whole rows: payloads that no logic looks into.

A payload goes from a pin to a memory, from there through a multiplexer to a register and out of a
pin, and pins and memories have it as bytes of a lane. Turned into planes it would be transposed at
each end, for all lanes together; as a row it is copied, for the lanes that have one. So consecutive
planes that come from such a place, and all whose users take them as a whole, are *rows*: bytes per
lane. Planes are made of those 64 bits of a row that logic does look into, such as a header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .graph import FALSE, Graph, Select
from .lowered import Fetch, Hold, Lowered, Store, Write
from .plan import Action, Plan, action_operands

__all__ = ["Rows", "find_rows"]

#: Bits of a row, at the least.
_MINIMUM = 128
Key = tuple[str, int]


@dataclass
class Rows:
    """Planes ``array[at]`` … ``array[at + width - 1]`` as bytes of a lane.

    Attributes
    ----------
    producer : Select, Store, Hold, Fetch or str
        What makes them; the name of an input port.
    columns : set of int
        64 planes each that logic needs as planes.
    pin : str or None
        The port whose pins they are.
    """

    array: str
    at: int
    width: int
    producer: Any
    number: int = 0
    columns: set[int] = field(default_factory=set)
    pin: str | None = None

    @property
    def all_columns(self) -> set[int]:
        return set(range(self.width // 64))


def find_rows(lowered: Lowered, plans: Sequence[Plan], ports: dict[str, Key],
              sinks: Sequence[int]) -> dict[Key, Rows]:
    """Return rows by array and first plane. ``ports`` are the planes of outputs that are registers,
    ``sinks`` the literals that outputs and next states are computed of."""
    graph = lowered.graph
    blocks = [graph.blocks[~unit] for plan in plans for run in plan.runs
              for unit in run.units if unit < 0]
    actions = [action for plan in plans for action in plan.actions]
    found = {(rows.array, rows.at): rows for rows in _candidates(lowered, blocks, actions)}
    while True:
        for rows in found.values():
            rows.columns.clear()
        _look(graph, found, plans, blocks, actions, sinks)
        _look_out(lowered, found, ports)
        wrong = [key for key, rows in found.items() if not _movable(graph, found, rows)]
        if not wrong:
            break
        for key in wrong:
            del found[key]
    for number, rows in enumerate(found.values()):
        rows.number = number
    return found


def whole(graph: Graph, found: dict[Key, Rows], literals: Sequence[int],
          width: int | None = None) -> Rows | None:
    """The rows that these literals are, if they are all of them, in order."""
    plane = graph.plane(literals[0]) if literals and not literals[0] & 1 else None
    rows = found.get(plane) if plane is not None else None
    width = len(literals) if width is None else width
    if rows is None or rows.width != width or len(literals) < width:
        return None
    for bit in range(width):
        if literals[bit] & 1 or graph.plane(literals[bit]) != (rows.array, rows.at + bit):
            return None
    return rows


def operands_of(producer: Select | Store | Hold) -> Iterator[tuple[int, ...]]:
    """Values that rows are made of."""
    if not isinstance(producer, Hold):
        yield producer.default
    for arm in producer.arms:
        yield arm.values


def _values(each: Any) -> Iterator[tuple[int, ...]]:
    if isinstance(each, (Select, Store, Hold)):
        yield from operands_of(each)
    elif isinstance(each, Write):
        yield each.data[:head(each.data)]


def head(data: Sequence[int]) -> int:
    """Bits at the front of a memory's row that can be rows."""
    return len(data) // 64 * 64


def _candidates(lowered: Lowered, blocks: list[Any], actions: list[Action]) -> Iterator[Rows]:
    ones = set(lowered.init) | {at for at, value in lowered.resets.items() if value}
    taken = {values for each in (*blocks, *actions) for values in _values(each)}
    for name, (at, width) in lowered.inputs.items():
        lengths = [len(values) for values in taken
                   if _MINIMUM <= len(values) <= width and not len(values) % 64
                   and lowered.graph.plane(values[0]) == ("i", at)]
        if lengths:
            yield Rows("i", at, max(lengths), name, pin=name)
    for block in blocks:
        if isinstance(block, Select) and block.width >= _MINIMUM and not block.width % 64:
            yield Rows("t", block.at, block.width, block)
    for action in actions:
        if isinstance(action, Write) or action.width < _MINIMUM:
            continue
        width = head(range(action.width)) if isinstance(action, Fetch) else action.width
        if width % 64 == 0 and not ones & set(range(action.at, action.at + action.width)):
            yield Rows("q", action.at, width, action)


def _movable(graph: Graph, found: dict[Key, Rows], rows: Rows) -> bool:
    if isinstance(rows.producer, str):
        return True
    if isinstance(rows.producer, Fetch):
        return True
    if not isinstance(rows.producer, Hold) and set(rows.producer.default) != {FALSE}:
        return False
    moved = [whole(graph, found, values) is not None for values in operands_of(rows.producer)
             if set(values) != {FALSE}]
    return bool(moved) and all(moved)


def _look(graph: Graph, found: dict[Key, Rows], plans: Sequence[Plan], blocks: list[Any],
          actions: list[Action], sinks: Sequence[int]) -> None:
    """Mark what is needed as planes."""
    home = {(rows.array, rows.at + bit): rows for rows in found.values()
            for bit in range(rows.width)}

    def need(literal: int) -> None:
        plane = graph.plane(literal)
        rows = home.get(plane) if plane is not None else None
        if rows is not None and plane is not None:
            rows.columns.add((plane[1] - rows.at) // 64)

    for literal in sinks:
        need(literal)
    for plan in plans:
        for function in plan.functions.values():
            for leaf in function.leaves:
                need(2 * leaf)
    made = {id(rows.producer) for rows in found.values()}
    for each in (*blocks, *actions):
        if id(each) in made and not isinstance(each, Fetch):
            for arm in each.arms:
                need(arm.cond)
            continue
        skipped: set[int] = set()
        if isinstance(each, Write) and len(each.enable) == 1 and whole(
                graph, found, each.data, head(each.data)):
            skipped = set(each.data[:head(each.data)])
        operands = (action_operands(each) if isinstance(each, (Hold, Store, Write, Fetch))
                    else each.operands())
        for literal, _ in operands:
            if literal not in skipped:
                need(literal)


def _look_out(lowered: Lowered, found: dict[Key, Rows], ports: dict[str, Key]) -> None:
    """Registers that are the front of an output are its pins; those elsewhere in one are needed as
    planes."""
    for name, (array, at) in ports.items():
        width = len(lowered.outputs[name])
        for rows in found.values():
            if rows.array != array or rows.at + rows.width <= at or at + width <= rows.at:
                continue
            if rows.at == at and rows.width <= width and not isinstance(
                    rows.producer, Fetch) and rows.pin in (None, name) and width >= _MINIMUM:
                rows.pin = name
            else:
                rows.columns |= rows.all_columns

