"""Waves show what a node did in every cycle, and a machine does the same with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pywellen

from emu.library import EventKind
from emu.waves import Waves, is_whole
from hdl.layouts import field_slices, link_word
from hdl.topology import parse

from .cli.invoke import invoke
from .machines import MACHINES, toy_params
from .test_exactness import assert_same, run

FIRST, LAST = 2, 700
#: In the file a cycle has ten units of time.
CYCLE = 10


def signal(path: Path, name: str) -> list[tuple[int, int]]:
    """(time, value) of every change of a signal."""
    variables = {each.full_name: each for each in pywellen.Waveform(str(path)).all_vars()}
    return [(time, int(value)) for time, value in variables[name].tv]


def by_cycle(changes: list[tuple[int, int]]) -> dict[int, int]:
    """The value in the middle of each cycle shown."""
    times = np.array([time for time, _ in changes])
    cycles = range(FIRST, LAST + 1)
    places = np.searchsorted(times, np.array(cycles) * CYCLE + CYCLE // 2, "right") - 1
    return {cycle: changes[place][1] for cycle, place in zip(cycles, places, strict=True)}


@pytest.fixture(scope="module", params=["toy", "mixed"])
def shown(request: Any, tmp_path_factory: Any) -> Any:
    """A machine, its run without waves and with waves of node 1, and the folder of these."""
    machine, folder = MACHINES[request.param], tmp_path_factory.mktemp("waves")
    return (run(machine, 3), run(machine, 3, waves=Waves((1,), FIRST, LAST, folder)), folder)


def test_waves_change_no_event(shown):
    without, with_waves, folder = shown
    assert_same(without, with_waves)
    assert sorted(path.name for path in folder.iterdir()) == [
        "card-1-compute.fst", "card-1-network.fst"]


def test_every_word_on_the_links_shows_in_its_cycle_and_no_other(shown):
    (log, *_), _, folder = shown
    params = toy_params().link
    fields, path = field_slices(link_word(params)), folder / "card-1-network.fst"
    control = params.flit_bits
    seen = 0
    for port in (0, 1):
        events = log[(log["node"] == 1) & (log["port"] == port) & (log["kind"] == EventKind.LINK)
                     & (log["cycle"] >= FIRST) & (log["cycle"] <= LAST)]
        logged = dict(zip(events["cycle"].tolist(), events["value"].tolist(), strict=True))
        words = by_cycle(signal(path, f"$rootio.links__{port}__tx"))
        strobe = 1 << fields["strobe"][0]
        assert {cycle for cycle, word in words.items() if word & strobe} == set(logged)
        for cycle, value in logged.items():
            for name in ("valid", "head", "tail", "vc"):
                first, width = fields[name]
                mask = (1 << width) - 1
                if name == "valid" or words[cycle] >> fields["valid"][0] & 1:
                    assert value >> first - control & mask == words[cycle] >> first & mask
        seen += len(logged)
    assert seen > 20


def test_requests_to_memory_and_the_host_show_in_their_cycles(shown):
    (log, *_), _, folder = shown
    path = folder / "card-1-network.fst"
    mine = log[(log["node"] == 1) & (log["cycle"] >= FIRST) & (log["cycle"] <= LAST)]
    valid = by_cycle(signal(path, "$rootio.host__valid"))
    address = by_cycle(signal(path, "$rootio.host__address"))
    operations = mine[np.isin(mine["kind"], [EventKind.HOST_WRITE, EventKind.HOST_READ])]
    assert {cycle: address[cycle] for cycle, level in valid.items() if level} == dict(
        zip(operations["cycle"].tolist(), operations["value"].tolist(), strict=True))
    assert len(operations)


def test_now_is_the_cycle_and_the_clock_rises_where_a_cycle_begins(shown):
    *_, folder = shown
    path = folder / "card-1-network.fst"
    now = signal(path, "$rootio.now")
    assert now[0] == (CYCLE * FIRST, FIRST)
    assert all(time == CYCLE * value for time, value in now)
    clock = signal(path, "$rootio.clk")
    assert all(time % CYCLE == (0 if level else CYCLE // 2) for time, level in clock)
    # Asleep in some cycles, awake in others: what is not evaluated does not show as a clock.
    assert 20 < sum(level for _, level in clock) < LAST - FIRST


def test_a_sleep_shows_empty_inputs_from_its_first_cycle_on(shown):
    *_, folder = shown
    path = folder / "card-1-network.fst"
    params = toy_params().link
    strobe = field_slices(link_word(params))["strobe"][0]
    awake = {time // CYCLE for time, level in signal(path, "$rootio.clk") if not level}
    for port in (0, 1):
        words = by_cycle(signal(path, f"$rootio.links__{port}__rx"))
        assert not [cycle for cycle, word in words.items()
                    if word >> strobe & 1 and cycle not in awake]
        assert any(word >> strobe & 1 for word in words.values())
    # A register write leaves the tile asleep: only the picture of its sleep takes it back.
    driven = {cycle for cycle, level in by_cycle(signal(path, "$rootio.host__valid")).items()
              if level}
    assert driven and driven <= awake


def test_a_file_that_is_not_whole_is_known(shown, tmp_path):
    *_, folder = shown
    whole = (folder / "card-1-network.fst").read_bytes()
    path = tmp_path / "part.fst"
    for length in (0, 5, 200, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:length])
        assert is_whole(path) == (length == len(whole))


def test_waves_that_end_early_are_closed_and_kept(tmp_path):
    machine = MACHINES["toy"]
    waves = Waves((0, 1), 10, 10_000_000 - 1, tmp_path)
    backend, fabric = machine.open(3, waves=waves)
    fabric.advance(100)
    assert all(path.name.endswith(".partial") for path in tmp_path.iterdir())
    paths = fabric.finish_waves()
    assert len(paths) == 4 and set(paths) == set(tmp_path.iterdir())
    assert all(is_whole(path) for path in paths)
    assert signal(paths[0], "$rootio.now")[0] == (10 * CYCLE, 10)
    machine.workload(backend)
    fabric.close()
    assert set(tmp_path.iterdir()) == set(paths)


def test_waves_of_cycles_that_do_not_come_leave_no_file(tmp_path):
    _, fabric = MACHINES["toy"].open(2, waves=Waves((0,), 1 << 40, 1 << 40, tmp_path))
    fabric.advance(100)
    assert fabric.finish_waves() == []
    fabric.close()
    assert not list(tmp_path.iterdir())


def test_a_switch_can_be_named():
    shape = parse("clos:4x2")
    assert Waves.parse("s1,2@5-9", shape).nodes == (shape.cards + 1, 2)


@pytest.mark.slow
def test_a_run_of_cards_writes_waves_and_has_the_same_cycles(tmp_path, capsys):
    line = "run allreduce --topology ring:3 --preset small --bytes 1K --json -"
    results = [json.loads(invoke(capsys, line + more).out) for more in (
        "", f" --waves 1@100-300 --waves-dir {tmp_path}")]
    assert results[0]["cycles"] == results[1]["cycles"] and results[1]["verified"]
    names = {each.full_name for each in pywellen.Waveform(
        str(tmp_path / "card-1-network.fst")).all_vars()}
    assert "network.nic.control.scheduler.awaiting" in names
    assert any(name.startswith("network.router.") and name.endswith(".vc") for name in names)
