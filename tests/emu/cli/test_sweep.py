"""``supernode sweep``: the runs of ``supernode run``, once each, in a table always whole."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from filelock import FileLock
from pyarrow import parquet
from rich.console import Console

import emu
import emu.fabric  # has its own `make` before one is put in place of it
import emu.kinds
import emu.sweep

from .fake import FakeSuperNode
from .invoke import Outcome, invoke

GRID = """
[sweep]
workload = "allreduce"
preset = "small"
[sweep.grid]
topology = ["ring:2", "ring:3", "mesh:2x2"]
bytes = ["4K", 12]
[[sweep.point]]
topology = "ring:3"
bytes = 4096
[[sweep.point]]
topology = "ring:5"
dtype = "bf16"
fail = ["0:+x@70"]
bytes = 1024
"""
#: Six of the grid and the second point: the first one says in other words what the grid has.
RUNS = 7

Sweep = Callable[..., Outcome]


class Machines:
    """Machines that were opened, in numpy; those of ``wrong`` topologies give wrong results."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.built: list[Any] = []
        self.wrong: set[str] = set()
        #: Runs after which somebody interrupts.
        self.patience = 1000

    def open(self, spec: str, **options: Any) -> FakeSuperNode:
        if len(self.opened) == self.patience:
            raise KeyboardInterrupt
        self.opened.append(spec)
        assert self.built
        return FakeSuperNode.open(spec, **options, flip=spec in self.wrong)

    @contextmanager
    def here(self, workers: int, scheduler: str | None) -> Iterator[Any]:
        """In place of processes: one run after the other."""
        yield lambda function, jobs: ([(index, function(*job))] for index, job in enumerate(jobs))


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    made = Machines()
    monkeypatch.setattr(emu, "open", made.open)
    monkeypatch.setattr(emu.sweep, "processes", made.here)
    monkeypatch.setattr(emu.kinds, "make", lambda kinds, *_, **__: made.built.append(kinds))
    return made


@pytest.fixture
def sweep(capsys: Any, tmp_path: Path) -> Sweep:
    def run(options: str, text: str = GRID) -> Outcome:
        (tmp_path / "sweep.toml").write_text(text)
        return invoke(capsys, f"sweep {tmp_path}/sweep.toml {options}")
    return run


