"""``supernode bench``: one collective over a range of sizes, in nccl-tests' columns.

Sizes, bandwidths and columns are those of nccl-tests (its doc/PERFORMANCE.md), so that a table
reads like one of a real machine: ``time`` is the emulated machine's, in microseconds, and
``#wrong`` counts values that differ from the oracle's in any bit. There is one run per size, on one
machine from the smallest to the largest: it is exact, and there is no noise to average.
"""

from __future__ import annotations

from typing import Any

import click

from drivers.dtypes import DTYPES
from drivers.group import algorithm_names

from .allreduce import SUMS, bus_factor, sum_once
from .errors import Failure
from .machine import Machine, Stopwatch, machine_options
from .options import SIZE, choose

__all__ = ["bench"]

COLLECTIVES = ("allreduce",)
_COLUMNS = ("size (B)", "count (elements)", "type", "redop", "time (us)", "algbw (GB/s)",
            "busbw (GB/s)", "#wrong")


@click.command()
@click.argument("collective")
@click.option("-b", "--minbytes", type=SIZE, default="8", show_default=True, metavar="SIZE",
              help="Smallest size, in bytes per card.")
@click.option("-e", "--maxbytes", type=SIZE, default="1M", show_default=True, metavar="SIZE",
              help="Largest size.")
@click.option("-f", "--stepfactor", type=click.IntRange(2), default=2, show_default=True,
              metavar="N", help="From one size to the next.")
@click.option("--dtype", default="f32", show_default=True, metavar=f"{{{','.join(SUMS)}}}",
              help="Type of the elements.")
@click.option("--algorithm", default="auto", show_default=True,
              metavar=f"{{{','.join(algorithm_names())}}}", help="How the collective is formed.")
@machine_options()
def bench(collective: str, minbytes: int, maxbytes: int, stepfactor: int, dtype: str,
          algorithm: str, **options: Any) -> None:
    """Time a collective over a range of sizes, in nccl-tests' columns: allreduce."""
    choose("COLLECTIVE", collective, COLLECTIVES)
    choose("--dtype", dtype, SUMS)
    choose("--algorithm", algorithm, algorithm_names())
    setup = Machine(**options)
    counts = _counts(minbytes, maxbytes, stepfactor, DTYPES[dtype].size)
    rows: list[dict[str, Any]] = []
    with Stopwatch() as watch, setup.open(2 * counts[-1] * DTYPES[dtype].size) as machine:
        for count in counts:
            done = sum_once(setup, machine, count, dtype, algorithm)
            result, verdict = done.result, done.verdict
            size = count * DTYPES[dtype].size
            algbw = size / result.time_ns if result.time_ns else 0.0
            rows.append({
                "size": size, "count": count, "type": dtype, "redop": "sum",
                "time_us": result.time_ns / 1000, "algbw_GBps": algbw,
                "busbw_GBps": algbw * bus_factor(machine.cards), "wrong": verdict.mismatches,
                "cycles": result.cycles, "bound_cycles": result.bound_cycles,
                "efficiency": result.efficiency})
        cards = machine.cards
    mean = sum(row["busbw_GBps"] for row in rows) / len(rows)
    wrong = sum(row["wrong"] for row in rows)
    screen = setup.screen
    screen.table(f"{collective} on {setup.topology}: {cards} cards, {algorithm}", _COLUMNS, [
        (str(row["size"]), str(row["count"]), row["type"], row["redop"], f"{row['time_us']:.3f}",
         f"{row['algbw_GBps']:.2f}", f"{row['busbw_GBps']:.2f}", str(row["wrong"]))
        for row in rows])
    screen.line(f"average bus bandwidth: {mean:.3f} GB/s")
    screen.result({
        "collective": collective, "topology": setup.topology, "cards": cards, "dtype": dtype,
        "algorithm": algorithm, "rows": rows, "busbw_mean_GBps": mean, "verified": not wrong,
        "wall_s": watch.seconds})
    if wrong:
        raise Failure(f"{wrong} values differ from the reference, first at "
                      f"{next(row['size'] for row in rows if row['wrong'])} bytes")


def _counts(smallest: int, largest: int, factor: int, item: int) -> list[int]:
    """Elements of each size, rounded down as nccl-tests does.

    Raises
    ------
    click.BadParameter
        If there is no size in the range.
    """
    if smallest < item:
        raise click.BadParameter(f"{smallest} is less than one element, {item} bytes",
                                 param_hint="--minbytes")
    if largest < smallest:
        raise click.BadParameter(f"{largest} is less than --minbytes: accepted are {smallest} and "
                                 "more", param_hint="--maxbytes")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return [size // item for size in sizes]
