"""``--checkpoint`` and ``supernode resume``: a run that is taken up reports what it would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import emu
from emu.checkpoint import CheckpointReader

from ..cli.invoke import invoke
from .test_file import disk_of

MACHINE = "--topology ring:2 --preset small"
WALL = ("wall_s", "card_cycles_per_s", "stepped_card_cycles_per_s")


def figures(text: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(text).items() if key not in WALL}


@pytest.mark.parametrize("command", [
    "allreduce --bytes 16K --ber 1e-5 --stall-rate 0.1 --seed 5 --algorithm ring",
    "allreduce --bytes 16K --dtype bf16 --algorithm dimensions",
    "gemm --m 16 --n 16 --k 64 --b-transposed", "p2p --bytes 16K --ber 1e-5",
])
def test_a_resumed_run_reports_what_the_run_did(tmp_path, capsys, command):
    file = tmp_path / "run.ckpt"
    words = f"run {command} {MACHINE} --json -"
    plain = invoke(capsys, words)
    saved = invoke(capsys, f"{words} --checkpoint {file} --checkpoint-every 150")
    assert plain.status == saved.status == 0
    with CheckpointReader(file) as checkpoint:
        assert checkpoint.manifest["cycle"] > 0
    before = file.stat().st_mtime_ns
    resumed = invoke(capsys, f"resume {file} --json - --window 3 --threads 2")
    assert resumed.status == 0, resumed.err
    assert figures(plain.out) == figures(saved.out) == figures(resumed.out)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]
    # It goes on saving where it was saved, as often.
    assert file.stat().st_mtime_ns >= before
    assert figures(invoke(capsys, f"resume {file} --json -").out) == figures(plain.out)


def test_a_full_disk_is_a_warning_and_the_run_goes_on(tmp_path, capsys):
    file = tmp_path / "run.ckpt"
    words = f"run allreduce --bytes 16K {MACHINE} --json - --checkpoint-every 150 --checkpoint"
    assert invoke(capsys, f"{words} {file}").status == 0
    before = file.read_bytes()
    with disk_of(10_000):
        outcome = invoke(capsys, f"{words} {file}")
    assert outcome.status == 0 and json.loads(outcome.out)["verified"]
    lines = outcome.err.splitlines()
    assert lines and all(line.startswith("supernode: warning: cannot write checkpoint ")
                         and line.endswith("what was there is unchanged; the run goes on")
                         for line in lines)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


def test_files_that_cannot_be_resumed_are_named_in_one_line(tmp_path, capsys):
    file = tmp_path / "a.ckpt"
    outcome = invoke(capsys, f"resume {file}")
    assert outcome.status == 2 and "cannot read checkpoint" in outcome.error
    file.write_text("something else")
    outcome = invoke(capsys, f"resume {file}")
    assert outcome.status == 2 and "a.ckpt is not a checkpoint" in outcome.error
    with emu.open("ring:2", preset="small") as machine:
        machine.save(file)
    outcome = invoke(capsys, f"resume {file}")
    assert outcome.status == 2 and "was not made by 'supernode run'" in outcome.error
    raw = file.read_bytes()
    file.write_bytes(raw[:len(raw) // 2])
    outcome = invoke(capsys, f"resume {file}")
    assert outcome.status == 2 and "a.ckpt is truncated or damaged" in outcome.error


@pytest.mark.parametrize(("options", "message"), [
    ("--checkpoint-every 100", "--checkpoint-every needs --checkpoint"),
    ("--checkpoint /absent/a.ckpt", "cannot be written"),
    ("--checkpoint a.ckpt --waves 0@0-10 --waves-dir .", "accepted is --waves or --checkpoint"),
])
def test_what_cannot_be_is_refused_before_anything_is_built(
        tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    outcome = invoke(capsys, f"run p2p --bytes 64 {MACHINE} {options}")
    assert outcome.status == 2 and message in outcome.error
    assert not list(Path().iterdir())
