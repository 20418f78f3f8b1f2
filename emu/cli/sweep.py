"""``supernode sweep``: many runs of one workload, side by side, into one table that grows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from filelock import FileLock, Timeout

from emu.version import product_version

from .errors import Failure, describe, usage
from .options import common
from .output import OUTPUT, OutputFile, Screen
from .point import TEXT, Point, column, execute, make_point
from .status import status_line, terminal

if TYPE_CHECKING:
    from emu.kinds import NodeKind
    from emu.sweep import Table

__all__ = ["sweep"]

#: Failures that are told; all of them are in the table.
_TOLD = 5


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=OUTPUT, metavar="FILE",
              help="Table of results, .parquet or .csv. Runs that are in it are not repeated.")
@click.option("--workers", type=click.IntRange(1), metavar="N", show_default="one per processor",
              help="Processes on this machine, each with one run at a time.")
@click.option("--scheduler", metavar="ADDRESS",
              help="Run on the Dask cluster of this scheduler, e.g. tcp://10.0.0.1:8786.")
@click.option("--fresh", is_flag=True, help="Start over: forget what is in the table.")
@click.option("--retry", is_flag=True, help="Repeat runs that failed.")
@click.option("--dry-run", is_flag=True, help="Check and list the runs; run and write nothing.")
@common
def sweep(file: Path, output: OutputFile, workers: int | None, scheduler: str | None,
          fresh: bool, retry: bool, dry_run: bool, json_output: Any, seed: int,
          preset: str) -> None:
    """Run what FILE describes, many runs at a time, into one table of results.

    FILE is TOML: a workload, parameters, a grid of them, points, seeds; docs/sweep.md explains it.
    """
    try:
        from emu.sweep import KINDS, NoCluster, processes
    except ImportError as error:
        raise Failure(f"a sweep needs the package {error.name}: pip install "
                      "'supernode-emulator[sweep]'") from error

    screen = Screen(json_output)
    if output.path.suffix not in KINDS:
        raise click.BadParameter(f"{output.path.name!r} says no format: accepted are the suffixes "
                                 f"{' and '.join(KINDS)}", param_hint="--output")
    if scheduler is not None and workers is not None:
        raise click.BadParameter(f"{workers} processes cannot be asked of a cluster, which has its "
                                 "own: accepted without --scheduler", param_hint="--workers")
    points = _points(file)
    if dry_run:
        earlier = _table(output, fresh).errors(product_version())
        _list(screen, points, earlier, output)
        return
    with _alone(output.path):
        table = _table(output, fresh)
        earlier = table.errors(product_version())
        waiting = [point for point in points if point.identity not in earlier
                   or (retry and earlier[point.identity] is not None)]
        start = time.perf_counter()
        if waiting:
            _build(waiting)
            if fresh:
                output.path.unlink(missing_ok=True)
            jobs = [(point.workload, point.arguments) for point in waiting]
            try:
                with _display(file.name, len(jobs)) as shown, \
                        processes(workers or _processors(), scheduler) as spread:
                    for batch in spread(execute, jobs):
                        rows = [_row(waiting[index], outcome) for index, outcome in batch]
                        table.add(rows)
                        output.write(table.encode())
                        shown(len(rows), sum(row["error"] is not None for row in rows))
            except NoCluster as error:
                raise Failure(str(error)) from error
        _report(screen, points, table, output, ran=len(waiting),
                wall_s=time.perf_counter() - start)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _points(file: Path) -> list[Point]:
    """The runs, each once, all of them checked."""
    from emu.sweep import read_document

    with usage(str(file)):
        document = read_document(file)
    found: dict[str, Point] = {}
    for number, values in enumerate(document.runs, 1):
        try:
            point = make_point(document.workload, values)
            point.plan.kinds()
        except (ValueError, click.UsageError) as error:
            told = ", ".join(f"{key} = {value}" for key, value in values.items())
            raise click.BadParameter(f"run {number} of {len(document.runs)} ({told}): "
                                     f"{describe(error)}", param_hint=str(file)) from error
        found.setdefault(point.identity, point)
    return list(found.values())


def _table(output: OutputFile, fresh: bool) -> Table:
    from emu.sweep import Table

    table = Table(output.path.suffix, TEXT)
    if output.path.exists() and not fresh:
        with usage("--output"):
            try:
                table.load(output.path.read_bytes())
            except ValueError as error:
                raise ValueError(f"{str(output.path)!r} is {error}; accepted is a table that a "
                                 "sweep wrote, or --fresh to replace it") from error
    return table


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let no other sweep write the table: each would drop the other's rows."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
    except Timeout as error:
        raise Failure(f"{str(path)!r} is being written by another sweep") from error


def _build(points: Sequence[Point]) -> None:
    """Build each engine once, so that the processes find it in the cache."""
    from emu.kinds import make

    needed: dict[frozenset[NodeKind], Sequence[NodeKind]] = {}
    for point in points:
        kinds = point.plan.kinds()
        needed.setdefault(frozenset(kinds), kinds)
    with status_line("building what the runs need") as progress:
        for kinds in needed.values():
            make(kinds, (), (), flat=False, progress=progress)


def _row(point: Point, outcome: Any) -> dict[str, Any]:
    figures, error = ({}, describe(outcome)) if isinstance(outcome, RuntimeError) else outcome
    return {"workload": point.workload,
            **{column(key): value for key, value in point.parameters.items()}, **figures,
            "error": error, "parameters": point.identity, "version": product_version()}


def _list(screen: Screen, points: Sequence[Point], earlier: dict[str, str | None],
          output: OutputFile) -> None:
    """Tell the runs, and what the table knows of them."""
    def state(point: Point) -> str:
        if point.identity not in earlier:
            return "to run"
        return "done" if earlier[point.identity] is None else "failed"

    varying = [key for key in points[0].parameters
               if len({str(point.parameters[key]) for point in points}) > 1]
    screen.table(f"{len(points)} runs of {points[0].workload} into {output.path}",
                 ("run", *varying, "state"),
                 [(str(number), *(str(point.parameters[key]) for key in varying), state(point))
                  for number, point in enumerate(points, 1)])
    screen.result({"file": str(output.path), "workload": points[0].workload,
                   "runs": [{**point.parameters, "state": state(point)} for point in points]})


@contextmanager
def _display(title: str, runs: int) -> Iterator[Callable[[int, int], None]]:
    """Show how many of the runs have ended; yields a function that counts more, and failures."""
    console = terminal()
    if console is None:
        yield lambda ended, failed: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    failures = 0
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                  TextColumn("runs, {task.fields[failed]} failed,"), TimeElapsedColumn(),
                  TextColumn("so far,"), TimeRemainingColumn(), TextColumn("left"),
                  console=console, transient=True, refresh_per_second=2) as progress:
        task = progress.add_task(title, total=runs, failed=0)

        def count(ended: int, failed: int) -> None:
            nonlocal failures
            failures += failed
            progress.update(task, advance=ended, failed=failures)
        yield count


def _report(screen: Screen, points: Sequence[Point], table: Table, output: OutputFile, *,
            ran: int, wall_s: float) -> None:
    """Tell how the sweep went.

    Raises
    ------
    Failure
        If one of its runs failed, now or earlier.
    """
    errors = table.errors(product_version())
    failed = [(point, errors[point.identity]) for point in points
              if errors[point.identity] is not None]
    screen.line(f"{output.path}: {len(points)} runs of {points[0].workload}, {ran} of them new, "
                f"{len(failed)} failed; {wall_s:.1f} s")
    for point, error in failed[:_TOLD]:
        screen.line(f"failed: {' '.join(point.arguments)}: {error}")
    screen.result({"file": str(output.path), "workload": points[0].workload,
                   "version": product_version(), "runs": len(points), "ran": ran,
                   "failed": len(failed), "verified": not failed, "wall_s": wall_s,
                   "failures": [{"parameters": dict(point.parameters), "error": error}
                                for point, error in failed]})
    if failed:
        raise Failure(f"{len(failed)} of {len(points)} runs failed, first "
                      f"{' '.join(failed[0][0].arguments)}: {failed[0][1]}")
