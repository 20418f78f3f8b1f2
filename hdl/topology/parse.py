"""Topologies from text.

Every shape is a stack of tiers, innermost first::

    ring:8   mesh:8x8   torus:4x4x4   fullmesh:8x8   ubmesh:8x8x4x4     a tier per dimension
    clos:48x2   clos:48x3                                 RADIX-port switches in that many levels
    tiers:crossbar48,fullmesh8,switch21                   anything

Latencies in cycles follow an ``@``, one per tier, the last one for all further tiers:
``torus:4x4x4@16,16,40``, ``clos:48x2@16,40``. In ``tiers:`` each tier is a kind and a number of
groups, with options in this order: ``^UPLINKS`` (attach points of a switch), ``*WIDTH`` (parallel
links), ``@LATENCY``.
"""

from __future__ import annotations

import re

from .tier import Tier, TierKind
from .tiered import Tiered

__all__ = ["parse"]

_GRIDS = {"ring": (TierKind.RING, 1), "mesh": (TierKind.LINE, 3), "torus": (TierKind.RING, 3),
          "fullmesh": (TierKind.FULL, 4), "ubmesh": (TierKind.FULL, 4)}
_KINDS = {"crossbar": TierKind.SWITCH, "switch": TierKind.SWITCH, "fullmesh": TierKind.FULL,
          "mesh": TierKind.LINE, "torus": TierKind.RING, "ring": TierKind.RING}
_FORMS = ("ring:N, mesh:AxB, torus:AxBxC (1 to 3 dimensions), fullmesh:AxB, ubmesh:AxBxCxD (1 to 4 "
          "dimensions), clos:RADIXxLEVELS (2 or 3 levels), tiers:KINDN,KINDN,…, each but tiers "
          "with @LATENCY,…")
_TIER_FORMS = (f"{', '.join(_KINDS)} with a number, e.g. crossbar48, and ^UPLINKS, *WIDTH, "
               "@LATENCY")
#: Links of 10 m, which join racks: 16 cycles as links of 2 m, and 5 ns for each further meter.
_BETWEEN_RACKS = 56
_MOST_LATENCY = 4096


def parse(spec: str) -> Tiered:
    """Return the topology that ``spec`` describes.

    Raises
    ------
    ValueError
        If the text is none of the forms above, or a machine of its sizes cannot be built; in one
        line that says what is accepted.
    """
    kind, colon, text = spec.partition(":")
    if not colon or kind not in (*_GRIDS, "clos", "tiers"):
        raise ValueError(f"unknown topology {spec!r}: accepted are {_FORMS}")
    if kind == "tiers":
        return Tiered(spec, tuple(_tier(spec, part) for part in text.split(",")))
    sizes_text, at, latency_text = text.partition("@")
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", sizes_text):
        raise ValueError(f"topology {spec!r} has sizes {sizes_text!r}: accepted are {_FORMS}")
    sizes = tuple(int(size) for size in sizes_text.split("x"))
    if 0 in sizes:
        raise ValueError(f"topology {spec!r} has a dimension of size 0: sizes are at least 1")
    tiers = _clos(spec, sizes) if kind == "clos" else _grid(spec, kind, sizes)
    if at:
        given = [_latency(spec, each) for each in latency_text.split(",")]
        if len(given) > len(tiers):
            raise ValueError(f"topology {spec!r} has {len(given)} latencies for {len(tiers)} tiers")
        given += given[-1:] * (len(tiers) - len(given))
        tiers = [Tier(tier.kind, tier.size, tier.width, tier.uplinks, latency)
                 for tier, latency in zip(tiers, given, strict=True)]
    return Tiered(spec, tuple(tiers))


def _grid(spec: str, name: str, sizes: tuple[int, ...]) -> list[Tier]:
    kind, most = _GRIDS[name]
    if len(sizes) > most:
        raise ValueError(f"topology {spec!r} has {len(sizes)} dimensions: accepted are {_FORMS}")
    return [Tier(kind, size, latency=_BETWEEN_RACKS if name == "ubmesh" and d >= 2 else None)
            for d, size in enumerate(sizes)]


def _clos(spec: str, sizes: tuple[int, ...]) -> list[Tier]:
    if len(sizes) != 2 or sizes[1] not in (2, 3) or sizes[0] < 4 or sizes[0] % 2:
        raise ValueError(f"topology {spec!r} is no folded Clos: accepted are clos:RADIXxLEVELS "
                         "with an even number of ports, at least 4, and 2 or 3 levels")
    radix, levels = sizes
    half = radix // 2
    return [Tier(TierKind.SWITCH, half, uplinks=half)] * (levels - 1) + [
        Tier(TierKind.SWITCH, radix)]


def _tier(spec: str, text: str) -> Tier:
    match = re.fullmatch(r"([a-z]+)([0-9]+)(?:\^([0-9]+))?(?:\*([0-9]+))?(?:@([0-9]+))?", text)
    if match is None or match[1] not in _KINDS:
        raise ValueError(f"topology {spec!r} has a tier {text!r}: accepted are {_TIER_FORMS}")
    size, uplinks, width = (int(match[group] or 1) for group in (2, 3, 4))
    if 0 in (size, uplinks, width):
        raise ValueError(f"topology {spec!r} has a tier {text!r} with a 0: numbers are at least 1")
    return Tier(_KINDS[match[1]], size, width, uplinks,
                _latency(spec, match[5]) if match[5] else None)


def _latency(spec: str, text: str) -> int:
    if not re.fullmatch("[0-9]+", text) or not 1 <= int(text) <= _MOST_LATENCY:
        raise ValueError(f"topology {spec!r} has a latency {text!r}: accepted are 1 to "
                         f"{_MOST_LATENCY} cycles")
    return int(text)
