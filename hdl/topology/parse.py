"""Topologies from text."""

from __future__ import annotations

import re

from .base import Topology
from .grid import Grid

__all__ = ["parse"]

_FORMS = "ring:N, mesh:AxB, torus:AxBxC (1 to 3 dimensions)"


def parse(spec: str) -> Topology:
    """Return the topology that ``spec`` describes.

    ``ring:8``, ``mesh:8x8``, ``torus:4x4x4``; meshes and tori have 1 to 3 dimensions.

    Raises
    ------
    ValueError
        If the text is none of these, a dimension is 0, or node ids do not fit.
    """
    kind, colon, sizes_text = spec.partition(":")
    if kind not in ("ring", "mesh", "torus") or not colon:
        raise ValueError(f"unknown topology {spec!r}: accepted are {_FORMS}")
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", sizes_text):
        raise ValueError(f"topology {spec!r} has sizes {sizes_text!r}: accepted are {_FORMS}")
    sizes = tuple(int(size) for size in sizes_text.split("x"))
    if 0 in sizes:
        raise ValueError(f"topology {spec!r} has a dimension of size 0: sizes are at least 1")
    if len(sizes) > (1 if kind == "ring" else 3):
        raise ValueError(f"topology {spec!r} has {len(sizes)} dimensions: accepted are {_FORMS}")
    return Grid(spec, sizes, kind != "mesh")
