"""What builds cost: tables ``build``, ``compilers`` and ``profiles``.

``python -m bench build`` builds every tile, and flat designs of a few cards beside them, each from
nothing in a cache of its own. ``python -m bench compilers`` compares the compilers that are there,
``python -m bench profiles`` builds with and without profiles: time to build, and to evaluate.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.tiles import measure
from emu.build import Builder
from emu.cache import Cache
from emu.compiler import AUTOMATIC, CompilerError, find_compiler
from emu.training import VARIABLE
from hdl.card import ComputeTile, NetworkTile
from hdl.flat import generate_flat
from hdl.params import SwitchParams, TrafficParams, preset
from hdl.switch import SwitchTile
from hdl.topology import parse
from hdl.traffic import TrafficTile
from hdl.verilog import Generated

__all__ = ["build_rows", "compiler_rows", "profile_rows"]

#: Wall time after which a build is given up.
MOST_S = 1200
#: Rounds of a comparison, of which the least figure counts.
ROUNDS = 3
COMPARED = ("network", "compute", "traffic", "switch")


def _network(builder: Builder) -> Generated:
    return builder.verilog(NetworkTile, preset("default"), "network")


def _compute(builder: Builder) -> Generated:
    return builder.verilog(ComputeTile, preset("default"), "compute")


def _switch(builder: Builder) -> Generated:
    return builder.verilog(SwitchTile, SwitchParams(link=preset("default").link), "switch")


def _traffic(builder: Builder) -> Generated:
    router = replace(preset("booksim").router, rails=1)
    return builder.verilog(TrafficTile, TrafficParams(router=router), "traffic")


def _flat(spec: str) -> Callable[[Builder], Generated]:
    def make(builder: Builder) -> Generated:
        shape = parse(spec)
        params = shape.card(preset("default"))
        return generate_flat(
            params=params, cards=shape.cards, links=shape.links,
            latency=[params.link.latency] * len(shape.links),
            network=builder.verilog(NetworkTile, params, "network"),
            compute=builder.verilog(ComputeTile, params, "compute"))
    return make


DESIGNS: dict[str, Callable[[Builder], Generated]] = {
    "network": _network, "compute": _compute, "switch": _switch, "traffic": _traffic,
    "flat:ring:2": _flat("ring:2"), "flat:torus:2x2": _flat("torus:2x2"),
    "flat:torus:2x2x2": _flat("torus:2x2x2")}
TITLES = {
    "network": "network tile", "compute": "compute tile, 16×16", "switch": "switch, 48 ports",
    "traffic": "traffic tile, preset `booksim`", "flat:ring:2": "2 cards as one flat design",
    "flat:torus:2x2": "4 cards as one flat design",
    "flat:torus:2x2x2": "8 cards as one flat design"}


def cold(name: str) -> dict[str, float]:
    """Build a design from nothing; seconds of each step."""
    with tempfile.TemporaryDirectory(prefix="supernode-build-") as folder:
        builder = Builder(Cache(Path(folder)))
        start, spent = time.time(), time.process_time()
        design = DESIGNS[name](builder)
        generated = time.time()
        model = builder.model(design)
        end = time.time()
        verilated = (model / "verilator.log").stat().st_mtime
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {"lines": design.text.count("\n"), "generate": generated - start,
                "verilate": verilated - generated, "compile": end - verilated,
                "all": end - start, "peak_mib": children.ru_maxrss / 1024,
                "processor": time.process_time() - spent + children.ru_utime + children.ru_stime}


def build_rows() -> Iterator[list[object]]:
    """Cold builds of every tile and of flat designs."""
    columns = ("generate", "verilate", "compile", "all", "processor")
    yield ["built from nothing, seconds", "lines of Verilog", *columns, "largest process, MiB"]
    for name in DESIGNS:
        try:
            run = subprocess.run([sys.executable, "-m", __name__, name], stdout=subprocess.PIPE,
                                 text=True, check=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            yield [TITLES[name], None, None, None, None, f"> {MOST_S:,}", None, None]
            continue
        result = json.loads(run.stdout)
        yield [TITLES[name], int(result["lines"]), *(result[column] for column in columns),
               int(result["peak_mib"])]


def _compare(ways: dict[str, dict[str, str]]) -> dict[str, dict[str, float]]:
    """The least cost of each tile in each way, taken in turns."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for way, environment in ways.items():
            for tile, cost in measure(COMPARED, **environment).items():
                before = best.setdefault(way, {}).get(tile, cost)
                best[way][tile] = min(before, cost)
    return best


def compiler_rows() -> Iterator[list[object]]:
    """The compilers that are there: build and evaluation of each tile."""
    yield ["compiler", *(f"{tile}: compile, s" for tile in COMPARED),
           *(f"{tile}: evaluation, ns" for tile in COMPARED)]
    found = {}
    for name in AUTOMATIC:
        try:
            found[name] = find_compiler(name)
        except CompilerError:
            continue
    costs = _compare({name: {"SUPERNODE_CXX": name} for name in found})
    for name, compiler in found.items():
        os.environ["SUPERNODE_CXX"] = name
        builds = [json.loads(subprocess.run([sys.executable, "-m", __name__, tile], check=True,
                                            stdout=subprocess.PIPE, text=True).stdout)["compile"]
                  for tile in COMPARED]
        yield [f"{name}: {compiler.version}", *builds, *(costs[name][tile] for tile in COMPARED)]
    os.environ.pop("SUPERNODE_CXX", None)


def profile_rows() -> Iterator[list[object]]:
    """Models of g++ with and without profiles."""
    gnu = {"SUPERNODE_CXX": "g++"}
    costs = _compare({"plain": gnu | {VARIABLE: "0"}, "by profile": gnu | {VARIABLE: "1"}})
    yield ["tile", "plain, ns", "by profile, ns", "gain"]
    for tile in COMPARED:
        plain, guided = (costs[way][tile] for way in ("plain", "by profile"))
        yield [tile, plain, guided, f"{1 - guided / plain:.1%}"]


if __name__ == "__main__":
    print(json.dumps(cold(sys.argv[1])))
