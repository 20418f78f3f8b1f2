"""``supernode clean``: remove what builds have left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from .errors import Failure
from .options import common
from .output import Screen

__all__ = ["clean"]

#: What the cache calls its entries, their locks and builds that were interrupted.
ENTRY = re.compile(r"[a-z0-9_-]+-[0-9a-f]{24}(\.lock|\.partial)?")


@click.command()
@common
def clean(json_output: Any, seed: int, preset: str) -> None:
    """Remove the build cache; the next run builds again."""
    from emu.cache import Cache

    screen = Screen(json_output)
    cache = Cache()
    entries = _entries(cache.root)
    cache.clear()
    screen.line(f"removed {entries} entries and {cache.root}" if entries
                else f"{cache.root} holds nothing")
    screen.result({"folder": str(cache.root), "removed": entries})


def _entries(root: Path) -> int:
    """Count the entries of the cache; a folder that holds anything else is no cache."""
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    foreign = [name for name in names if not ENTRY.fullmatch(name)]
    if foreign:
        raise Failure(f"{root} holds {foreign[0]!r}, which no build made: remove that, or set "
                      "SUPERNODE_CACHE to a folder of its own")
    return len(names)
