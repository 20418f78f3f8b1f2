"""``supernode build``: compile what a machine needs, so that its runs start at once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from .errors import usage
from .options import common
from .output import Screen
from .status import status_line

if TYPE_CHECKING:
    from emu.build import Progress

__all__ = ["build"]


@click.command()
@click.option("--topology", default="torus:2x2x2", show_default=True, metavar="SPEC",
              help="Cards and links; what is built for a shape serves all of its sizes.")
@click.option("--pgo", is_flag=True, help="Profile the tiles first; needs g++. Runs with "
              "SUPERNODE_PGO=1 use what this builds.")
@common
def build(topology: str, pgo: bool, json_output: Any, seed: int, preset: str) -> None:
    """Build the models of a machine ahead of its runs."""
    from emu.toolchain import find_toolchain
    from emu.training import VARIABLE

    if pgo:
        os.environ[VARIABLE] = "1"
    screen = Screen(json_output)
    start = time.perf_counter()
    with usage("--topology"), status_line("building") as progress:
        _build(topology, preset, progress)
    seconds, compiler = time.perf_counter() - start, find_toolchain().compiler
    screen.line(f"{topology}, preset {preset}: ready after {seconds:.1f} s, by {compiler.name} "
                f"({compiler.version})")
    screen.result({"topology": topology, "preset": preset, "compiler": compiler.name,
                   "compiler_version": compiler.version, "pgo": os.environ.get(VARIABLE) == "1",
                   "wall_s": seconds})


def _build(topology: str, name: str, progress: Progress | None) -> None:
    """Make a machine of the preset's nodes: of traffic nodes if its links serve no cards."""
    import emu
    from hdl.params import preset
    from hdl.topology import parse

    params = preset(name)
    if params.link.classes > 1:
        emu.open(topology, preset=name, progress=progress).close()
        return
    from emu.traffic import TrafficNetwork, traffic_params

    shape = parse(topology)
    TrafficNetwork(shape, traffic_params(shape, params), params, progress=progress).close()
