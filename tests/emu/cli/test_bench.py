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
@pytest.mark.parametrize("name", ["allreduce", "all_reduce", "all-reduce"])
def test_sizes_are_those_of_nccl_tests(options: str, sizes: list[int], name: str,
                                       capsys: Any) -> None:
    outcome = invoke(capsys, f"bench {name} --topology ring:4 {options} --json -")
    assert (outcome.status, outcome.err) == (0, "")
    result = json.loads(outcome.out)
    assert [row["size"] for row in result["rows"]] == sizes
    for row in result["rows"]:
        assert row["count"] * (2 if "bf16" in options else 4) == row["size"]
        for place in ("out", "in"):
            # The machine takes 1,000 ns whatever it is asked.
            found = row[place]
            assert found["time_us"] == 1 and found["wrong"] == 0
            assert found["algbw_GBps"] == pytest.approx(row["size"] / 1000)
            assert found["busbw_GBps"] == pytest.approx(row["size"] / 1000 * 2 * 3 / 4)
    mean = sum(sizes) / len(sizes) / 1000 * 1.5
    assert result["busbw_mean_GBps"] == pytest.approx(mean) and result["verified"] is True


@pytest.mark.usefixtures("fake")
def test_a_table_has_the_columns_of_nccl_tests(capsys: Any) -> None:
    outcome = invoke(capsys, "bench allreduce --topology ring:4 -b 1K -e 2K")
    lines = outcome.out.splitlines()
    assert "out of place" in lines[0] and "in place" in lines[4]
    for column in ("size (B)", "count (elements)", "type", "redop", "root", "time (us)",
                   "algbw (GB/s)", "busbw (GB/s)", "#wrong", "cycles", "bound", "eff", "wire"):
        assert column in lines[1]
    assert lines[2].split() == ["1024", "256", "f32", "sum", "-1", "ring", "1.000", "1.02", "1.54",
                                "0", "1,000", "900", "0.900", "0.000"]
    assert "average bus bandwidth: 2.304 GB/s" in lines[-1]


def test_wrong_values_are_counted_and_fail(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emu, "open", lambda *spec, **options: FakeSuperNode.open(
        *spec, **options, flip=True))
    outcome = invoke(capsys, "bench allreduce --topology ring:3 -b 8 -e 16 --json -")
    assert outcome.status == 1 and "12 values" in outcome.error and "8 bytes" in outcome.error
    assert [row["in"]["wrong"] for row in json.loads(outcome.out)["rows"]] == [3, 3]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("name", "factor"), [
    ("all_gather", 3 / 4), ("reduce_scatter", 3 / 4), ("alltoall", 3 / 4), ("broadcast", 1),
    ("reduce", 1), ("gather", 3 / 4), ("scatter", 3 / 4)])
def test_every_collective_has_the_bus_bandwidth_of_nccl_tests(name: str, factor: float,
                                                              capsys: Any) -> None:
    outcome = invoke(capsys, f"bench {name} -g 4 -b 8 -e 64 --dtype bf16 --root 2 --json -")
    assert (outcome.status, outcome.err) == (0, "")
    result = json.loads(outcome.out)
    # Blocks are whole: sizes are multiples of four elements.
    assert [row["size"] for row in result["rows"]] == [8, 16, 32, 64]
    assert result["topology"] == "ring:4" and result["verified"] is True
    for row in result["rows"]:
        assert row["out"]["busbw_GBps"] == pytest.approx(row["size"] / 1000 * factor)
        assert row["root"] == (2 if name in ("broadcast", "reduce", "gather", "scatter") else -1)


@pytest.mark.usefixtures("fake")
def test_a_plot_is_a_drawing_and_one_place_is_enough(tmp_path: Any, capsys: Any) -> None:
    outcome = invoke(capsys, f"bench allreduce -g 2 -b 8 -e 64 --place in --plot {tmp_path}/a.svg")
    assert outcome.status == 0 and "out of place" not in outcome.out
    assert "bound, in place" in (tmp_path / "a.svg").read_text()


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("line", "named"), [
    ("sort --topology ring:2", ["'sort'", "allreduce"]),
    ("barrier --topology ring:2", ["supernode run barrier"]),
    ("allreduce", ["--topology", "-g"]),
    ("allreduce --topology ring:2 -g 3", ["--cards", "ring:2 has 2 cards"]),
    ("broadcast --topology ring:2 --root 2", ["--root", "2 cards"]),
    ("allgather --topology ring:2 --op prod", ["'prod'", "sum, min, max"]),
    ("allreduce --topology ring:2 -b 2", ["--minbytes", "2", "4 bytes"]),
    ("allreduce --topology ring:2 -b 64 -e 8", ["--maxbytes", "8", "64"]),
    ("allreduce --topology ring:2 -f 1", ["1", "x>=2"]),
    ("allreduce --topology ring:2 -e 1.5K", ["'1.5K'", "K, M or G"]),
    ("allreduce --topology ring:2 --dtype u8", ["'u8'", "f32", "bf16"]),
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
    assert all(row[place]["cycles"] >= row[place]["bound_cycles"] > 0
               for row in found[0] for place in ("out", "in"))
    assert found[0] == found[1]
    alone = json.loads(invoke(
        capsys, "run allreduce --topology ring:3 --preset small --bytes 1K --json -").out)
    # What ran before leaves arbiters and rings elsewhere, and no more than that.
    assert found[0][-1]["in"]["cycles"] == pytest.approx(alone["cycles"], rel=0.02)
