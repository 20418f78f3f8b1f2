"""Route tables of switches: innermost tiers first on the way up, then down.

A packet climbs to the stage where its destination's group is reached. On each stage it first
corrects the coordinates of the stage's direct tiers, in their order, then goes up; on the way down
they are right already. Each level of a table (see ``hdl/fabric/table``) is one of these cases, the
most special one first::

    all coordinates above agree                   down to the destination's group
    those of the stage's direct tiers agree       up, spread over the uplinks
    those of all direct tiers but the last agree  to the destination's place in the last
    …
    (always)                                      to the destination's place in the first

Between parallel links the destination chooses. Its coordinate in the tier below lies next to the
field that names the group, so an index that reaches some bits further down shares traffic out;
uplinks are chosen by the coordinate in the switch's own tier (*d-mod-k* routing: in a Clos, each
card of a leaf then has an uplink and a way down of its own).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .base import TableEntry
from .stage import Stage

__all__ = ["Level", "levels_of", "table_bits", "table_of"]

#: Bits beyond those that number parallel links: a coordinate that is no power of two then still
#: shares them out evenly, or nearly so.
_SPARE_BITS = 2


@dataclass(frozen=True)
class Level:
    """One case of a stage's routing."""

    #: Tiers whose coordinates must agree with the switch's.
    agree: tuple[int, ...]
    #: Tier whose coordinate is looked up.
    tier: int
    #: Bits below that field that share out parallel links.
    spread: int
    #: Tier whose links the packet takes.
    by: int


def levels_of(stage: Stage) -> list[Level]:
    """Levels of the table of every switch of a stage, in the order of their numbers."""
    tiers, own, up = stage.tiers, stage.own, stage.up
    levels = [Level(tuple(range(own + 1, len(tiers))), own, _spread(stage, own, tiers[own].width),
                    own)]
    direct = [t for t in stage.inner if tiers[t].size > 1]
    if up < len(tiers):
        ways = stage.uplinks * tiers[up].width
        enough = tiers[own].size >= ways
        levels.append(Level(tuple(direct), own, 0 if enough else _spread(stage, own, ways), up))
    for place in reversed(range(len(direct))):
        t = direct[place]
        levels.append(Level(tuple(direct[:place]), t,
                            _spread(stage, t, stage.uplinks * tiers[t].width), t))
    return levels


def _spread(stage: Stage, tier: int, ways: int) -> int:
    below = sum(each.bits for each in stage.tiers[:tier])
    return min(below, (ways - 1).bit_length() + _SPARE_BITS) if ways > 1 else 0


def table_bits(stage: Stage) -> int:
    """Bits of the destination that index the table of a stage."""
    return max(level.spread + stage.tiers[level.tier].bits for level in levels_of(stage))


def table_of(stage: Stage, q: int, bits: int) -> Iterator[TableEntry]:
    """Entries of the table of switch ``q``, which is indexed by ``bits`` bits."""
    tiers = stage.tiers
    place = stage.coordinates(q)
    for number, level in enumerate(levels_of(stage)):
        tier, by = tiers[level.tier], tiers[level.by]
        base, ways = stage.bases[level.by], by.width
        if level.by != stage.own:
            ways *= stage.uplinks
        for index in range(1 << bits):
            value = index >> level.spread & (1 << tier.bits) - 1
            if value >= tier.size or (level.by == level.tier and value == place[level.tier]):
                continue  # no destination has it
            if level.by == stage.up:
                # The whole field, and what was added below it.
                port = (index & (1 << level.spread + tier.bits) - 1) % ways
            else:
                here = place[level.tier]
                step = value if here is None else tier.port_to(here, value)
                port = step * ways + (index & (1 << level.spread) - 1) % ways
            yield TableEntry(number, index, base + port)
