"""An independent model of dimension-order routing with datelines, lane by lane."""

from __future__ import annotations

from hdl.topology import Tiered
from hdl.topology.tier import TierKind


def next_hop_of(grid: Tiered, *, dateline: bool = True, reset: bool = True):
    """Return a ``next_hop`` that computes on coordinates of ``grid``, not on packed ids.

    Without ``dateline`` packets stay in lane 0: the textbook deadlock of rings. Without ``reset``
    they keep their lane when they enter the next dimension.
    """
    def next_hop(node, dst, in_port, in_lane, rail, dims, **_):
        here, there = (grid.coordinates(grid.rank(n)) for n in (node, dst))
        wrap = grid.tiers[0].kind is TierKind.RING
        for dim, (x, y, size) in enumerate(zip(here, there, grid.sizes, strict=True)):
            if x == y:
                continue
            up = (y - x) % size if wrap else (y - x if y > x else size)
            down = (x - y) % size if wrap else (x - y if x > y else size)
            # Underway in this dimension a packet keeps its direction.
            if in_port // 2 == dim and in_port < 2 * len(dims):
                plus = in_port % 2 == 1
            else:
                plus = up < down or (up == down and (x + rail) % 2 == 0)
                in_lane = 0 if reset else in_lane
            crosses = x == (size - 1 if plus else 0)
            lane = 1 if dateline and size > 2 and (crosses or in_lane) else 0
            return 2 * dim + (0 if plus else 1), [lane]
        return 2 * len(dims) + rail, [0]

    return next_hop
