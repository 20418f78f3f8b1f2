"""``--waves``: which nodes' signals a run writes, in which cycles, and where to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hdl.topology import Topology

from .errors import usage
from .output import Screen

if TYPE_CHECKING:
    from emu.fabric import Fabric
    from emu.waves import Waves

__all__ = ["tell_waves", "waves", "waves_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


def waves_options(function: Function) -> Function:
    """Add ``--waves`` and ``--waves-dir``."""
    for option in (
        click.option("--waves-dir", default="waves", show_default=True, metavar="DIR",
                     help="Folder of the files of --waves."),
        click.option("--waves", metavar="CARD[,CARD…]@FROM-TO",
                     help="Write all signals of these cards in these cycles, an FST file per tile, "
                     "for GTKWave or Surfer; e.g. 0,3@1000-1200."),
    ):
        function = option(function)
    return function


def waves(text: str | None, folder: str, topology: Topology) -> Waves | None:
    """What ``--waves`` and ``--waves-dir`` say.

    Raises
    ------
    click.BadParameter
        If there is no such card or cycle, or the folder cannot be written.
    """
    if text is None:
        return None
    from emu.waves import Waves

    with usage("--waves"):
        found = Waves.parse(text, topology, Path(folder))
    with usage("--waves-dir"):
        found.prepare()
    return found


@contextmanager
def tell_waves(screen: Screen, wanted: Waves | None,
               fabric: Callable[[], Fabric]) -> Iterator[None]:
    """Around a run: end its waves however it ends, and tell the files that came of them."""
    try:
        yield
    finally:
        if wanted is not None:
            kept = fabric().finish_waves()
            for path in kept:
                screen.line(f"{path}: waves")
            if not kept:
                screen.line(f"no waves: the run ended in cycle {fabric().cycle:,}, and they begin "
                            f"in cycle {wanted.first:,}")
