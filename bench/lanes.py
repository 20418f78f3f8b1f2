"""Lane-parallel models beside Verilated ones: the same inputs, different in every lane, and what an
edge takes: ``python -m bench.lanes``.

``bench/lanes.cpp`` drives both. It is linked with the models themselves, because an engine shows
nothing but its C ABI.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from ctypes import POINTER, c_char_p, c_double, c_uint32, c_uint64
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emu.build import ENGINE, Builder, model_name
from emu.cache import content_key
from emu.compiler import compile_objects, find_compiler, link_shared
from emu.lanes import LaneTile
from hdl.card import NetworkTile
from hdl.params import TrafficParams, preset
from hdl.traffic import TrafficTile

__all__ = ["Harness", "Times", "lane_tile"]

SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True)
class Times:
    """Nanoseconds per edge: of a Verilated tile, and of a lane."""

    alone: float
    lane: float


class Harness:
    """Both models of a tile, ready to be driven.

    Raises
    ------
    BuildError
        If a model cannot be built.
    """

    def __init__(self, tile: LaneTile, builder: Builder | None = None) -> None:
        builder = builder or Builder()
        self.tile = tile
        objects = builder.objects([tile.generated, tile])
        compiler = find_compiler()
        key = content_key(*(str(path.relative_to(builder.cache.root)) for path in objects),
                          SOURCE.read_bytes(), compiler.id)

        def build(folder: Path) -> None:
            own = compile_objects(compiler, [(SOURCE, ["-O2", f"-I{ENGINE}"])], folder,
                                  what="compiling the lanes' harness")
            link_shared(compiler, [*objects, *own], folder / "harness.so")

        folder = builder.cache.entry("lanes-harness", key, build)
        self._library = ctypes.CDLL(str(folder / "harness.so"))
        self._library.compare_models.restype = c_char_p
        self._library.compare_models.argtypes = [c_char_p, c_char_p, c_uint64, c_uint64, c_uint32,
                                                 POINTER(c_double)]
        self._library.measure_model.restype = c_double
        self._library.measure_model.argtypes = [c_char_p, c_uint64, c_uint64, c_uint32]

    @property
    def _names(self) -> tuple[bytes, bytes]:
        return model_name(self.tile.generated).encode(), model_name(self.tile).encode()

    def compare(self, cycles: int, *, seed: int, activity: int = 3) -> Times:
        """Compare all outputs in all cycles. A link port gets a random word in one of ``activity``
        cycles, or what the tile itself sent in others.

        Raises
        ------
        AssertionError
            If they differ; with lane, cycle and port.
        """
        spent = (c_double * 2)()
        problem = self._library.compare_models(*self._names, cycles, seed, activity, spent)
        if problem:
            raise AssertionError(f"{problem.decode()} (seed {seed})")
        return Times(spent[0], spent[1] / self.tile.lanes)

    def measure(self, cycles: int, *, seed: int = 1, activity: int = 3) -> float:
        """Nanoseconds per lane and edge; with ``activity`` 0 of tiles at rest."""
        spent = self._library.measure_model(self._names[1], cycles, seed, activity)
        return spent / self.tile.lanes


def lane_tile(builder: Builder, name: str, factory: Any, params: Any, lanes: int = 256) -> LaneTile:
    """A tile with its Verilog."""
    return LaneTile(builder.verilog(factory, params, name), factory, params, lanes)


def main() -> None:
    """Print what an edge takes of each tile, at rest and busy, for several numbers of lanes."""
    parser = argparse.ArgumentParser(prog="bench.lanes", description=__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--tile", choices=("network", "traffic"), nargs="+",
                        default=["traffic", "network"])
    options = parser.parse_args()
    builder = Builder(progress=lambda line: print(line, file=sys.stderr))
    tiles = {
        "traffic": ("booksim", TrafficTile, TrafficParams(router=preset("booksim").router)),
        "network": ("default", NetworkTile, preset("default")),
    }
    print(f"{find_compiler().version}\n\n| tile, preset | lanes | Verilated, at rest | busy "
          "| lane, at rest | busy |\n|---|---|---|---|---|---|")
    for name in options.tile:
        label, factory, params = tiles[name]
        base = lane_tile(builder, name, factory, params)
        for lanes in options.lanes:
            harness = Harness(replace(base, lanes=lanes), builder)
            cycles = options.cycles
            alone = [harness.compare(cycles, seed=1, activity=activity).alone
                     for activity in (0, 3)]
            lane = [harness.measure(cycles, activity=activity) for activity in (0, 3)]
            print(f"| {name}, {label} | {lanes} | {alone[0]:.0f} ns | {alone[1]:.0f} ns "
                  f"| {lane[0]:.0f} ns | {lane[1]:.0f} ns |", flush=True)


if __name__ == "__main__":
    main()