def rows(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return found


def test_every_row_is_what_run_gives(sweep: Sweep, machines: Machines, tmp_path: Path,
                                     capsys: Any) -> None:
    outcome = sweep(f"-o {tmp_path}/t.parquet --json -")
    assert (outcome.status, outcome.err) == (0, "")
    summary = json.loads(outcome.out)
    assert (summary["runs"], summary["ran"], summary["failed"]) == (RUNS, RUNS, 0)
    assert summary["verified"] is True and summary["file"] == f"{tmp_path}/t.parquet"
    table = rows(tmp_path / "t.parquet")
    assert [row["topology"] for row in table] == machines.opened
    # Rings of two cards and of more have one number of ports, meshes another one.
    assert len(machines.built) == 2
    assert len(table) == RUNS
    for row in table:
        fail = "".join(f" --fail {each}" for each in json.loads(row["fail"]))
        alone = json.loads(invoke(capsys, "run allreduce --preset small --json - "
                                  f"--topology {row['topology']} --bytes {row['bytes']} "
                                  f"--dtype {row['dtype']}{fail}").out)
        del alone["wall_s"]
        assert {key: row[key] for key in alone} == alone
        assert row["error"] is None and row["version"]
        assert json.loads(row["parameters"])["bytes"] == row["bytes"]


def test_csv_and_parquet_hold_the_same(sweep: Sweep, machines: Machines, tmp_path: Path) -> None:
    found = []
    for kind in emu.sweep.KINDS:
        assert sweep(f"-o {tmp_path}/t{kind}").status == 0
        table = emu.sweep.Table(kind)
        table.load((tmp_path / f"t{kind}").read_bytes())
        found.append([{**row, "wall_s": None} for row in table.rows()])
    assert found[0] == found[1]
    with (tmp_path / "t.csv").open(newline="") as file:
        assert [int(row["cycles"]) for row in csv.DictReader(file)] == [1000] * RUNS


def test_runs_in_the_table_are_not_repeated(sweep: Sweep, machines: Machines,
                                            tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    assert sweep(f"-o {file}").status == 0
    whole = rows(file)
    machines.opened.clear()
    assert sweep(f"-o {file}").status == 0
    assert machines.opened == [] and rows(file) == whole
    # Of another version, or of another parameter, they are other runs.
    others = [{**row, "version": "0.0"} if row["topology"] == "ring:2" else row for row in whole]
    parquet.write_table(pa.Table.from_pylist(others), file)
    assert sweep(f"-o {file}").status == 0
    assert machines.opened == ["ring:2", "ring:2"]
    assert len(rows(file)) == RUNS + 2
    machines.opened.clear()
    assert sweep(f"-o {file}", GRID.replace("12]", "12, 16]")).status == 0
    assert sorted(machines.opened) == ["mesh:2x2", "ring:2", "ring:3"]
    machines.opened.clear()
    assert sweep(f"-o {file} --fresh").status == 0
    assert len(machines.opened) == len(rows(file)) == RUNS


def test_a_run_that_fails_is_recorded_and_the_others_go_on(
        sweep: Sweep, machines: Machines, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    machines.wrong = {"ring:3"}
    outcome = sweep(f"-o {file} --json -")
    assert outcome.status == 1
    assert f"2 of {RUNS} runs failed" in outcome.error and "--topology=ring:3" in outcome.error
    summary = json.loads(outcome.out)
    assert (summary["ran"], summary["failed"], summary["verified"]) == (RUNS, 2, False)
    assert [each["parameters"]["bytes"] for each in summary["failures"]] == [4096, 12]
    wrong = [row for row in rows(file) if row["error"] is not None]
    assert [(row["topology"], row["verified"], row["cycles"]) for row in wrong] == [
        ("ring:3", False, 1000)] * 2
    assert all("differ from the reference" in row["error"] for row in wrong)
    machines.opened.clear()
    # It stays in the table, and the sweep stays failed, until it is asked for again.
    assert sweep(f"-o {file}").status == 1 and machines.opened == []
    machines.wrong = set()
    assert sweep(f"-o {file} --retry").status == 0
    assert machines.opened == ["ring:3", "ring:3"] and len(rows(file)) == RUNS


def test_a_terminal_sees_how_many_runs_have_ended(
        sweep: Sweep, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")  # where there is none, nothing moves
    monkeypatch.setattr("emu.cli.sweep.terminal", lambda: Console(
        force_terminal=True, file=text, width=140, color_system=None))
    machines.wrong = {"ring:2"}
    assert sweep(f"-o {tmp_path}/t.csv").status == 1
    assert f"{RUNS}/{RUNS} runs, 2 failed" in text.getvalue()


def test_an_interrupt_leaves_a_whole_table_of_what_had_ended(
        sweep: Sweep, machines: Machines, tmp_path: Path) -> None:
    machines.patience = 3
    for file in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        machines.opened.clear()
        assert sweep(f"-o {file}").status == 130
        table = emu.sweep.Table(file.suffix)
        table.load(file.read_bytes())
        assert [row["topology"] for row in table.rows()] == machines.opened
        assert len(machines.opened) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep.toml", "t.csv", "t.parquet"]
    machines.patience = 1000
    machines.opened.clear()
    assert sweep(f"-o {tmp_path}/t.csv").status == 0
    assert len(machines.opened) == RUNS - 3


def test_a_dry_run_lists_and_does_nothing(sweep: Sweep, machines: Machines,
                                          tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    outcome = sweep(f"-o {file} --dry-run --json -")
    listed = json.loads(outcome.out)["runs"]
    assert outcome.status == 0 and len(listed) == RUNS
    assert {run["state"] for run in listed} == {"to run"}
    assert listed[-1]["topology"] == "ring:5" and listed[-1]["dtype"] == "bf16"
    assert not file.exists() and not machines.opened and not machines.built
    assert "ring:5" in sweep(f"-o {file} --dry-run").out
    machines.patience, machines.wrong = 2, {"ring:2"}
    sweep(f"-o {file}")
    states = [run["state"] for run in
              json.loads(sweep(f"-o {file} --dry-run --json -").out)["runs"]]
    assert states == ["failed", "failed", *["to run"] * (RUNS - 2)]


@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize(("old", "new", "named"), [
    ('"allreduce"', '"sort"', ["'sort'", "allreduce", "gemm", "p2p", "traffic"]),
    ("bytes = 1024", "size = 4", ["'size'", "bytes", "topology", "stall-rate"]),
    ("bytes = 1024", "json = 'x'", ["'json'"]),
    ("bytes = 1024", "bytes = 3", ["run 8 of 8", "--bytes", "3", "2 bytes"]),
    ("bytes = 1024", "bytes = '1.5K'", ["'1.5K'", "K, M or G"]),
    ("bytes = 1024", "bytes = [4]", ["'bytes' must be a text or a number", "[4]"]),
    ("bytes = 1024", "seed = -1", ["-1", "0<=x"]),
    ("bytes = 1024", "stall-rate = 1.5", ["--stall-rate", "1.5"]),
    ('["0:+x@70"]', '"0:+x@70"', ["'fail' must be a list", "'0:+x@70'"]),
    ('["0:+x@70"]', '["0:+y@70"]', ["--fail", "+y"]),
    ('"bf16"', '"f64"', ["'f64'", "f32", "bf16"]),
    ('"ring:5"', '"star:5"', ["'star:5'", "torus"]),
    ('"ring:5"', '"ring:999999"', ["ring:999999", "16"]),
    ('preset = "small"', 'preset = "huge"', ["'huge'", "small"]),
])
def test_a_bad_parameter_is_named_before_anything_runs(
        old: str, new: str, named: list[str], sweep: Sweep, tmp_path: Path) -> None:
    assert old in GRID
    outcome = sweep(f"-o {tmp_path}/t.csv", GRID.replace(old, new))
    assert outcome.status == 2 and outcome.out == ""
    for text in named:
        assert text in outcome.error
    assert not (tmp_path / "t.csv").exists()


@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize(("options", "named"), [
    ("", ["--output"]),
    ("-o {0}/t.txt", ["'t.txt'", ".parquet", ".csv"]),
    ("-o {0}/none/t.csv", ["cannot be written"]),
    ("-o {0}/t.csv --workers 0", ["0", "x>=1"]),
    ("-o {0}/t.csv --workers 2 --scheduler tcp://x:1", ["2", "--scheduler"]),
    ("-o {0}/foreign.csv", ["foreign.csv", "no result of a sweep", "--fresh"]),
    ("-o {0}/foreign.parquet", ["foreign.parquet", "not a parquet file", "--fresh"]),
])
def test_a_bad_option_is_named(options: str, named: list[str], sweep: Sweep,
                               tmp_path: Path) -> None:
    for name in ("foreign.csv", "foreign.parquet"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    outcome = sweep(options.format(tmp_path))
    assert outcome.status == 2 and outcome.out == ""
    for text in named:
        assert text in outcome.error
    assert (tmp_path / "foreign.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.usefixtures("machines")
def test_two_sweeps_do_not_write_one_table(sweep: Sweep, tmp_path: Path) -> None:
    with FileLock(tmp_path / ".t.csv.lock"):
        outcome = sweep(f"-o {tmp_path}/t.csv")
    assert outcome.status == 1 and "another sweep" in outcome.error


def test_two_processes_run_the_machine_itself(sweep: Sweep, tmp_path: Path) -> None:
    text = ('[sweep]\nworkload = "p2p"\npreset = "small"\ntopology = "ring:3"\nbytes = 64\n'
            'seeds = [1, 2]\n[[sweep.point]]\n[[sweep.point]]\nfail = ["0:+x@0", "1:+x@0"]\n'
            'source = 0\ntarget = 1\n')
    outcome = sweep(f"-o {tmp_path}/t.csv --workers 2 --json -", text)
    assert outcome.status == 1, outcome.err
    assert json.loads(outcome.out)["failed"] == 2
    table = emu.sweep.Table(".csv")
    table.load((tmp_path / "t.csv").read_bytes())
    by_error = sorted(table.rows(), key=lambda row: (bool(row["error"]), row["seed"]))
    assert [row["verified"] for row in by_error] == [True, True, None, None]
    assert all(row["cycles"] >= row["bound_cycles"] > 0 for row in by_error[:2])
    assert all("dead link" in row["error"] for row in by_error[2:])


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_a_whole_table_and_no_process(
        kill: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(
        '[sweep]\nworkload = "allreduce"\npreset = "small"\ntopology = "ring:3"\n'
        'seeds = [0, 1, 2, 3]\n[sweep.grid]\nbytes = ["64", "4M"]\n')
    table = tmp_path / "t.parquet"
    sweep = subprocess.Popen(
        [sys.executable, "-c", "from emu.cli import main; main()", "sweep",
         f"{tmp_path}/sweep.toml", "-o", str(table), "--workers", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    give_up = time.monotonic() + 120
    while not (table.exists() and len(rows(table)) == 4):
        assert sweep.poll() is None and time.monotonic() < give_up
        with suppress(subprocess.TimeoutExpired):
            sweep.wait(0.1)
    # The long ones are under way. A terminal interrupts all processes, a kill meets the first one.
    if kill == signal.SIGINT:
        os.killpg(sweep.pid, kill)
    else:
        sweep.kill()
    out, err = sweep.communicate(timeout=60)
    if kill == signal.SIGINT:
        # Behind the ^C that a terminal shows.
        assert (sweep.returncode, out, err) == (130, "", "\nsupernode: error: interrupted\n")
    assert {row["bytes"] for row in rows(table)} == {64}
    while True:
        assert time.monotonic() < give_up
        try:
            os.killpg(sweep.pid, 0)
        except ProcessLookupError:
            break
