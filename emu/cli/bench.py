"""``supernode bench``: one collective over a range of sizes, in nccl-tests' columns.

Sizes, bandwidths and columns are those of nccl-tests (its doc/PERFORMANCE.md), so that a table
reads like one of a real machine: ``time`` is the emulated machine's, in microseconds, and
``#wrong`` counts values that differ from the oracle's in any bit. There is one run per size and
place, on one machine from the smallest to the largest: it is exact, and there is no noise to
average. Behind them stands what no real machine can tell: cycles, the bound, and how much of the
time the links carried a flit, headers included.
"""

from __future__ import annotations

from typing import Any

import click

from drivers.collectives import Collective, algorithm_names
from drivers.dtypes import DTYPES, reducible
from drivers.group import OPERATORS

from .collectives import Request, bus_factor, collective_named, run_once
from .errors import Failure, usage
from .machine import Machine, Stopwatch, machine_options
from .options import SIZE, choose
from .output import OUTPUT, OutputFile

__all__ = ["bench"]

#: Names of the two places.
PLACES = {"out": "out of place", "in": "in place"}
_COLUMNS = ("size", "count", "type", "redop", "root", "algorithm")
_RESULTS = ("time", "algbw", "busbw", "#wrong", "cycles", "bound", "eff", "wire")
_UNITS = {"size": "(B)", "count": "(elements)", "time": "(us)", "algbw": "(GB/s)",
          "busbw": "(GB/s)"}


@click.command()
@click.argument("collective")
@click.option("-b", "--minbytes", type=SIZE, default="8", show_default=True, metavar="SIZE",
              help="Smallest size, in bytes per card.")
@click.option("-e", "--maxbytes", type=SIZE, default="1M", show_default=True, metavar="SIZE",
              help="Largest size.")
@click.option("-f", "--stepfactor", type=click.IntRange(2), default=2, show_default=True,
              metavar="N", help="From one size to the next.")
@click.option("-g", "--cards", type=click.IntRange(1), metavar="N",
              help="Cards that take part, the first ones of the topology, or of a ring of so many "
              "if there is none.  [default: all]")
@click.option("--dtype", default="f32", show_default=True, metavar=f"{{{','.join(DTYPES)}}}",
              help="Type of the elements.")
@click.option("--op", default="sum", show_default=True, metavar=f"{{{','.join(OPERATORS)}}}",
              help="How elements are joined.")
@click.option("--root", type=click.IntRange(0), default=0, show_default=True, metavar="CARD",
              help="The card with a part of its own.")
@click.option("--algorithm", default="auto", show_default=True,
              metavar=f"{{{','.join(algorithm_names())}}}", help="How the collective is done.")
@click.option("--place", type=click.Choice(("both", *PLACES)), default="both", show_default=True,
              help="Out of place, in place, or both.")
@click.option("--plot", type=OUTPUT, metavar="FILE",
              help="Draw time and bus bandwidth against size, as SVG; needs matplotlib.")
