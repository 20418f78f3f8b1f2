"""The trace of an AllReduce over 64 cards: whole, consistent, and of the cycles that are reported.

The Perfetto package's trace processor is a program that the package downloads; where there is one
(``trace_processor_shell`` on the PATH), the same is asked of it in SQL.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.cli.main import cli

from .parsed import parse

CARDS = 64


def record(folder: Path, size: str, machine: str) -> SimpleNamespace:
    """Run an AllReduce with a trace and a table of events."""
    files = SimpleNamespace(trace=folder / "a.pftrace", events=folder / "a.npz",
                            json=folder / "a.json", links=folder / "links.csv")
    cli.main(["run", "allreduce", *machine.split(), "--bytes", size, "--trace", str(files.trace),
              "--events", str(files.events), "--json", str(files.json), "--links",
              str(files.links), "--threads", "2"],
             standalone_mode=False)
    files.result = json.loads(files.json.read_text())
    files.parsed = parse(files.trace)
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]
    return files


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    return record(tmp_path_factory.mktemp("trace"), "1K",
                  f"--topology ring:{CARDS} --preset small --algorithm dimensions")


def check(run: Any) -> None:
    """What must hold of every trace."""
    trace = run.parsed
    by_track = defaultdict(list)
    for each in trace.slices:
        assert each.begin <= each.end
        by_track[each.process, each.track].append(each)
    for spans in by_track.values():
        spans.sort(key=lambda each: (each.begin, each.end))
        assert all(a.end <= b.begin for a, b in pairwise(spans))
    # From the first doorbell to the last completion; a card is always in one phase meanwhile.
    busy = [span for card in range(CARDS) for span in trace.of(f"card {card}", "card")]
    assert max(span.end for span in busy) - min(span.begin for span in busy) == (
        run.result["cycles"])
    assert {span.process for span in busy} == {f"card {card}" for card in range(CARDS)}
    for span in busy:
        phases = [each for each in trace.of(span.process, "phase")
                  if span.begin <= each.begin < span.end]
        assert phases[0].begin == span.begin and phases[-1].end == span.end
        assert all(a.end == b.begin for a, b in pairwise(phases))
        commands = [each for each in trace.slices if each.process == span.process
                    and each.track.startswith("slot ")]
        covered = np.zeros(span.end - span.begin, bool)
        for each in commands:
            covered[each.begin - span.begin:each.end - span.begin] = True
        assert covered.sum() == sum(each.end - each.begin for each in phases
                                    if each.name == "work")
    # Every packet's way goes from link to link, from its source to its target.
    ways = defaultdict(list)
    for each in trace.slices:
        for flow in (*each.flows, *each.arrivals):
            ways[flow].append(each)
    for stretches in ways.values():
        *hops, arrival = sorted(stretches, key=lambda each: each.begin)
        assert hops[0].process == f"card {hops[0].details['from']}" and arrival.arrivals
        assert arrival.process == f"card {arrival.details['to']}"
        assert all(hop.flows and not hop.arrivals for hop in hops)
        for hop, after in pairwise((*hops, arrival)):
            assert f"to {after.process}," in hop.track and hop.begin < after.begin
            assert hop.details == after.details
    assert len(ways) == sum(bool(each.arrivals) for each in trace.slices)


def test_the_trace_of_64_cards_tells_the_reported_cycles(run: Any) -> None:
    assert run.result["verified"]
    check(run)


def test_links_carry_the_flits_of_their_packets(run: Any) -> None:
    flits: Counter[tuple[str, str]] = Counter()
    for each in run.parsed.slices:
        if each.flows:
            lanes = each.details["address"] % 32 + each.details["bytes"]
            payload = 0 if each.name == "RESPONSE" else -(-lanes // 32)
            port = each.track.split("port ")[1].split()[0]
            flits[each.process, port] += 1 + payload
    rows = [row.split(",") for row in run.links.read_text().splitlines()]
    columns = {name: place for place, name in enumerate(rows[0])}
    told = {(row[0], row[columns["port"]]): int(row[columns["flits"]]) for row in rows[1:]}
    assert len(told) == 2 * CARDS
    assert {place: count for place, count in told.items() if count} == dict(flits)


def test_the_table_of_events_has_a_row_for_every_span(run: Any) -> None:
    table = np.load(run.events)
    rows = Counter(zip(table["node"].tolist(), table["track"].tolist(), table["begin"].tolist(),
                       table["end"].tolist(), table["event"].tolist(), strict=True))
    assert rows == Counter((each.process, each.track, each.begin, each.end, each.name)
                           for each in run.parsed.slices)


def test_flits_that_are_sent_again_make_no_packets_and_no_queues(tmp_path: Path) -> None:
    trace, figures = tmp_path / "a.pftrace", tmp_path / "a.json"
    cli.main(["run", "allreduce", "--topology", "ring:4", "--preset", "small", "--bytes", "8K",
              "--ber", "3e-5", "--trace", str(trace), "--json", str(figures), "--links",
              str(tmp_path / "links.csv")], standalone_mode=False)
    result = json.loads(figures.read_text())
    assert result["replays"] > 0
    ways = defaultdict(list)
    for each in parse(trace).slices:
        for flow in (*each.flows, *each.arrivals):
            ways[flow].append(bool(each.arrivals))
    # At most two links lead to any card of the ring.
    assert ways and all(way.count(True) == 1 and 1 <= way.count(False) <= 2
                        for way in ways.values())
    assert all(0 < link["queue_most"] < 48 for link in result["links"])


SPANS = """
select p.name as process, t.name as track, s.name as name, s.ts as begin, s.dur as dur
from slice s join process_track t on s.track_id = t.id join process p using (upid)
"""


def test_the_trace_processor_finds_the_same(run: Any) -> None:
    program = shutil.which("trace_processor_shell")
    if program is None:
        pytest.skip("no trace_processor_shell on the PATH")
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=str(run.trace),
                        config=TraceProcessorConfig(bin_path=program)) as processor:
        rows = Counter((row.process, row.track, row.begin, row.begin + row.dur, row.name)
                       for row in processor.query(SPANS))
        flows, = processor.query("select count(distinct trace_id) as n from flow")
        wrong, = processor.query(
            "select sum(value) as n from stats where severity = 'error'")
    assert not wrong.n
    assert rows == Counter((each.process, each.track, each.begin, each.end, each.name)
                           for each in run.parsed.slices)
    assert flows.n == sum(bool(each.arrivals) for each in run.parsed.slices)


@pytest.mark.slow
def test_the_trace_of_64_kib_stays_below_50_mb(tmp_path: Path) -> None:
    run = record(tmp_path, "64K", "--topology torus:4x4x4")
    assert run.trace.stat().st_size < 50e6
    check(run)
