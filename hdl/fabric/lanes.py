"""Lanes: the virtual channels of one class of a link, and who may use which.

A ring needs two sets of lanes, *before* and *after* its wrap link (see ``route``). Where several
lanes are allowed, a hash of source and destination picks one: traffic is shared out among the
lanes, while the packets of one (source, destination, class, rail) stay on one path and in order.
"""

from amaranth.hdl import Cat, Const, Mux, Value

__all__ = ["ESCAPE", "escape_groups", "lane_groups", "pick", "spread"]

#: Lanes of a class that an adaptive router keeps for dimension order; those above are adaptive.
ESCAPE = 2
#: Masks whose parities over ``src ^ dst`` are the bits of :func:`spread`.
_MASKS = (0xFFFF, 0xAAAA, 0xCCCC)


def lane_groups(lanes: int) -> tuple[range, range]:
    """Return the before lanes and the after lanes of a class with ``lanes`` lanes. A single lane
    is both: its rings of more than two nodes are not safe."""
    if lanes == 1:
        return range(1), range(1)
    return range(lanes // 2), range(lanes // 2, lanes)


def escape_groups() -> tuple[range, range]:
    """Return the before lanes and the after lanes among the escape lanes of an adaptive router."""
    return range(1), range(1, ESCAPE)


def spread(src: int, dst: int, count: int) -> int:
    """Return which of ``count`` allowed lanes the packets from ``src`` to ``dst`` take."""
    value = sum(((src ^ dst) & mask).bit_count() % 2 << bit
                for bit, mask in enumerate(_MASKS[:(count - 1).bit_length()]))
    return value - count if value >= count else value


def pick(mixed: Value, group: range) -> Value:
    """The hardware of :func:`spread`: the lane of ``group`` for ``mixed``, source ^ destination."""
    count = len(group)
    if count == 1:
        return Const(group.start)
    bits = Cat((mixed & mask).xor() for mask in _MASKS[:(count - 1).bit_length()])
    if count & count - 1:
        bits = Mux(bits >= count, bits - count, bits)
    return bits + group.start
