"""Sources of a lane-parallel model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from hdl.verilog import Generated

from ..shards import LANE_COUNTS
from .check import check_outputs
from .emit import Emitted, emit
from .lower import lower
from .netlist import read_tile
from .pins import TEMPLATES, activity_ports, render_model

__all__ = ["LANES", "SOURCES", "LaneTile", "model_sources"]

_FOLDER = Path(__file__).parent
#: Copies that an edge advances if nothing else is asked for.
LANES = 256
#: Everything that a model is made by, as this process found it.
SOURCES = tuple(path.read_bytes() for path in (
    *sorted(_FOLDER.glob("*.py")), *TEMPLATES, _FOLDER / "lanes.hpp"))
#: Bytes of C++ per file, about: files compile side by side, and in less than their sum.
_FILE_BYTES = 600_000


@dataclass(frozen=True)
class LaneTile:
    """A tile to be run in lanes.

    Attributes
    ----------
    generated : Generated
        Its Verilog and manifest, with which the model shares ports and name.
    factory, params :
        ``factory(params)`` is the tile.
    """

    generated: Generated
    factory: Callable[[Any], wiring.Component]
    params: Any
    #: Copies that an edge advances.
    lanes: int = LANES

    def __post_init__(self) -> None:
        if self.lanes not in LANE_COUNTS:
            raise ValueError(f"lanes must be one of {', '.join(map(str, LANE_COUNTS))}, not "
                             f"{self.lanes!r}")


def model_sources(tile: LaneTile, model: str) -> dict[str, str]:
    """Return the C++ files of ``tile``, which is called ``model`` in an engine.

    Raises
    ------
    BuildError
        If the tile has something that lane-parallel models do not have.
    """
    manifest = tile.generated.manifest
    with _deep():
        lowered = lower(read_tile(tile.factory(tile.params), tile.generated.name))
        check_outputs(lowered)
        emitted = emit(lowered, {"wake": "idle_output"} | dict.fromkeys(
            activity_ports(manifest), "activity_output"))
    header, source = render_model(manifest, model, tile.lanes, lowered, emitted)
    files = {"tile.hpp": header, "model.cpp": source}
    for number, part in enumerate(_parts(emitted)):
        files[f"part{number}.cpp"] = (f'#include "tile.hpp"\n\nnamespace lanes_{model} {{\n\n'
                                      f"{part}\n}}  // namespace lanes_{model}\n")
    return files


def _parts(emitted: Emitted) -> Iterator[str]:
    part, size = [], 0
    for function in emitted.functions:
        part.append(function)
        size += len(function)
        if size >= _FILE_BYTES:
            yield "\n".join(part)
            part, size = [], 0
    if part:
        yield "\n".join(part)


@contextmanager
def _deep() -> Iterator[None]:
    """Logic is deeper than Python expects functions to call each other."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 100_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