@machine_options("")
def bench(collective: str, minbytes: int, maxbytes: int, stepfactor: int, cards: int | None,
          dtype: str, op: str, root: int, algorithm: str, place: str, plot: OutputFile | None,
          **options: Any) -> None:
    """Time a collective over a range of sizes, in nccl-tests' columns: all_reduce, all_gather,
    reduce_scatter, alltoall, broadcast, reduce, gather, scatter."""
    kind = collective_named(collective)
    if kind is Collective.BARRIER:
        raise click.BadParameter("a barrier has no sizes: use 'supernode run barrier'",
                                 param_hint="COLLECTIVE")
    choose("--dtype", dtype, reducible() if kind.reduces else tuple(DTYPES))
    choose("--op", op, tuple(OPERATORS))
    choose("--algorithm", algorithm, algorithm_names())
    setup = _setup(cards, options)
    members = cards or setup.shape.cards
    for name, number, most in (("--cards", members, setup.shape.cards), ("--root", root + 1,
                                                                         members)):
        if number > most:
            raise click.BadParameter(f"{setup.topology} has {most} cards to choose from",
                                     param_hint=name)
    if plot:
        from emu.traffic.plot import require_matplotlib

        with usage("--plot"):
            require_matplotlib()
    item = DTYPES[dtype].size
    blocks = 1 if kind.whole else members
    counts = _counts(minbytes, maxbytes, stepfactor, item, blocks)
    places = list(PLACES) if place == "both" else [place]
    rows: list[dict[str, Any]] = []
    with Stopwatch() as watch, setup.open(4 * counts[-1] * item) as machine:
        for count in counts:
            row: dict[str, Any] = {
                "size": count * item, "count": count, "type": dtype,
                "redop": op if kind.reduces else "none", "root": root if kind.rooted else -1}
            for name in places:
                request = Request(kind, count, dtype, op, algorithm, root, name == "in")
                row[name] = _measure(setup, machine, request, members)
            rows.append(row)
    measured = [row[name] for row in rows for name in places]
    mean = sum(each["busbw_GBps"] for each in measured) / len(measured)
    wrong = sum(each["wrong"] for each in measured)
    screen = setup.screen
    title = f"{kind} on {setup.topology}: {members} cards, {algorithm}"
    # A table for each place: both side by side are wider than a terminal.
    for name in places:
        screen.table(f"{title}, {PLACES[name]}",
                     [f"{column} {_UNITS.get(column, '')}".strip()
                      for column in (*_COLUMNS, *_RESULTS)],
                     [_cells(row, row[name]) for row in rows])
    screen.line(f"average bus bandwidth: {mean:.3f} GB/s")
    if plot:
        from .bench_plot import draw

        plot.write(draw(title, rows, {name: PLACES[name] for name in places}))
        screen.line(f"{plot.path}: time and bus bandwidth")
    screen.result({
        "collective": str(kind), "topology": setup.topology, "cards": members, "dtype": dtype,
        "algorithm": algorithm, "rows": rows, "busbw_mean_GBps": mean, "verified": not wrong,
        "wall_s": watch.seconds})
    if wrong:
        first = next(row["size"] for row in rows if any(row[name]["wrong"] for name in places))
        raise Failure(f"{wrong} values differ from the reference, first at {first} bytes")


def _setup(cards: int | None, options: dict[str, Any]) -> Machine:
    """The machine; of ``cards`` in a ring, if no topology is named."""
    if not options["topology"]:
        if cards is None:
            raise click.UsageError("no machine: accepted are --topology SPEC, or -g N for a ring")
        options["topology"] = f"ring:{cards}"
    return Machine(**options)


def _measure(setup: Machine, machine: Any, request: Request, members: int) -> dict[str, Any]:
    """The figures of one run."""
    before = _flits(machine)
    done = run_once(setup, machine, request, members)
    result = done.result
    size = request.count * DTYPES[request.dtype].size
    algbw = size / result.time_ns if result.time_ns else 0.0
    links = len(machine.topology.links)
    carried = _flits(machine) - before
    return {
        "algorithm": done.algorithm, "time_us": result.time_ns / 1000, "algbw_GBps": algbw,
        "busbw_GBps": algbw * bus_factor(request.kind, members),
        "wrong": done.verdict.mismatches, "cycles": result.cycles,
        "bound_cycles": result.bound_cycles, "efficiency": result.efficiency,
        "wire_utilization": carried / (links * result.cycles) if links and result.cycles else None}


def _flits(machine: Any) -> int:
    """Flits that all links have carried."""
    return sum(link.flits for link in machine.backend.link_statistics())


def _cells(row: dict[str, Any], found: dict[str, Any]) -> list[str]:
    efficiency, wire = found["efficiency"], found["wire_utilization"]
    return [str(row["size"]), str(row["count"]), row["type"], row["redop"], str(row["root"]),
            found["algorithm"], f"{found['time_us']:.3f}", f"{found['algbw_GBps']:.2f}",
            f"{found['busbw_GBps']:.2f}", str(found["wrong"]), f"{found['cycles']:,}",
            f"{found['bound_cycles']:,}", "-" if efficiency is None else f"{efficiency:.3f}",
            "-" if wire is None else f"{wire:.3f}"]


def _counts(smallest: int, largest: int, factor: int, item: int, blocks: int) -> list[int]:
    """Elements of each size, rounded down to whole blocks as nccl-tests does.

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
    return list(dict.fromkeys(size // item // blocks * blocks for size in sizes))
