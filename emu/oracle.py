"""What collectives must give, bit for bit, from numpy's own arithmetic and not from schedules.

Floating-point sums depend on their order, and each algorithm has one, the same whatever the timing.

*Ring.* The array is cut into one chunk per member. Chunk c starts as the share of the ring's member
c and goes once around; each member on the way adds its own share.

*Dimensions.* Each slice is cut along its first stage, one chunk per member of the stage, and summed
over those: chunk c starts with the member after c and goes around to c itself. What results, one
partial sum per group of the other stages, is cut and summed along the second stage, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from drivers.collectives import Program
from drivers.collectives.ring import ring_shape
from drivers.collectives.schedule import Region
from hdl.params import CardParams
from hdl.topology import Topology

if TYPE_CHECKING:
    from drivers.handle import Handle

__all__ = ["allreduce_sum", "dimension_sum", "ring_sum"]


def allreduce_sum(topology: Topology, params: CardParams, inputs: Sequence[np.ndarray],
                  handle: Handle) -> np.ndarray:
    """The sum of one array per card in the order of the algorithm that ``handle`` has run."""
    if isinstance(handle.schedule, Program):
        return dimension_sum(handle.schedule, [inputs[card] for card in handle.order])
    return ring_sum(topology, params, inputs)


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


def dimension_sum(shape: Program, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of one array per member, finite float32 or bfloat16, stage by stage. Of ``shape``
    only what cuts the array is read: stages, slices and granule."""
    count = np.size(inputs[0])
    # One axis per stage, the first stage last but one; then the elements.
    shares = np.reshape(np.stack([np.ravel(values) for values in inputs]),
                        (*shape.factors[::-1], count))
    total = np.empty(count, shares.dtype)
    for part in shape.slices:
        axes = [len(shape.factors) - 1 - stage for stage in part.stages]
        region = part.region
        ordered = np.transpose(shares, (*axes, len(axes)))[..., region.start:region.end]
        total[region.start:region.end] = _stages(ordered, shape.granule, part.direction)
    return total.reshape(np.shape(inputs[0]))


def _stages(shares: np.ndarray, granule: int, direction: int) -> np.ndarray:
    """Sum over all axes but the last, the first one first."""
    if shares.ndim == 1:
        return shares
    members = len(shares)
    total = np.empty(shares.shape[-1], shares.dtype)
    for own, region in enumerate(Region(0, len(total)).split(members, granule)):
        if region.count:
            chunk = shares[..., region.start:region.end]
            value = chunk[(own + direction) % members]
            for step in range(2, members + 1):
                value = _add(chunk[(own + direction * step) % members], value)
            total[region.start:region.end] = _stages(value, granule, direction)
    return total


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == ml_dtypes.bfloat16:
        # A float32 has more than twice the bits of a bfloat16: rounding twice is rounding once.
        return (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype)
    return a + b
