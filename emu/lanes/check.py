"""Outputs of a tile are functions of registers alone: that is what lets tiles be run apart."""

from __future__ import annotations

import random

from ..cache import BuildError
from .graph import FALSE, Bitwise, Graph, Select
from .lower import Lowered
from .plan import ordered_units, unit_operands

__all__ = ["check_outputs"]

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
        first, second = (_evaluate(lowered.graph, literals, seed) for seed in (1, 2))
        if first != second:
            raise BuildError(f"output {name} of tile {lowered.tile.name} depends on an input of "
                             "its cycle, which no output of a tile may")


def _reaches_input(graph: Graph, literals: tuple[int, ...]) -> bool:
    operands = list(literals)
    for unit in ordered_units(graph, literals):
        operands += [literal for literal, _ in unit_operands(graph, unit)]
    return any(plane is not None and plane[0] == "i" for plane in map(graph.plane, operands))


def _evaluate(graph: Graph, literals: tuple[int, ...], seed: int) -> list[int]:
    """Literals in random states; inputs, but not states, depend on ``seed``."""
    whole = (1 << _STATES) - 1
    known: dict[int, int] = {0: 0}

    def value(literal: int) -> int:
        node = literal >> 1
        if node not in known:
            array, index = graph.plane(literal & ~1) or ("", 0)
            known[node] = random.Random(
                f"{array}{index}{seed if array == 'i' else ''}").getrandbits(_STATES)
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
            case _:
                continue  # what a memory holds, or a product: as good as a register
        for bit, plane in enumerate(planes):
            known[graph.source("t", block.at + bit) >> 1] = plane
    return [value(literal) for literal in literals] if literals else [FALSE]
