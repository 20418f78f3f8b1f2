"""The commands on the emulated cards themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .invoke import invoke


@pytest.mark.parametrize("line", [
    "p2p --topology ring:3 --bytes 0",
    "p2p --topology mesh:3 --bytes 5000 --source 2 --target 0 --dtype i8",
    "p2p --topology ring:2 --bytes 4K --source 1 --target 1",
    "allreduce --topology ring:1 --bytes 12",
    "allreduce --topology ring:3 --bytes 1002 --dtype bf16",
    "allreduce --topology ring:4 --bytes 4",
    "allreduce --topology mesh:4 --bytes 0",
    "gemm --topology ring:1 --m 16 --n 16 --k 0",
    "gemm --topology ring:2 --m 7 --n 1 --k 17",
    "gemm --topology ring:3 --m 9 --n 10 --k 11 --a-format e5m2 --b-transposed"])
def test_a_workload_is_right_bit_for_bit_and_never_beats_its_bound(
        line: str, capsys: Any) -> None:
    figures = []
    for variant in ("", "--window 1 --threads 3", "--stall-rate 0.3"):
        outcome = invoke(capsys, f"run {line} --preset small --seed 7 --json - {variant}")
        assert outcome.status == 0, outcome.err
        result = json.loads(outcome.out)
        assert result["verified"] is True
        assert result["cycles"] >= result["bound_cycles"]
        figures.append(result)
    whole, narrow, stalled = figures
    assert narrow["cycles"] == whole["cycles"]
    assert stalled["cycles"] >= whole["cycles"]


@pytest.mark.slow
def test_the_demo_is_right_on_eight_cards(capsys: Any) -> None:
    outcome = invoke(capsys, "demo --json -")
    assert outcome.status == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["verified"] is True
    assert result["accuracy"] >= 0.94
    assert abs(result["accuracy"] - result["accuracy_f32"]) <= 0.01
    assert result["cycles"] == sum(phase["cycles"] for phase in result["phases"])
    assert all(phase["cycles"] >= phase["bound_cycles"] > 0 for phase in result["phases"])


ALLREDUCE = "run allreduce --topology ring:3 --preset small --bytes 16K --json -"


def test_bit_errors_cost_replays_and_change_no_result(capsys: Any) -> None:
    results = []
    for variant in ("--link plain", "--link reliable", "--ber 2e-5"):
        outcome = invoke(capsys, f"{ALLREDUCE} {variant}")
        assert outcome.status == 0, outcome.err
        results.append(json.loads(outcome.out))
        assert results[-1]["verified"] is True
    plain, reliable, struck = results
    assert plain["cycles"] == reliable["cycles"] < struck["cycles"]
    assert plain["replays"] == reliable["replays"] == 0 < struck["replays"]


@pytest.mark.parametrize("options", ["--fail 0:+x@700", "--fail 1:-x@700-900 --deadline 3000"])
def test_a_cable_that_fails_is_named_and_nothing_hangs(options: str, capsys: Any) -> None:
    outcome = invoke(capsys, f"{ALLREDUCE} {options}")
    assert outcome.status == 1 and outcome.out == ""
    assert "dead link" in outcome.error
    assert "0:+x" in outcome.error or "1:-x" in outcome.error
