"""The figures of scale: table ``scale``, by ``python -m bench scale``.

Each row is a command of its own process, the figure it gives, and the figure that is required.
``python -m bench.scale NAME …`` runs the rows of these names alone and prints them. With
``BOOKSIM`` naming a BookSim 2 binary, it is run beside the rows of traffic.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.traffic import booksim, theirs

__all__ = ["ROWS", "scale_rows"]

HEAD = ["what", "`supernode …`", "figure", "required", "wall, s", "peak RSS, MiB", "verified"]
#: Seconds after which a command is given up.
MOST_S = 1800
MIB = 1 << 10
CARDS = "torus:8x8x16"
#: Runs of what is compared with something, of which the best counts: machines are shared.
REPEATS = 3


@dataclass(frozen=True)
class Ran:
    """A command that has ended: its result, or why there is none."""

    command: str
    result: dict[str, Any] = field(default_factory=dict)
    wall_s: float | None = None
    peak_mib: int | None = None
    why: str = ""

    def row(self, what: str, figure: str, required: str) -> list[object]:
        """The row that this run makes; ``why`` stands for the figure of one without result."""
        return [what, f"`{self.command}`", self.why or figure, required, self.wall_s, self.peak_mib,
                {True: "yes", False: "no"}.get(self.result.get("verified", ""))]


#: The command line, with the peak memory of its process on the last line of standard error.
_CHILD = """
import atexit, resource, sys
kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
atexit.register(lambda: print(max(resource.getrusage(kind).ru_maxrss for kind in kinds),
                              file=sys.stderr))
