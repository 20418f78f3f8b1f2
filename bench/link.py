"""The reliable link over noise: what it costs, and that it loses nothing.

    python -m bench.link [--flits 1e8] [--keep FILE] [--plot FILE] [--page FILE]

Two link testers (``hdl/link/tester.py``) send flits to each other over one cable on the engine,
with bit errors that strike words with a given probability p: anywhere in the word, in acks or
credits alone, and in bursts. Every flit is checked; the table sets what was counted beside the
formulas.

Go-back-N at full rate over a link of latency L: a word that is refused costs all flits from its own
to the last one before the replay. Refused in cycle t, it was sent in t − 1 − L; the request is made
in t + 1, is heard in t + 2 + L, and the first flit goes again in t + 4 + L: 2 L + 5 flits in all.
Words of these that err too ask for nothing, being of a turn that is over. So a turn has (1 − p) / p
good flits on average, and each new flit

* is sent again (2 L + 5) p / (1 − p) times,
* in a link that carries new flits in the share 1 / (1 + (2 L + 5) p / (1 − p)) of its cycles.

Hits are binomial, and replays negative binomial: σ is how many of their standard deviations what
was counted lies above the formula. More than three in any row end the run with an error, once the
table is written.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import expm1, log1p, sqrt
from pathlib import Path

from emu.fabric import Fabric, NodeKind
from emu.faults import BitErrors, Faults
from hdl.link.tester import REGISTERS, LinkTester, LinkTesterParams
from hdl.params import LinkParams
from hdl.topology import Link

__all__ = ["PARAMS", "Direction", "bit_rate", "deviations", "resends", "run_campaign",
           "throughput"]

PARAMS = LinkParams(reliable=True)
_LINKS = (Link(0, 0, 1, 0), Link(1, 0, 0, 0))
_QUANTUM = 64


@dataclass(frozen=True)
class Direction:
    """What came of one direction of a link."""

    sent: int
    received: int
    lost: int
    doubled: int
    corrupted: int
    overflow: int
    replays: int
    refused: int
    hit: int
    #: Words that left, and those that were struck.
    words: int
    struck: int
    #: From the first flit that arrived to the last.
    cycles: int
    down: bool

    @property
    def clean(self) -> bool:
        """Every flit arrived once, in order, unharmed, and had room."""
        return (self.received == self.sent and not self.down
                and not (self.lost or self.doubled or self.corrupted or self.overflow))

    @property
    def throughput(self) -> float:
        return (self.received - 1) / max(1, self.cycles)


def bit_rate(word_rate: float, params: LinkParams, fields: str = "all") -> float:
    """The bit error rate at which a word errs with probability ``word_rate``."""
    bits = sum(width for _, width in BitErrors(rate=0, fields=fields).bits(params))
    return -expm1(log1p(-word_rate) / bits)


def resends(word_rate: float, latency: int) -> float:
    """Times that a flit is sent again, on average, by the formula."""
    return (2 * latency + 5) * word_rate / (1 - word_rate)


def throughput(word_rate: float, latency: int) -> float:
    """New flits per cycle by the formula."""
    return 1 / (1 + resends(word_rate, latency))


def deviations(found: Sequence[Direction], word_rate: float, latency: int) -> tuple[float, float]:
    """Standard deviations by which hits and resends, of all directions together, exceed those of
    the formulas, for independent errors at full rate."""
    flits = sum(each.received for each in found)
    turn = 2 * latency + 5
    hits = sum(each.hit for each in found) - flits * word_rate
    again = sum(each.replays for each in found) - flits * resends(word_rate, latency)
    return (hits / sqrt(flits * word_rate * (1 - word_rate)),
            again / turn / sqrt(flits * word_rate) * (1 - word_rate))


def run_campaign(flits: int, errors: BitErrors | None, *, params: LinkParams = PARAMS,
                 both: bool = True, seed: int = 1, send_rate: int = 256, free_rate: int = 256,
                 latency: int | None = None) -> tuple[Direction, ...]:
    """Send ``flits`` in each direction (only from node 0, unless ``both``) and wait for them.

    Raises
    ------
    RuntimeError
        If they do not arrive.
    """
    kind = NodeKind("link tester", (("tester", LinkTester),), LinkTesterParams(link=params))
    cycles = latency or params.latency
    fabric = Fabric([kind, kind], _LINKS, latency=[cycles, cycles], quantum=_QUANTUM, seed=seed,
                    faults=Faults(errors=errors))
    try:
        fabric.start()
        counts = [flits, flits if both else 0]
        fabric.advance(_QUANTUM)
        for node, count in enumerate(counts):
            for name, value in (("seed", seed), ("send_rate", send_rate),
                                ("free_rate", free_rate), ("count", count)):
                fabric.host_write(node, REGISTERS[name], value)
        conditions = [(1 - node, count) for node, count in enumerate(counts) if count]
        deadline = fabric.cycle + 1000 * flits + 100_000
        fabric.run(conditions, deadline)
        # A flit too many would show now.
        fabric.advance(8 * params.refresh)
        names = list(REGISTERS)
        values = fabric.host_read_many([(node, REGISTERS[name]) for node in (0, 1)
                                        for name in names])
        found = [dict(zip(names, values[at:at + len(names)], strict=True))
                 for at in (0, len(names))]
        if [found[1 - node]["received"] for node in (0, 1)] != counts:
            raise RuntimeError(f"not all of {counts} flits arrived: {found}")
        directions = []
        for source, link in enumerate(fabric.link_statistics()):
            here, there = found[source], found[1 - source]
            directions.append(Direction(
                sent=here["sent"], replays=here["replays"],
                **{name: there[name] for name in ("received", "lost", "doubled", "corrupted",
                                                  "overflow", "refused", "hit")},
                words=link.words, struck=link.corrupted, cycles=there["last"] - there["first"],
                down=bool((here["state"] | there["state"]) & 1)))
        return tuple(directions)
    finally:
        fabric.close()


@dataclass(frozen=True)
class Run:
    """One row of the table."""

    #: Probability that a word errs.
    word_rate: float
    #: Which bits may err.
    fields: str = "all"
    #: Words that err together.
    burst: int = 1
    seed: int = 1


RUNS: tuple[Run, ...] = (
    *(Run(rate) for rate in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)),
    *(Run(rate, fields, seed=seed) for seed, fields in ((2, "acks"), (3, "credits"))
      for rate in (1e-4, 1e-2)),
    *(Run(rate, burst=64, seed=4) for rate in (1e-4, 1e-2)),
)
_COLUMNS = ("word errs", "bits", "words", "flits", "lost, doubled, corrupted, overflow",
            "first sends hit", "expected", "σ", "sent again", "formula", "σ",
            "flits per cycle", "formula")


def row(run: Run, found: Sequence[Direction], latency: int) -> list[str]:
    """One row of the table: both directions together."""
    flits = sum(direction.received for direction in found)
    wrong = [sum(getattr(direction, name) for direction in found)
             for name in ("lost", "doubled", "corrupted", "overflow")]
    alone = run.burst == 1
    hits, again = (f"{each:+.1f}" if alone else "–"
                   for each in deviations(found, run.word_rate, latency))
    return [f"{run.word_rate:.0e}".replace("e-0", "e-"), run.fields, str(run.burst), f"{flits:,}",
            ", ".join(map(str, wrong)), f"{sum(direction.hit for direction in found):,}",
            f"{flits * run.word_rate:,.0f}" if alone else "–", hits,
            f"{sum(direction.replays for direction in found) / flits:.4%}",
            f"{resends(run.word_rate, latency):.4%}" if alone else "–", again,
            f"{sum(direction.throughput for direction in found) / len(found):.5f}",
            f"{throughput(run.word_rate, latency):.5f}" if alone else "–"]


def check(run: Run, found: Sequence[Direction], latency: int) -> None:
    """Raise RuntimeError unless all flits arrived as they should, at the cost of the formula."""
    if not all(each.clean for each in found):
        raise RuntimeError(f"flits were harmed: {found}")
    if run.burst == 1 and max(map(abs, deviations(found, run.word_rate, latency))) > 3:
        raise RuntimeError(f"not what the formulas say of {run}: {found}")


def plot(results: Sequence[tuple[Run, Sequence[Direction]]], latency: int) -> str:
    """Return an SVG: throughput over the word error probability, beside the formula."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    rates = [10 ** (-6 + step / 20) for step in range(86)]
    axes.semilogx(rates, [throughput(rate, latency) for rate in rates], color="gray",
                  label=f"formula, link of {latency} cycles")
    for (fields, burst), mark in zip(dict.fromkeys((run.fields, run.burst) for run, _ in results),
                                     "ox+sdv^", strict=False):
        points = [(run.word_rate, sum(each.throughput for each in found) / len(found))
                  for run, found in results if (run.fields, run.burst) == (fields, burst)]
        axes.semilogx(*zip(*points, strict=True), mark, fillstyle="none", label=(
            "errors in all bits" if fields == "all" else f"errors in {fields}")
            + (f", {burst} words in a row" if burst > 1 else ""))
    axes.set(xlabel="probability that a word errs", ylabel="new flits per cycle", ylim=(0, 1.05))
    axes.legend()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.link", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flits", type=float, default=1e8, metavar="N",
                        help="of each run, both directions together (default 1e8)")
    parser.add_argument("--keep", type=Path, metavar="FILE",
                        help="JSON of the results; runs that it has are not repeated")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG; needs matplotlib")
    parser.add_argument("--page", type=Path, metavar="FILE",
                        help="write the table there between <!-- bench: link --> and <!-- end -->")
    options = parser.parse_args(arguments)
    kept = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else []
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    print("\n".join(lines), flush=True)
    results = []
    for run in RUNS:
        flits = int(options.flits / 2)
        what = asdict(run) | {"flits": flits}
        known = next((each for each in kept if each["run"] == what), None)
        if known is None:
            rate = bit_rate(run.word_rate, PARAMS, run.fields)
            start = time.perf_counter()
            found = run_campaign(flits, BitErrors(rate=rate, fields=run.fields, burst=run.burst),
                                 params=PARAMS, seed=run.seed)
            known = {"run": what, "wall_s": time.perf_counter() - start,
                     "directions": [asdict(each) for each in found]}
            kept.append(known)
            if options.keep:
                options.keep.write_text(json.dumps(kept, indent=1) + "\n")
        directions = [Direction(**each) for each in known["directions"]]
        lines.append(f"| {' | '.join(row(run, directions, PARAMS.latency))} |")
        print(lines[-1], flush=True)
        results.append((run, directions))
    if options.plot:
        options.plot.write_text(plot(results, PARAMS.latency))
    if options.page:
        table = "\n".join(lines)
        text, places = re.subn(r"(?s)(<!-- bench: link -->\n).*?(<!-- end -->)",
                               lambda match: f"{match[1]}\n{table}\n\n{match[2]}",
                               options.page.read_text())
        if not places:
            sys.exit(f"{options.page} has no place for the table")
        options.page.write_text(text)
    for run, directions in results:
        try:
            check(run, directions, PARAMS.latency)
        except RuntimeError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
