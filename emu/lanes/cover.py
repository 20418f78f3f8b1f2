"""Gates become functions of up to three planes, which wide processors compute in one instruction.

A node is covered by a *cut*: up to three nodes from which it follows, and the table of its values.
Each node takes the cut for which the fewest functions are needed, what several nodes use being
shared among them; then the nodes that are needed are found from the roots down. An adder's bit
takes two functions and not five, and complements are part of tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .graph import Graph

__all__ = ["Function", "cover"]

#: Cuts that are kept of each node.
_CUTS = 5

Cut = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Function:
    """A node as a function of ``leaves``; bit ``i`` of ``table`` is its value where leaf ``k`` has
    bit ``k`` of ``i``."""

    leaves: tuple[int, ...]
    table: int


def cover(graph: Graph, order: Iterable[int], roots: Iterable[int]) -> dict[int, Function]:
    """Return functions for the nodes ``roots``, and for what they are functions of, down to what
    is no gate. ``order`` are the gates, operands first."""
    order = list(order)
    references: dict[int, int] = dict.fromkeys(order, 0)
    for node in order:
        for literal in _operands(graph, node):
            if literal >> 1 in references:
                references[literal >> 1] += 1
    roots = [node for node in roots if node in references]
    for node in roots:
        references[node] += 1
    cuts: dict[int, list[Cut]] = {}
    flow: dict[int, float] = {}
    for node in order:
        found = _merged(graph, node, cuts)
        scored = sorted((sum(flow.get(leaf, 0.0) for leaf in leaves), len(leaves), leaves, table)
                        for leaves, table in found.items())[:_CUTS]
        flow[node] = (1 + scored[0][0]) / max(1, references[node])
        cuts[node] = [(leaves, table) for _, _, leaves, table in scored]
    result: dict[int, Function] = {}
    stack = roots
    while stack:
        node = stack.pop()
        if node in result or node not in references:
            continue
        leaves, table = cuts[node][0]
        result[node] = Function(leaves, table)
        stack += leaves
    return result


def _operands(graph: Graph, node: int) -> tuple[int, ...]:
    if graph.op[node] == "M":
        return graph.a[node], graph.b[node], graph.c[node]
    return graph.a[node], graph.b[node]


def _merged(graph: Graph, node: int, cuts: dict[int, list[Cut]]) -> dict[tuple[int, ...], int]:
    """Cuts of a node, out of those of its operands."""
    operands = _operands(graph, node)
    choices = []
    for literal in operands:
        below = literal >> 1
        choices.append([((below,), 0xAA), *cuts.get(below, ())])
    found: dict[tuple[int, ...], int] = {}
    op = graph.op[node]
    flips = [0xFF if literal & 1 else 0 for literal in operands]
    if len(operands) == 2:
        for left, left_table in choices[0]:
            for right, right_table in choices[1]:
                leaves = left if left == right else tuple(sorted({*left, *right}))
                if len(leaves) > 3 or leaves in found:
                    continue
                a = _placed(left, left_table, leaves) ^ flips[0]
                b = _placed(right, right_table, leaves) ^ flips[1]
                found[leaves] = a & b if op == "A" else a ^ b
        return found
    for first, first_table in choices[0]:
        for left, left_table in choices[1]:
            both = {*first, *left}
            if len(both) > 3:
                continue
            for right, right_table in choices[2]:
                leaves = tuple(sorted(both | set(right)))
                if len(leaves) > 3 or leaves in found:
                    continue
                a = _placed(first, first_table, leaves) ^ flips[0]
                b = _placed(left, left_table, leaves) ^ flips[1]
                c = _placed(right, right_table, leaves) ^ flips[2]
                found[leaves] = c ^ (a & (b ^ c))
    return found


_PLACED: dict[tuple[int, tuple[int, ...]], int] = {}


def _placed(leaves: tuple[int, ...], table: int, wanted: tuple[int, ...]) -> int:
    """A table over ``leaves`` as one over ``wanted``, which holds them."""
    if leaves == wanted:
        return table
    key = (table, tuple([wanted.index(leaf) for leaf in leaves]))
    known = _PLACED.get(key)
    if known is None:
        known = 0
        for index in range(8):
            source = sum((index >> place & 1) << k for k, place in enumerate(key[1]))
            known |= (table >> source & 1) << index
        _PLACED[key] = known
    return known