from emu.cli import main
main()
"""


def supernode(arguments: str) -> Ran:
    """Run the command line in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="supernode-scale-") as folder:
        file = Path(folder) / "result.json"
        start = time.perf_counter()
        try:
            run = subprocess.run(
                [sys.executable, "-c", _CHILD, *shlex.split(arguments), "--json", str(file)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            return Ran(arguments, why=f"not over after {MOST_S:,} s")
        wall = time.perf_counter() - start
        *said, peak = run.stderr.strip().splitlines()
        result = json.loads(file.read_text()) if file.exists() else {}
    if run.returncode:
        return Ran(arguments, result, wall, int(peak) // MIB, why=said[-1] if said else "failed")
    return Ran(arguments, result, wall, int(peak) // MIB)


def _with(arguments: str, option: str) -> Ran:
    """Run with ``option``, unless this version does not know it."""
    command, name = f"{arguments} {option}", option.split()[0]
    group = arguments.split("--")[0]
    usage = subprocess.run([sys.executable, "-c", _CHILD, *group.split(), "--help"],
                           capture_output=True, text=True, check=True).stdout
    return supernode(command) if name in usage else Ran(
        command, why=f"this version has no {name}")


def _one_thread(arguments: str) -> Ran:
    run = _with(arguments, "--threads 1")
    return supernode(arguments) if run.why.startswith("this version") else run


def _rate(run: Ran, key: str) -> str:
    return f"{run.result[key]:,.0f}" if key in run.result else ""


def best(runs: Sequence[Ran]) -> Ran:
    """The one that took the least time, or the first one that failed."""
    failed = [run for run in runs if run.why]
    return failed[0] if failed else min(runs, key=lambda run: run.result["wall_s"])


def stepped() -> Iterator[list[object]]:
    """A core's evaluated card-cycles: in lanes, and of cards too few for them."""
    for cards, size, required in ((CARDS, "64K", "≥ 1,000,000"), ("torus:2x2x2", "1M", "")):
        run = best([_one_thread(f"run allreduce --topology {cards} --bytes {size}")
                    for _ in range(REPEATS)])
        yield run.row(f"stepped card-cycles/s of one core, AllReduce, {run.result.get('cards')} "
                      f"cards, best of {REPEATS}", _rate(run, "stepped_card_cycles_per_s"),
                      required)


def sparse() -> Iterator[list[object]]:
    """A write between two cards that are eight hops apart."""
    run = _one_thread(f"run p2p --topology {CARDS} --source 0 --target 36 --bytes 256K")
    rates = [run.result.get(key, 0) for key in ("stepped_card_cycles_per_s", "card_cycles_per_s")]
    share = f", {rates[0] / rates[1]:.1%} active" if rates[1] else ""
    yield run.row("card-cycles/s, 1 % of 1,024 cards active",
                  _rate(run, "card_cycles_per_s") + share, "≥ 30,000,000")


def mesh(network: str, rate: float, required: str) -> Callable[[], Iterator[list[object]]]:
    """Synthetic load by wall time, and BookSim under the same one by its processor time."""
    def rows() -> Iterator[list[object]]:
        run = _one_thread(f"traffic --topology {network} --preset booksim --pattern uniform "
                          f"--rate {rate} --cycles 20000")
        figure, program = _rate(run, "cycles_per_s"), booksim()
        if program and figure:
            other = theirs(program, network, "uniform", rate)
            speed = other.cycles / other.seconds
            figure += (f" ({run.result['cycles_per_s'] / speed:.1f} × BookSim2's {speed:,.0f} per "
                       "second of processor time in the same run)")
        yield run.row(f"cycles/s of {network}, uniform {rate}, one thread", figure, required)
    return rows


def doubled(option: str, required: str, more: str = "") -> Callable[[], Iterator[list[object]]]:
    """One of ``option`` and two, at 1,024 cards, by turns."""
    def rows() -> Iterator[list[object]]:
        turns = [[_with(f"run allreduce --topology {CARDS} --bytes 64K{more}", f"{option} {count}")
                  for count in (1, 2)] for _ in range(REPEATS)]
        runs = [best(each) for each in zip(*turns, strict=True)]
        one, two = (run.result.get("wall_s", 0.0) for run in runs)
        name = option.strip("-")
        said = f"{name}, 1,024 cards, best of {REPEATS} by turns"
        yield runs[0].row(f"seconds with one of {said}", f"{one:.2f}", "")
        yield runs[1].row(f"seconds with two of {said}",
                          f"{two:.2f}" + (f", {one / two:.2f} × as fast" if one and two else ""),
                          required)
    return rows


def reduced(topology: str, size: str, required: str) -> Callable[[], Iterator[list[object]]]:
    """An AllReduce with no flag but topology and bytes."""
    def rows() -> Iterator[list[object]]:
        run = supernode(f"run allreduce --topology {topology} --bytes {size}")
        seconds = run.result.get("wall_s")
        yield run.row(f"AllReduce of {size}iB on {topology}",
                      f"{seconds:.1f} s without build and check" if seconds else "", required)
    return rows


ROWS: dict[str, Callable[[], Iterator[list[object]]]] = {
    "stepped": stepped, "sparse": sparse,
    "mesh-8x8": mesh("mesh:8x8", 0.2, "≥ 20,160 (2.4 × 8,400)"),
    "mesh-32x32": mesh("mesh:32x32", 0.05, "≥ 1,390 (10 × 139)"),
    "threads": doubled("--threads", "≥ 1.8 ×"),
    "ranks": doubled("--ranks", "≥ 1.7 ×", " --threads 1"),
    "allreduce-1024": reduced("torus:8x8x16", "64K", "< 25 s, < 4,096 MiB, verified"),
    "allreduce-8192": reduced("torus:16x16x32", "4K", "< 180 s, < 12,288 MiB, verified"),
}


def scale_rows() -> Iterator[list[object]]:
    """All rows; models are built before the clock starts."""
    yield HEAD
    for command in ("build", "build --preset booksim --topology mesh:8x8"):
        subprocess.run([sys.executable, "-c", _CHILD, *command.split()], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for rows in ROWS.values():
        yield from rows()


def main() -> None:
    """Print the rows named on the command line, or all."""
    names = sys.argv[1:] or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        sys.exit(f"unknown row {unknown[0]!r}: accepted are {', '.join(ROWS)}")
    for name in names:
        for row in ROWS[name]():
            print(*("" if cell is None else cell for cell in row), sep="\t", flush=True)


if __name__ == "__main__":
    main()
