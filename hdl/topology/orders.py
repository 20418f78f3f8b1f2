"""Cyclic orders of cards that keep neighbours together.

Cards joined directly are visited as ``cycles`` says: each step is a link wherever that is possible.
Groups above a switch are visited one after the other, each left at the place where the next one is
entered.
"""

from __future__ import annotations

from collections.abc import Sequence

from .cycles import Walk, nest, product
from .tier import Tier, TierKind

__all__ = ["ring_walk"]


def ring_walk(tiers: Sequence[Tier], direct: int,
              axes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Coordinates of a box of cards, one axis per tier, in a cyclic order; the first ``direct``
    tiers join cards."""
    walk = Walk(((),), closed=True)
    for t, (tier, axis) in enumerate(zip(tiers, axes, strict=True)):
        # An axis is closed if all its members are neighbours, if it is a whole ring, or if it is so
        # short that there and back is one.
        closed = (tier.kind in (TierKind.FULL, TierKind.SWITCH) or len(axis) <= 2
                  or (tier.kind is TierKind.RING and len(axis) == tier.size))
        along = Walk(tuple((x,) for x in axis), closed=closed)
        walk = product(walk, along) if t < direct else nest(walk, along)
    return walk.places
