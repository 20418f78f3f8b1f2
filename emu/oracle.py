"""What collectives must give, bit for bit, from numpy's own arithmetic and not from schedules.

Floating-point sums depend on their order, and each algorithm has one, the same whatever the timing.
Minima and maxima are formed in the same order, and do not depend on it.
Of a vector that is cut into one chunk per member, or of a block that a member gets:

*Ring.* Chunk c starts as the share of the ring's c-th member and goes once around; each member on
the way adds its own share. A member's block starts behind the member and ends with it, and so does
a vector on its way to a root. Bidirectional: the first half so, the second half around the other
way.

*Direct.* The owner's share, then that of the member before it, and so on.

*Halving.* The owner and those behind it, numbered 0 … n − 1, hold their shares. For each power of
two d below n, the largest first: what number s ≥ d holds, up to 2d − 1, is added to what s − d
holds.

*Doubling.* Members above the largest power of two are added to partners from member 0 on. Then, bit
by bit from the lowest: each member adds what its partner, whose number differs in that bit, holds.

*Tree.* From the root along the ring: for each power of two from 1 on, member v + 2^k is added to
member v, for v a multiple of 2^(k+1).

*Dimensions.* Each slice is cut along its first stage, one chunk per member of the stage, and summed
over those: chunk c starts with the member after c and goes around to c itself. What results, one
partial sum per group of the other stages, is cut and summed along the second stage, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from drivers.collectives import Collective, Program, Region, Setting, Task
from drivers.collectives.ring import ring_shape
from hdl.params import CardParams
from hdl.topology import Topology

if TYPE_CHECKING:
    from drivers.handle import Handle

__all__ = ["allreduce_sum", "dimension_sum", "moved", "outputs_of", "reduced", "ring_sum",
           "sum_in_order"]


def outputs_of(topology: Topology, params: CardParams, cards: Sequence[int], task: Task,
               inputs: Sequence[np.ndarray], handle: Handle,
               op: str = "sum") -> list[np.ndarray]:
    """Flat outputs of all members of ``task``, on their ``cards``, after what ``handle`` has run,
    from their inputs."""
    shares = [np.ravel(values) for values in inputs]
    if not task.kind.reduces:
        return moved(task, shares)
    if isinstance(handle.schedule, Program):
        member = {card: number for number, card in enumerate(cards)}
        total = dimension_sum(handle.schedule, [shares[member[card]] for card in handle.order], op)
        return [total] * task.members
    setting = Setting.of(topology, params, cards, shares[0].itemsize)
    return sum_in_order(handle.algorithm, task, setting, shares, op)


def moved(task: Task, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Flat outputs of all members of a collective that adds nothing, by definition."""
    def block(member: int, peer: int) -> np.ndarray:
        region, entry = task.block(member, peer), task.input(member)
        return inputs[member][region.start - entry.start:region.end - entry.start]

    outputs = []
    for member in range(task.members):
        if not task.output(member).count:
            outputs.append(inputs[member][:0])
        elif task.kind in (Collective.BROADCAST, Collective.SCATTER):
            outputs.append(block(task.root, member))
        else:
            outputs.append(np.concatenate([block(peer, member) for peer in range(task.members)]))
    return outputs


def allreduce_sum(topology: Topology, params: CardParams, inputs: Sequence[np.ndarray],
                  handle: Handle) -> np.ndarray:
    """The sum of one array per card of the handle's group, in the order of its algorithm."""
    cards = sorted(handle.order)
    shares = [np.ravel(inputs[card]) for card in cards]
    task = Task(Collective.ALLREDUCE, len(shares), (shares[0].size,))
    total = outputs_of(topology, params, cards, task, shares, handle)[0]
    return total.reshape(np.shape(inputs[0]))


