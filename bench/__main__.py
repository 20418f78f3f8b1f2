"""Run the commands behind docs/performance.md and print its tables in Markdown."""

from __future__ import annotations

import json
import subprocess
import sys

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


def _supernode(arguments: str) -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, "-c", "from emu.cli import main; main()", *arguments.split(),
         "--json", "-"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"
    return "" if value is None else f"{value:,}"


def _row(name: str, cells: list[str]) -> None:
    print(f"| {' | '.join([name, *cells])} |", flush=True)


def main() -> None:
    """Print one table for the demo's phases and one for the workloads."""
    demo = _supernode("demo")
    _row("`supernode demo`", ["cycles", "bound_cycles", "efficiency", "waited_cycles"])
    print("|---|---|---|---|---|")
    for phase in demo["phases"]:  # type: ignore[attr-defined]
        _row(phase["name"], [_cell(phase[key]) for key in
                             ("cycles", "bound_cycles", "efficiency", "waited_cycles")])
    print()
    _row("`supernode run …`", list(COLUMNS))
    print(f"|{'---|' * (len(COLUMNS) + 1)}")
    for run in RUNS:
        result = _supernode(f"run {run}")
        _row(f"`{run}`", [_cell(result.get(column)) for column in COLUMNS])


if __name__ == "__main__":
    main()
