"""Outputs of a tile are functions of registers alone: that is what lets tiles be run apart."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..cache import BuildError
from .graph import Bitwise, Graph, Mul, Select
from .lowered import Lowered
from .plan import ordered_units, unit_operands

__all__ = ["check_outputs", "evaluate"]

#: Random states, as bits of an integer, in which no input may change an output.
_STATES = 4096


def check_outputs(lowered: Lowered) -> None:
    """Find outputs that depend on inputs of their cycle.

    An input may be there in form, where logic makes it not matter (``a | a & input``); so where one
    is, the output is computed in random states for two sets of random inputs.

    Raises
    ------
    BuildError
        If there is such an output.
    """
    for name, literals in lowered.outputs.items():
        if not _reaches_input(lowered.graph, literals):
            continue
        first, second = (evaluate(lowered.graph, literals, _random(seed), _STATES)
                         for seed in (1, 2))
        if first != second:
            raise BuildError(f"output {name} of tile {lowered.tile.name} depends on an input of "
                             "its cycle, which no output of a tile may")


def _reaches_input(graph: Graph, literals: tuple[int, ...]) -> bool:
    operands = list(literals)
    for unit in ordered_units(graph, literals):
        operands += [literal for literal, _ in unit_operands(graph, unit)]
    return any(plane is not None and plane[0] == "i" for plane in map(graph.plane, operands))


def _random(seed: int) -> Callable[[str, int], int]:
    """Planes of random states; inputs, but not states, depend on ``seed``."""
    def plane(array: str, index: int) -> int:
        name = f"{array}{index}{seed if array == 'i' else ''}"
        return random.Random(name).getrandbits(_STATES)

    return plane


def evaluate(graph: Graph, literals: tuple[int, ...], plane: Callable[[str, int], int],
             lanes: int) -> list[int]:
    """Literals, where ``plane(array, index)`` are registers and inputs, and what memories give; a
    bit of an integer per lane."""
    whole = (1 << lanes) - 1
    known: dict[int, int] = {0: 0}

    def value(literal: int) -> int:
        node = literal >> 1
        if node not in known:
            known[node] = plane(*(graph.plane(literal & ~1) or ("", 0)))
        return known[node] ^ (whole if literal & 1 else 0)

    def blend(cond: int, then: int, other: int) -> int:
        return other ^ (cond & (then ^ other))

    for unit in ordered_units(graph, literals):
        if unit >= 0:
            a, b = value(graph.a[unit]), value(graph.b[unit])
            match graph.op[unit]:
                case "A":
                    known[unit] = a & b
                case "X":
                    known[unit] = a ^ b
                case _:
                    known[unit] = blend(a, b, value(graph.c[unit]))
            continue
        block = graph.blocks[~unit]
        match block:
            case Select():
                planes = [value(literal) for literal in block.default]
                for arm in block.arms:
                    cond = value(arm.cond)
                    planes = [blend(cond, value(new), old)
                              for new, old in zip(arm.values, planes, strict=True)]
            case Bitwise():
                pairs = [(value(a), value(b)) for a, b in zip(block.a, block.b, strict=True)]
                planes = [a & b if block.operator == "&" else a ^ b for a, b in pairs]
            case Mul():
                planes = _product([value(literal) for literal in block.a],
                                  [value(literal) for literal in block.b], lanes)
            case _:
                continue
        for bit, computed in enumerate(planes):
            known[graph.source("t", block.at + bit) >> 1] = computed
    return [value(literal) for literal in literals]


def _product(a: list[int], b: list[int], lanes: int) -> list[int]:
    planes = [0] * len(a)
    for lane in range(lanes):
        x, y = (sum((plane >> lane & 1) << bit for bit, plane in enumerate(operand))
                for operand in (a, b))
        for bit in range(len(a)):
            planes[bit] |= (x * y >> bit & 1) << lane
    return planes
