"""How a dimension is dealt out to cards."""

from __future__ import annotations

from itertools import pairwise

__all__ = ["shares"]


def shares(size: int, cards: int) -> list[slice]:
    """Split ``size`` elements in one contiguous share per card, equal up to one element."""
    ends = [size * card // cards for card in range(cards + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]
