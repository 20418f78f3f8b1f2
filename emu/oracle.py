"""What collectives must give, bit for bit, from numpy's own arithmetic and not from schedules.

A ring AllReduce cuts the array into one chunk per member. Chunk c starts as the share of the
ring's member c and goes once around; each member on the way adds its own share. So the order of
additions differs from chunk to chunk, and is the same whatever the timing.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from drivers.collectives.ring import ring_shape
from drivers.collectives.schedule import Region
from hdl.params import CardParams
from hdl.topology import Topology

__all__ = ["ring_sum"]


def ring_sum(topology: Topology, params: CardParams, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of one array per card, finite float32 or bfloat16, in the order of the ring."""
    order = topology.ring_order()
    shares = [np.ravel(inputs[card]) for card in order]
    count, item_size = shares[0].size, shares[0].itemsize
    granule, _ = ring_shape(params, len(order), count, item_size, hops=1)
    total = np.empty_like(shares[0])
    for first, region in enumerate(Region(0, count).split(len(order), granule)):
        chunk = slice(region.start, region.end)
        value = shares[first][chunk]
        for step in range(1, len(order)):
            value = _add(shares[(first + step) % len(order)][chunk], value)
        total[chunk] = value
    return total.reshape(np.shape(inputs[0]))


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == ml_dtypes.bfloat16:
        # A float32 has more than twice the bits of a bfloat16: rounding twice is rounding once.
        return (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype)
    return a + b
