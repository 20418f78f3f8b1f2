"""A profile accounts for all of the time, counts what was counted before, and changes nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from emu.profile import profile_of

from .cli.invoke import invoke
from .machines import MACHINES


def run(machine, **options):
    """Run the workload; return the event log, what it cost, and its profile if there is one."""
    driver, fabric = machine.open(3, event_log=True, **options)
    try:
        machine.workload(driver)
        log = fabric.event_log()
        return log, fabric.statistics(), profile_of(fabric) if options.get("profile") else None
    finally:
        fabric.close()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["toy", "mixed"])
def test_parts_add_up_and_no_event_changes(name, threads):
    machine = MACHINES[name]
    log, *_ = run(machine)
    profiled, spent, found = run(machine, profile=True, threads=threads)
    assert np.array_equal(log, profiled)
    assert found.seconds == spent.wall_s > 0
    parts = sum(found.work.values()) + sum(tile.seconds for tile in found.tiles.values())
    assert parts == pytest.approx(found.seconds, rel=0.02)
    assert set(found.work) == {"links", "host", "memory", "streams", "windows", "waiting"}
    assert min(found.work.values()) >= 0
    evaluations = sum(int(counts.sum()) for counts in spent.evaluations)
    assert sum(tile.evaluations for tile in found.tiles.values()) == evaluations
    stepped = spent.stepped.sum() / (spent.cycles * len(spent.stepped))
    assert found.skipped == pytest.approx(1 - float(stepped))
    assert found.windows > spent.cycles * (1 - found.skipped) / machine.latency / 3


def test_kinds_of_tiles_are_told_apart():
    *_, found = run(MACHINES["mixed"], profile=True, threads=1)
    assert set(found.tiles) == {"card network", "card compute", "switch switch"}
    assert all(tile.evaluations for tile in found.tiles.values())
    assert found.tiles["card network"].seconds > 0 < found.tiles["card network"].ns


def test_what_costs_more_shows_more():
    """Without skipping, every tile is evaluated in every cycle, and little else is done."""
    machine = MACHINES["toy"]
    *_, found = run(machine, profile=True, threads=1, skip_idle=False)
    assert found.skipped == 0
    spent = sum(tile.seconds for tile in found.tiles.values())
    assert spent > 0.2 * (found.seconds - found.work["waiting"])


def test_a_flat_design_has_no_profile():
    with pytest.raises(ValueError, match="a flat design has no profile"):
        MACHINES["toy"].open(2, flat=True, profile=True)


def test_the_command_line_tells_where_time_went(capsys):
    line = "run p2p --topology ring:3 --preset small --bytes 16K --profile"
    outcome = invoke(capsys, f"{line} --json -")
    assert outcome.status == 0, outcome.err
    found = json.loads(outcome.out)["profile"]
    assert set(found["parts"]) == {"build", "schedule", "python", "verify", "links", "host",
                                   "memory", "streams", "windows", "waiting"}
    assert set(found["tiles"]) == {"card network", "card compute"}
    total = sum(found["parts"].values()) + sum(
        tile["seconds"] for tile in found["tiles"].values())
    assert total == pytest.approx(found["wall_s"]) and found["engine_s"] < total
    assert sum(tile["share"] for tile in found["tiles"].values()) < 1
    outcome = invoke(capsys, line)
    assert outcome.status == 0 and "tile: card network" in outcome.out
    assert "of the cycles of nodes were skipped" in outcome.out
