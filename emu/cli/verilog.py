"""``supernode verilog``: a tile as Verilog, with a manifest of its ports beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .errors import usage
from .options import common
from .output import OUTPUT, OutputFile, Screen

__all__ = ["verilog"]

TILES = ("network", "compute", "card", "switch", "traffic")


@click.command()
@click.argument("tile", type=click.Choice(TILES))
@click.option("-o", "--output", required=True, metavar="FILE", type=OUTPUT,
              help="Verilog file; the manifest goes beside it, as FILE with the suffix .json.")
@common
def verilog(tile: str, output: OutputFile, json_output: Any, seed: int, preset: str) -> None:
    """Write a tile as Verilog, with a manifest of its ports."""
    screen = Screen(json_output)
    with usage("--output"):
        manifest = _manifest_file(output.path)
    from hdl.verilog import generate

    generated = generate(_component(tile, preset), tile)
    output.write(generated.text)
    manifest.write(generated.manifest_text())
    lines = generated.text.count("\n")
    ports = len(generated.manifest["ports"])
    screen.line(f"{output.path}: {lines} lines, module {tile}")
    screen.line(f"{manifest.path}: {ports} ports")
    screen.result({"tile": tile, "preset": preset, "verilog": str(output.path),
                   "manifest": str(manifest.path), "lines": lines, "ports": ports})


def _component(tile: str, preset: str) -> Any:
    """The tile with the parameters that nodes of the preset's machines have."""
    from hdl import card
    from hdl.params import SwitchParams, TrafficParams
    from hdl.params import preset as find_preset
    from hdl.switch import SwitchTile
    from hdl.traffic import TrafficTile

    params = find_preset(preset)
    if tile == "switch":
        return SwitchTile(SwitchParams(link=params.link))
    if tile == "traffic":
        return TrafficTile(TrafficParams(router=replace(params.router, rails=1)))
    return {"network": card.NetworkTile, "compute": card.ComputeTile, "card": card.Card}[tile](
        params)


def _manifest_file(path: Path) -> OutputFile:
    beside = path.with_suffix(".json")
    if beside == path:
        raise ValueError(f"{str(path)!r} is where the manifest goes: accepted is any suffix "
                         "but .json")
    try:
        return OutputFile(str(beside))
    except OSError as error:
        raise ValueError(f"manifest {str(beside)!r} cannot be written "
                         f"({error.strerror})") from error