def ring_sum(topology: Topology, params: CardParams, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of one array per card of a whole machine in the order of the ring."""
    shares = [np.ravel(values) for values in inputs]
    setting = Setting.of(topology, params, range(len(shares)), shares[0].itemsize)
    task = Task(Collective.ALLREDUCE, len(shares), (shares[0].size,))
    return sum_in_order("ring", task, setting, shares)[0].reshape(np.shape(inputs[0]))


def sum_in_order(algorithm: str, task: Task, setting: Setting, inputs: Sequence[np.ndarray],
                 op: str = "sum") -> list[np.ndarray]:
    """Outputs of all members of a collective that reduces, from their flat inputs."""
    order = _ORDERS[algorithm]
    if task.kind is Collective.REDUCE_SCATTER:
        starts = np.cumsum([0, *task.counts])
        return [order(op, task, setting, [values[starts[member]:starts[member + 1]]
                                          for values in inputs], member)
                for member in range(task.members)]
    if task.kind is Collective.REDUCE:
        total = order(op, task, setting, list(inputs), task.root)
        return [total if member == task.root else total[:0] for member in range(task.members)]
    if algorithm in ("doubling", "tree"):
        total = order(op, task, setting, list(inputs), 0)
    else:
        total = np.empty_like(inputs[0])
        for owner, chunk in enumerate(_chunks(algorithm, task, setting)):
            total[chunk] = order(op, task, setting, [values[chunk] for values in inputs], owner)
    return [total] * task.members


def _chunks(algorithm: str, task: Task, setting: Setting) -> list[np.ndarray]:
    """Elements of the chunk that each member owns, of an allreduce."""
    n, whole = task.members, Region(0, task.total)
    chunks = [np.zeros(0, int)] * n
    if algorithm in ("ring", "bidirectional"):
        halves = 1 + (algorithm == "bidirectional")
        granule, _ = ring_shape(setting.params, n, task.total // halves, setting.item_size, 1)
        for half, part in enumerate(whole.split(halves, granule)):
            ring = setting.ring[::-1] if half else setting.ring
            for start, region in enumerate(part.split(n, granule)):
                # It ends where the ring's member before the one is at which it starts.
                owner = ring[(start - 1) % n]
                chunks[owner] = np.append(chunks[owner], np.arange(region.start, region.end))
        return chunks
    granule = setting.granule if task.total >= n * setting.granule else 1
    return [np.arange(region.start, region.end) for region in whole.split(n, granule)]


def _around(op: str, task: Task, ring: Sequence[int], shares: Sequence[np.ndarray],
            owner: int) -> np.ndarray:
    first = list(ring).index(owner) + 1
    value = shares[ring[first % len(ring)]]
    for step in range(1, len(ring)):
        value = reduced(op, shares[ring[(first + step) % len(ring)]], value)
    return value


def _ring(op: str, task: Task, setting: Setting, shares: list[np.ndarray],
          owner: int) -> np.ndarray:
    return _around(op, task, setting.ring, shares, owner)


def _bidirectional(op: str, task: Task, setting: Setting, shares: list[np.ndarray],
                   owner: int) -> np.ndarray:
    count = len(shares[0])
    if task.kind is Collective.ALLREDUCE:
        # The chunk is one of each half, cut before.
        whole = Region(0, task.total)
        granule, _ = ring_shape(setting.params, task.members, task.total // 2, setting.item_size, 1)
        first, _ = whole.split(2, granule)
        ring = setting.ring
        middle = first.split(task.members, granule)[(ring.index(owner) + 1) % len(ring)].count
    else:
        largest = task.total if task.kind.whole else max(task.counts) * task.members
        members = 1 if task.kind is Collective.REDUCE else task.members
        granule, _ = ring_shape(setting.params, members, largest // 2, setting.item_size, 1)
        middle = Region(0, count).split(2, granule)[0].count
    return np.append(
        _around(op, task, setting.ring, [share[:middle] for share in shares], owner),
        _around(op, task, setting.ring[::-1], [share[middle:] for share in shares], owner))


def _direct(op: str, task: Task, setting: Setting, shares: list[np.ndarray],
            owner: int) -> np.ndarray:
    value = shares[owner]
    for step in range(1, len(shares)):
        value = reduced(op, value, shares[owner - step])
    return value


def _halving(op: str, task: Task, setting: Setting, shares: list[np.ndarray],
             owner: int) -> np.ndarray:
    n = len(shares)
    held = [shares[(owner - step) % n] for step in range(n)]
    distance = 1 << (n - 1).bit_length() >> 1
    while distance:
        for step in range(distance, min(2 * distance, n)):
            held[step - distance] = reduced(op, held[step - distance], held[step])
        distance >>= 1
    return held[0]


def _doubling(op: str, task: Task, setting: Setting, shares: list[np.ndarray],
              owner: int) -> np.ndarray:
    core = 1 << len(shares).bit_length() - 1
    held = shares[:core]
    for extra in range(core, len(shares)):
        held[extra - core] = reduced(op, held[extra - core], shares[extra])
    bit = 1
    while bit < core:
        held = [reduced(op, held[member], held[member ^ bit]) for member in range(core)]
        bit *= 2
    return held[0]


def _tree(op: str, task: Task, setting: Setting, shares: list[np.ndarray],
          owner: int) -> np.ndarray:
    n, first = len(shares), setting.ring.index(task.root)
    held = [shares[setting.ring[(first + place) % n]] for place in range(n)]
    bit = 1
    while bit < n:
        for place in range(0, n - bit, 2 * bit):
            held[place] = reduced(op, held[place], held[place + bit])
        bit *= 2
    return held[0]


#: The sum of members' shares of what ``owner`` gets, in the algorithm's order.
_ORDERS: dict[str, Callable[[str, Task, Setting, list[np.ndarray], int], np.ndarray]] = {
    "ring": _ring, "bidirectional": _bidirectional, "direct": _direct, "halving": _halving,
    "doubling": _doubling, "tree": _tree}


def dimension_sum(shape: Program, inputs: Sequence[np.ndarray], op: str = "sum") -> np.ndarray:
    """The sum (or what ``op`` says) of one array per member, stage by stage. Of ``shape`` only what
    cuts the array is read: stages, slices and granule."""
    count = np.size(inputs[0])
    # One axis per stage, the first stage last but one; then the elements.
    shares = np.reshape(np.stack([np.ravel(values) for values in inputs]),
                        (*shape.factors[::-1], count))
    total = np.empty(count, shares.dtype)
    for part in shape.slices:
        axes = [len(shape.factors) - 1 - stage for stage in part.stages]
        region = part.region
        ordered = np.transpose(shares, (*axes, len(axes)))[..., region.start:region.end]
        total[region.start:region.end] = _stages(op, ordered, shape.granule, part.direction)
    return total.reshape(np.shape(inputs[0]))


def _stages(op: str, shares: np.ndarray, granule: int, direction: int) -> np.ndarray:
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
                value = reduced(op, chunk[(own + direction * step) % members], value)
            total[region.start:region.end] = _stages(op, value, granule, direction)
    return total


#: The codes of the NaNs that reductions give, by type.
_NANS = {"float32": 0x7FC00000, "bfloat16": 0x7FC0, "float16": 0x7E00, "float8_e4m3fn": 0x7F,
         "float8_e5m2": 0x7F}


def reduced(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elements of any type reduced as cards do: floats rounded once, those of 8 bits saturating,
    integers modulo the type."""
    if a.dtype.name not in _NANS:
        return {"sum": np.add, "min": np.minimum, "max": np.maximum}[op](a, b)
    with np.errstate(over="ignore", invalid="ignore"):
        # A float32 has more than twice the bits of all narrower types, and all their values:
        # rounding twice is rounding once.
        x, y = a.astype(np.float32), b.astype(np.float32)
        if op == "sum":
            exact = x + y
            if a.dtype.itemsize == 1:  # saturates, but for infinite operands
                most = np.float32(ml_dtypes.finfo(a.dtype).max)
                exact = np.where(np.isinf(exact), exact, np.clip(exact, -most, most))
            found = exact.astype(a.dtype)
        else:
            first = x < y if op == "min" else x > y
            negative = np.signbit(x) == (op == "min")  # −0 is below +0
            found = np.where(first | ((x == y) & negative), a, b)
            exact = np.where(np.isnan(x), x, y)
    found.view(f"u{a.dtype.itemsize}")[np.isnan(exact)] = _NANS[a.dtype.name]
    return found
