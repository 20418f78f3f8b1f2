"""What a terminal shows of a run: where it is, how fast, how long yet; and nothing elsewhere."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

import emu
from emu.cli import machine as machines
from emu.cli import meter as meters
from emu.cli.status import silent, terminal

from .fake import FakeSuperNode
from .invoke import invoke


class Clock:
    now = 100.0

    def perf_counter(self) -> float:
        return self.now


class Nodes:
    """In place of a fabric."""

    watcher: Callable[[int], None] | None = None
    cycle, nodes, active = 0, 8, 3

    def step(self, clock: Clock, seconds: float, cycles: int) -> None:
        clock.now += seconds
        self.cycle += cycles
        assert self.watcher is not None
        self.watcher(self.cycle)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meters, "time", clock)
    return clock


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal gets."""
    text = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")  # where there is none, nothing moves
    console = Console(force_terminal=True, file=text, width=140, color_system=None)
    monkeypatch.setattr(meters, "terminal", lambda: console)
    return text


def frames(text: io.StringIO) -> list[str]:
    """Lines with figures, in the order in which they were drawn."""
    return re.findall(r"cycle [^\n\r\x1b]*", text.getvalue())


def test_a_meter_tells_cycle_activity_speed_and_time_left(clock: Clock,
                                                          shown: io.StringIO) -> None:
    nodes = Nodes()
    with meters.meter("a run", lambda: nodes) as meter:
        nodes.step(clock, 1, 1000)
        meter.expect(100_000, "at least")
        for _ in range(3):
            nodes.step(clock, 1, 20_000)
        meter.rename("draining")
        nodes.step(clock, 1, 60_000)
    assert nodes.watcher is None
    first, *_, fourth, last = dict.fromkeys(frames(shown))
    assert first.split("  ") == ["cycle 1,000", "3 of 8 active"]
    assert fourth.split("  ") == ["cycle 61,000", "3 of 8 active", "20k cycles/s",
                                  "160k card-cycles/s", "at least 0:00:02 left"]
    # The goal is behind it: nobody knows what is left.
    assert last.split("  ") == ["cycle 121,000", "3 of 8 active", "30k cycles/s",
                                "240k card-cycles/s"]
    assert "a run" in shown.getvalue() and "draining" in shown.getvalue()


def test_speed_is_that_of_the_last_two_seconds(clock: Clock, shown: io.StringIO) -> None:
    nodes = Nodes()
    with meters.meter("a run", lambda: nodes):
        for _ in range(40):
            nodes.step(clock, 0.25, 10_000)
        for _ in range(8):
            nodes.step(clock, 0.25, 25)
    assert "40k cycles/s" in shown.getvalue()
    assert frames(shown)[-1].split("  ")[2] == "100 cycles/s"


def test_a_meter_draws_four_times_a_second_however_often_it_looks(
        clock: Clock, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw = meters.Meter._draw
    monkeypatch.setattr(meters.Meter, "_draw",
                        lambda self, cycle: drawn.append(cycle) or draw(self, cycle))
    nodes = Nodes()
    with meters.meter("a run", lambda: nodes):
        for _ in range(2048):
            nodes.step(clock, 1 / 1024, 1)
    assert len(drawn) == 8


@pytest.mark.slow
def test_a_meter_costs_less_than_half_a_percent_of_a_processor(
        clock: Clock, shown: io.StringIO) -> None:
    nodes, drawings = Nodes(), 400
    with meters.meter("running on torus:16x16x32", lambda: nodes) as meter:
        meter.expect(10_000_000, "at least")
        nodes.step(clock, 1, 1000)
        start = time.process_time()
        for _ in range(drawings):
            nodes.step(clock, meters.INTERVAL_S, 1000)
        spent = time.process_time() - start
    assert len(frames(shown)) > drawings
    print(f"{spent / drawings * 1e6:.0f} µs per drawing")
    assert spent / drawings < 0.005 * meters.INTERVAL_S


def test_elsewhere_nothing_is_looked_at(capsys: Any) -> None:
    def forbidden() -> Any:
        raise AssertionError("nobody sees it")
    with meters.meter("a run", forbidden) as meter:
        meter.expect(10, "about")
        meter.rename("another")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_may_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert terminal() is not None
    with silent():
        assert terminal() is None
    assert terminal() is not None


@pytest.mark.parametrize(("line", "nodes"), [
    ("run allreduce --topology ring:3 --preset small --bytes 4K", 3),
    ("run p2p --topology ring:3 --preset small --bytes 4K", 3),
    ("traffic --topology mesh:4x4 --preset booksim --rate 0.2 --cycles 2000", 16)])
def test_runs_of_the_machine_are_shown_and_their_json_is_pure(
        line: str, nodes: int, shown: io.StringIO, capsys: Any) -> None:
    outcome = invoke(capsys, f"{line} --json -")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["verified"] is True
    assert frames(shown)
    for frame in frames(shown):
        active = re.match(rf"cycle [\d,]+  (\d+) of {nodes} active", frame)
        assert active and int(active[1]) <= nodes


def test_the_demo_tells_its_phases(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, str | None]] = []
    monkeypatch.setattr(emu, "open", FakeSuperNode.open)
    monkeypatch.setattr("emu.cli.demo.WIDTHS", (64, 12, 10))
    monkeypatch.setattr(machines.Timed, "expect",
                        lambda self, cycles, title=None: heard.append((cycles, title)))
    outcome = invoke(capsys, "demo --topology ring:3 --json -")
    phases = json.loads(outcome.out)["phases"]
    assert heard == [(phase["bound_cycles"], phase["name"]) for phase in phases]


def test_active_nodes_are_those_that_step_next() -> None:
    with emu.open("ring:3", preset="small", memory_bytes=1 << 20, threads=1) as machine:
        fabric = machine.backend.fabric  # type: ignore[attr-defined]
        fabric.advance(10 * machine.params.host_quantum)
        assert fabric.nodes == 3 and fabric.active == 0
        arrays = [machine.malloc(64, "f32", card) for card in range(2)]
        handle = machine.allreduce(arrays)
        seen = set()
        for _ in range(40):
            active, before = fabric.active, fabric.statistics().stepped
            fabric.advance(1)
            stepped = int((fabric.statistics().stepped > before).sum())
            assert active <= stepped and (active == 0) == (stepped == 0)
            seen.add(active)
        handle.wait()
    assert {0, 2} <= seen
