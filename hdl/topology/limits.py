"""What a machine must fit into: node ids, routers, switches and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hdl.fabric.table import LEVELS
from hdl.layouts import NODE_BITS

from .stage import Stage
from .tables import levels_of, table_bits
from .tier import Tier

__all__ = ["problems"]

_MOST_DIMS, _MOST_ROUTER_LINKS, _MOST_SWITCH_LINKS, _MOST_TABLE_BITS = 4, 63, 64, 12


def problems(tiers: Sequence[Tier], stages: Sequence[Stage]) -> Iterator[str]:
    """What keeps a stack of tiers from being built, the first things first."""
    for tier in tiers:
        least = 1 if tier.direct else 2
        if tier.size < least:
            yield f"a tier of {tier.kind.value} joins at least {least}, not {tier.size}"
    bits = sum(tier.bits for tier in tiers)
    if bits > NODE_BITS:
        yield f"node ids need {bits} bits, and have {NODE_BITS}"
    cards = stages[0]
    dims = len(cards.inner) + (len(stages) > 1)
    if dims > _MOST_DIMS:
        yield f"cards need routers of {dims} dimensions: at most {_MOST_DIMS}"
    for tier in tiers[:cards.up + 1]:
        if tier.width > 1:
            yield "links of cards are single: a router has one port per neighbour"
    if cards.ports > _MOST_ROUTER_LINKS:
        yield f"cards need routers of {cards.ports} link ports: at most {_MOST_ROUTER_LINKS}"
    for above, tier in zip([*tiers[1:], None], tiers, strict=True):
        if tier.uplinks > 1 and (tier.direct or above is None):
            yield (f"{tier.kind.value}{tier.size}^{tier.uplinks} has uplinks to nothing: they "
                   "belong to switches below another tier")
    for stage in stages[1:]:
        name = f"switches of tier {stage.own + 1}"
        if stage.ports > _MOST_SWITCH_LINKS:
            yield f"{name} have {stage.ports} ports: at most {_MOST_SWITCH_LINKS}"
        if len(levels_of(stage)) > LEVELS:
            yield f"{name} need {len(levels_of(stage))} levels of their tables: at most {LEVELS}"
        if table_bits(stage) > _MOST_TABLE_BITS:
            yield f"{name} need tables of {table_bits(stage)} bits: at most {_MOST_TABLE_BITS}"
    # Cards' ids count upwards field by field, switches' downwards from the top.
    last, position = 0, 0
    for tier in tiers:
        last, position = last + (tier.size - 1 << position), position + tier.bits
    switches = sum(stage.count for stage in stages[1:])
    if last + switches >= 1 << NODE_BITS:
        yield (f"ids of {cards.count:,} cards and {switches:,} switches do not fit into "
               f"{NODE_BITS} bits")
