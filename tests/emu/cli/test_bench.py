"""``supernode bench``: nccl-tests' sizes and columns, and every value checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

import emu

from .fake import FakeSuperNode
from .invoke import invoke


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emu, "open", FakeSuperNode.open)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("options", "sizes"), [
    ("", [8 << step for step in range(18)]),
    ("-b 8 -e 1K -f 4", [8, 32, 128, 512]),
    ("-b 6 -e 60 -f 3", [4, 16, 52]),
    ("-b 6 -e 60 -f 3 --dtype bf16", [6, 18, 54]),
    ("-b 64 -e 64", [64])])
def test_sizes_are_those_of_nccl_tests(options: str, sizes: list[int], capsys: Any) -> None:
    outcome = invoke(capsys, f"bench allreduce --topology ring:4 {options} --json -")
    assert (outcome.status, outcome.err) == (0, "")
    result = json.loads(outcome.out)
    assert [row["size"] for row in result["rows"]] == sizes
    for row in result["rows"]:
        assert row["count"] * (2 if "bf16" in options else 4) == row["size"]
        # The machine takes 1,000 ns whatever it is asked.
        assert row["time_us"] == 1 and row["wrong"] == 0
        assert row["algbw_GBps"] == pytest.approx(row["size"] / 1000)
        assert row["busbw_GBps"] == pytest.approx(row["size"] / 1000 * 2 * 3 / 4)
    mean = sum(sizes) / len(sizes) / 1000 * 1.5
    assert result["busbw_mean_GBps"] == pytest.approx(mean) and result["verified"] is True


@pytest.mark.usefixtures("fake")
def test_a_table_has_the_columns_of_nccl_tests(capsys: Any) -> None:
    outcome = invoke(capsys, "bench allreduce --topology ring:4 -b 1K -e 2K")
    lines = outcome.out.splitlines()
    for column in ("size (B)", "count (elements)", "type", "redop", "time (us)", "algbw (GB/s)",
                   "busbw (GB/s)", "#wrong"):
        assert column in lines[1]
    assert lines[2].split() == ["1024", "256", "f32", "sum", "1.000", "1.02", "1.54", "0"]
    assert "average bus bandwidth: 2.304 GB/s" in lines[-1]


def test_wrong_values_are_counted_and_fail(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emu, "open", lambda *spec, **options: FakeSuperNode.open(
        *spec, **options, flip=True))
    outcome = invoke(capsys, "bench allreduce --topology ring:3 -b 8 -e 16 --json -")
    assert outcome.status == 1 and "6 values" in outcome.error and "8 bytes" in outcome.error
    assert [row["wrong"] for row in json.loads(outcome.out)["rows"]] == [3, 3]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("line", "named"), [
    ("sort --topology ring:2", ["'sort'", "allreduce"]),
    ("alltoall --topology ring:2", ["'alltoall'", "allreduce"]),
    ("allreduce", ["--topology"]),
    ("allreduce --topology ring:2 -b 2", ["--minbytes", "2", "4 bytes"]),
    ("allreduce --topology ring:2 -b 64 -e 8", ["--maxbytes", "8", "64"]),
    ("allreduce --topology ring:2 -f 1", ["1", "x>=2"]),
    ("allreduce --topology ring:2 -e 1.5K", ["'1.5K'", "K, M or G"]),
    ("allreduce --topology ring:2 --dtype i8", ["'i8'", "f32", "bf16"]),
])
def test_a_bad_request_is_named(line: str, named: list[str], capsys: Any) -> None:
    outcome = invoke(capsys, f"bench {line}")
    assert outcome.status == 2 and outcome.out == ""
    for text in named:
        assert text in outcome.error


def test_sizes_run_one_after_the_other_on_one_machine(capsys: Any) -> None:
    found = []
    for _ in range(2):
        outcome = invoke(capsys, "bench allreduce --topology ring:3 --preset small -b 64 -e 1K "
                                 "-f 4 --json -")
        assert outcome.status == 0, outcome.err
        found.append(json.loads(outcome.out)["rows"])
    assert [row["size"] for row in found[0]] == [64, 256, 1024]
    assert all(row["cycles"] >= row["bound_cycles"] > 0 for row in found[0])
    assert found[0] == found[1]
    alone = json.loads(invoke(
        capsys, "run allreduce --topology ring:3 --preset small --bytes 1K --json -").out)
    # What ran before leaves arbiters and rings elsewhere, and no more than that.
    assert found[0][-1]["cycles"] == pytest.approx(alone["cycles"], rel=0.02)
