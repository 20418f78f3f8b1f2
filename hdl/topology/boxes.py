"""Sets of destinations as boxes: products of sets of coordinates.

Everything that a route table asks of a node id is asked of its bits, field by field. So the ids
with ``id & mask == value`` are a box, and so is what several such questions have in common; what is
left of a box without another is a few disjoint boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import and_, ne, or_

__all__ = ["Box", "Field", "count", "intersect", "matching", "merge", "subtract"]

#: Values per field, as the bits of an integer. No field is empty.
Box = tuple[int, ...]
#: (position in a node id, number of values) of a field.
Field = tuple[int, int]


def matching(fields: Sequence[Field], mask: int, value: int) -> Box | None:
    """The ids with ``id & mask == value``, ``None`` if there are none."""
    box, covered = [], 0
    for shift, size in fields:
        ones = (1 << (size - 1).bit_length()) - 1
        covered |= ones << shift
        asked, answer = mask >> shift & ones, value >> shift & ones
        values = sum(1 << x for x in range(size) if x & asked == answer) if asked else (
            (1 << size) - 1 if not answer else 0)
        if not values:
            return None
        box.append(values)
    return tuple(box) if value & ~(mask & covered) == 0 else None


def intersect(a: Box, b: Box) -> Box | None:
    """What two boxes have in common."""
    box = tuple(map(and_, a, b))
    return box if all(box) else None


def subtract(a: Box, b: Box) -> list[Box]:
    """Disjoint boxes that together are ``a`` without ``b``."""
    if intersect(a, b) is None:
        return [a]
    left, rest = [], a
    for i, values in enumerate(b):
        if outside := rest[i] & ~values:
            left.append((*rest[:i], outside, *rest[i + 1:]))
        rest = (*rest[:i], rest[i] & values, *rest[i + 1:])
    return left


def count(box: Box) -> int:
    """Number of ids in a box."""
    return prod(map(int.bit_count, box))


def merge(boxes: Iterable[Box]) -> list[Box]:
    """Fewer boxes with the same ids in them: two that differ in one field become one."""
    merged: list[Box] = []
    for box in boxes:
        again = True
        while again:
            again = False
            for place, other in enumerate(merged):
                if sum(map(ne, box, other)) <= 1:
                    box = tuple(map(or_, box, other))
                    del merged[place]
                    again = True
                    break
        merged.append(box)
    return merged
