"""The file that describes a sweep: fixed parameters, a grid of lists, points, seeds.

Its runs are the cartesian product of the grid's lists, in the order in which they are written, the
last one varying fastest, then the points; each of them with every seed. Fixed parameters hold for
all runs; a point's own value stands before a fixed one. Parameters are not looked at: whoever runs
them knows what is accepted.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Document", "read_document"]

_OWN = ("workload", "seeds", "grid", "point")


@dataclass(frozen=True)
class Document:
    """What a file asks for."""

    workload: str
    #: Parameters of each run, as they are written.
    runs: tuple[Mapping[str, Any], ...]


def read_document(path: Path) -> Document:
    """Read a file.

    Raises
    ------
    ValueError
        If it is no TOML, or not a sweep; the message names the key and what is accepted.
    OSError
        If it cannot be read.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not TOML: {error}") from error
    for key in document:
        if key != "sweep":
            raise ValueError(f"unknown table {key!r}: accepted is [sweep] with what belongs to it")
    sweep = document.get("sweep")
    if not isinstance(sweep, dict):
        raise ValueError("no table [sweep]: it names the workload and its parameters")
    workload = sweep.get("workload")
    if not isinstance(workload, str):
        raise ValueError(f"sweep.workload must name a workload, not {workload!r}")
    fixed = {key: value for key, value in sweep.items() if key not in _OWN}
    varied = [*_grid(sweep.get("grid"), fixed), *_points(sweep.get("point"))]
    seeds = _seeds(sweep, varied)
    runs = tuple({**fixed, **row, **seed} for row in varied or [{}] for seed in seeds)
    return Document(workload, runs)


def _grid(grid: Any, fixed: Mapping[str, Any]) -> list[dict[str, Any]]:
    if grid is None:
        return []
    if not isinstance(grid, dict) or not grid:
        raise ValueError(f"sweep.grid must be a table of lists, not {grid!r}")
    for key, values in grid.items():
        if key in fixed:
            raise ValueError(f"{key!r} is in [sweep] and in [sweep.grid]: accepted is one of them")
        if not isinstance(values, list) or not values:
            raise ValueError(f"sweep.grid.{key} must be a list of at least one value, not "
                             f"{values!r}")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _points(points: Any) -> list[dict[str, Any]]:
    if points is None:
        return []
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise ValueError("sweep.point must be tables [[sweep.point]] of parameters")
    return points


def _seeds(sweep: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    if "seeds" not in sweep:
        return [{}]
    seeds = sweep["seeds"]
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"sweep.seeds must be a list of at least one number, not {seeds!r}")
    if "seed" in sweep or any("seed" in row for row in rows):
        raise ValueError("'seed' and 'seeds' are both given: accepted is one of them")
    return [{"seed": seed} for seed in seeds]
