"""Run the commands behind the tables of docs/ and write them: ``make bench``.

Tables go between ``<!-- bench: NAME -->`` and ``<!-- end -->`` and to standard output. All of one
run are measured on one machine, one after the other, so they compare with each other.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.build import build_rows as cold_rows
from bench.build import compiler_rows, profile_rows
from bench.collectives import allreduce_rows, auto_rows
from bench.scale import scale_rows
from bench.traffic import adaptive_rows, speed_rows, traffic_rows

DOCS = Path(__file__).resolve().parent.parent / "docs"
RUNS = (
    "gemm --topology ring:1 --m 256 --n 256 --k 256",
    "gemm --topology torus:2x2x2 --m 256 --n 256 --k 256",
    "allreduce --topology torus:2x2x2 --bytes 4K",
    "allreduce --topology torus:2x2x2 --bytes 64K",
    "allreduce --topology torus:2x2x2 --bytes 1M",
    "allreduce --topology torus:2x2x2 --bytes 1M --dtype bf16",
    "allreduce --topology torus:4x4x4 --bytes 64K",
    "p2p --topology ring:2 --bytes 0",
    "p2p --topology ring:2 --bytes 1M",
    "p2p --topology torus:4x4x4 --bytes 64K",
)
COLUMNS = ("cycles", "bound_cycles", "efficiency", "busbw_GBps", "utilization", "wall_s",
           "card_cycles_per_s", "stepped_card_cycles_per_s")


def supernode(arguments: str, **environment: str) -> dict[str, object]:
    """Run the command line and return its JSON."""
    run = subprocess.run(
        [sys.executable, "-c", "from emu.cli import main; main()", *arguments.split(),
         "--json", "-"], stdout=subprocess.PIPE, text=True, check=True,
        env=os.environ | environment)
    return json.loads(run.stdout)


def demo_rows() -> Iterator[list[object]]:
    """The demo's phases."""
    yield ["`supernode demo`", "cycles", "bound_cycles", "efficiency", "waited_cycles"]
    result = supernode("demo")
    for phase in result["phases"]:  # type: ignore[attr-defined]
        yield [phase["name"], *(phase[key] for key in
                                ("cycles", "bound_cycles", "efficiency", "waited_cycles"))]
    yield ["all", result["cycles"], None, None, None]
    yield [(f"accuracy {result['accuracy']:.2%} in FP8, {result['accuracy_f32']:.2%} in float32; "
            f"{result['wall_s']:.1f} s wall"), None, None, None, None]


def run_rows() -> Iterator[list[object]]:
    """The workloads of :data:`RUNS`."""
    yield ["`supernode run …`", *COLUMNS]
    for run in RUNS:
        result = supernode(f"run {run}")
        yield [f"`{run}`", *(result.get(column) for column in COLUMNS)]


def build_rows() -> Iterator[list[object]]:
    """Cold builds of machines of several sizes."""
    yield ["machine", "cold build and run, s", "again, s"]
    for topology in ("ring:2", "torus:2x2x2", "torus:4x4x4"):
        with tempfile.TemporaryDirectory(prefix="supernode-bench-") as cache:
            times = []
            for _ in range(2):
                start = time.perf_counter()
                supernode(f"run p2p --topology {topology} --bytes 0", SUPERNODE_CACHE=cache)
                times.append(time.perf_counter() - start)
        yield [f"`{topology}`", *times]


TABLES: dict[str, Callable[[], Iterator[list[object]]]] = {
    "demo": demo_rows, "runs": run_rows, "builds": build_rows, "allreduce": allreduce_rows,
    "auto": auto_rows,
    "traffic": traffic_rows, "traffic-adaptive": adaptive_rows, "traffic-speed": speed_rows,
    "scale": scale_rows, "build": cold_rows, "compilers": compiler_rows, "profiles": profile_rows}
#: Tables that take long and tell of the machine at hand: written where they are named.
ASKED = ("build", "compilers", "profiles")
#: The page of a table, if it is not performance.md.
PAGES = {**dict.fromkeys(("allreduce", "auto"), "collectives.md"),
         **dict.fromkeys(("traffic", "traffic-adaptive", "traffic-speed"), "traffic.md"),
         **dict.fromkeys(("compilers", "profiles"), "build.md")}


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def table(name: str) -> str:
    """Measure the table called ``name``, printing each row as it comes."""
    lines = []
    for number, row in enumerate(TABLES[name]()):
        lines.append(f"| {' | '.join(map(cell, row))} |")
        if number == 0:
            lines.append("|---" * len(row) + "|")
        print("\n".join(lines[-1 - (number == 0):]), flush=True)
    print(flush=True)
    return "\n".join(lines)


def main() -> None:
    """Write the tables named on the command line, or all but :data:`ASKED`."""
    names = sys.argv[1:] or [name for name in TABLES if name not in ASKED]
    if unknown := [name for name in names if name not in TABLES]:
        sys.exit(f"unknown table {unknown[0]!r}: accepted are {', '.join(TABLES)}")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    for name in names:
        page = DOCS / PAGES.get(name, "performance.md")
        mark = re.compile(rf"(<!-- bench: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not mark.search(page.read_text()):
            sys.exit(f"{page.name} has no place for table {name!r}")
        rows = table(name)
        text = mark.sub(lambda match, rows=rows: f"{match[1]}\n{rows}\n\n{match[2]}",
                        page.read_text())
        page.write_text(re.sub(r"(?<=<!-- machine -->).*", f" {machine}", text))


if __name__ == "__main__":
    main()
