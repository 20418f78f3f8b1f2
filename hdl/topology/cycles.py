"""Hamiltonian cycles of grids, built one dimension at a time.

A *walk* visits every place of a grid once, each next to the one before; it is *closed* when the
last place is next to the first. The product of two walks is a walk of the product of their grids,
closed whenever this construction can close it:

* Two closed walks: go round the inner one for each place of the outer one, a full turn but for one
  place, up or down as chosen, so that each turn begins where the last one ended, one place aside.
  The cycle closes if the chosen ±1 add up to 0 modulo the inner length. That takes an even outer
  length, or two odd ones with the longer outside. On 2×2×2 the result is a Gray code.
* Otherwise, if a length is even: out along the first row, back through the others column by
  column (boustrophedon).
* Otherwise (all odd and not a torus; without any wrap no cycle exists): a snake, which is open.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Walk", "nest", "product"]


@dataclass(frozen=True)
class Walk:
    """Places (coordinate tuples) in the order of the walk."""

    places: tuple[tuple[int, ...], ...]
    closed: bool


def product(low: Walk, high: Walk) -> Walk:
    """Walk of the product grid; coordinates of ``low`` come first."""
    pairs, closed = _indices(len(low.places), len(high.places), low.closed and high.closed)
    return Walk(tuple(low.places[i] + high.places[j] for i, j in pairs), closed=closed)


def nest(low: Walk, high: Walk) -> Walk:
    """Walk of the product grid that visits all of ``low`` in each place of ``high``, there and back
    by turns: each place of ``high`` is entered where the last one was left."""
    a, b = len(low.places), len(high.places)
    pairs = [(i if j % 2 == 0 else a - 1 - i, j) for j in range(b) for i in range(a)]
    return Walk(tuple(low.places[i] + high.places[j] for i, j in pairs),
                closed=high.closed and (b % 2 == 0 or a == 1))


def _indices(a: int, b: int, closed: bool) -> tuple[list[tuple[int, int]], bool]:
    if a == 1 or b == 1:
        return [(i, j) for i in range(a) for j in range(b)], closed
    if closed:
        if b % 2 == 0 or (a % 2 == 1 and b >= a):
            return _turns(a, b), True
        return [(i, j) for j, i in _turns(b, a)], True
    if a % 2 == 0:
        return _boustrophedon(a, b), True
    if b % 2 == 0:
        return [(i, j) for j, i in _boustrophedon(b, a)], True
    return [(i if j % 2 == 0 else a - 1 - i, j) for j in range(b) for i in range(a)], False


def _turns(inner: int, outer: int) -> list[tuple[int, int]]:
    ups = outer // 2 if outer % 2 == 0 else (outer + inner) // 2
    pairs, place = [], 0
    for turn in range(outer):
        # A full turn downwards but for one place ends one place up, and the other way round.
        step = -1 if turn < ups else 1
        pairs += [((place + step * k) % inner, turn) for k in range(inner)]
        place = pairs[-1][0]
    return pairs


def _boustrophedon(even: int, other: int) -> list[tuple[int, int]]:
    out = [(i, 0) for i in range(even)]
    back = [(i, j if (even - 1 - i) % 2 == 0 else other - j)
            for i in reversed(range(even)) for j in range(1, other)]
    return out + back
