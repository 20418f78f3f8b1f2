"""The JSON contract: keys, purity of standard output, files that are whole or not there."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import emu

from .fake import FakeResult, FakeSuperNode
from .invoke import invoke

RUN_KEYS = {
    "workload", "topology", "cards", "bytes", "dtype", "algorithm", "cycles", "time_ns",
    "bound_cycles", "efficiency", "algbw_GBps", "busbw_GBps", "verified", "mismatches", "wall_s",
    "card_cycles_per_s", "stepped_card_cycles_per_s", "replays"}
GEMM_KEYS = RUN_KEYS | {"m", "n", "k", "macs", "utilization"}
DEMO_KEYS = {"accuracy", "accuracy_f32", "cycles", "phases", "verified", "wall_s"}

COMMANDS = [
    ("run allreduce --topology torus:2x2x2 --bytes 4K", RUN_KEYS),
    ("run allreduce --topology ring:3 --bytes 0 --dtype bf16", RUN_KEYS),
    ("run allreduce --topology ring:1 --bytes 4", RUN_KEYS),
    ("run p2p --topology mesh:2x2 --bytes 64", RUN_KEYS),
    ("run p2p --topology ring:4 --bytes 0 --source 1 --target 1", RUN_KEYS),
    ("run gemm --topology ring:3 --m 5 --n 7 --k 9", GEMM_KEYS),
    ("run gemm --topology ring:2 --m 5 --n 7 --k 9 --b-transposed", GEMM_KEYS),
    ("run gemm --topology ring:2 --m 5 --n 1 --k 0", GEMM_KEYS),
    ("run gemm --topology ring:2 --m 0 --n 0 --k 4", GEMM_KEYS),
    ("demo --topology ring:3", DEMO_KEYS),
]


@pytest.fixture(autouse=True)
def fake_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emu, "open", FakeSuperNode.open)


@pytest.mark.parametrize(("line", "keys"), COMMANDS)
def test_json_on_standard_output_is_all_that_is_there_and_has_the_contract_s_keys(
        line: str, keys: set[str], capsys: Any) -> None:
    outcome = invoke(capsys, f"{line} --json -")
    assert outcome.status == 0, outcome.err
    assert outcome.err == ""
    result = json.loads(outcome.out)
    assert set(result) == keys
    assert result["verified"] is True


@pytest.mark.parametrize(("line", "keys"), [
    command for command in COMMANDS if "--bytes 0" not in command[0] and "--m 0" not in command[0]])
def test_wrong_results_give_status_1_and_a_json_that_says_so(
        line: str, keys: set[str], capsys: Any, tmp_path: Any,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emu, "open", lambda *spec, **options: FakeSuperNode.open(
        *spec, **options, flip=True))
    file = tmp_path / "result.json"
    outcome = invoke(capsys, f"{line} --json {file}")
    assert outcome.status == 1
    assert "differ from the reference" in outcome.error
    assert "NO" in outcome.out
    result = json.loads(file.read_text())
    assert set(result) == keys
    assert result["verified"] is False
    assert list(tmp_path.iterdir()) == [file]


def test_bandwidths_are_those_of_nccl_tests(capsys: Any) -> None:
    result = json.loads(invoke(
        capsys, "run allreduce --topology torus:2x2x2 --bytes 16K --json -").out)
    assert result["bytes"] == 16384
    assert result["cards"] == 8
    assert result["algbw_GBps"] == pytest.approx(16384 / 1000)
    assert result["busbw_GBps"] == pytest.approx(16384 / 1000 * 2 * 7 / 8)
    assert result["card_cycles_per_s"] == 16000
    assert result["stepped_card_cycles_per_s"] == 4000


def test_a_gemm_counts_its_bytes_and_its_utilization(capsys: Any) -> None:
    result = json.loads(invoke(
        capsys, "run gemm --topology ring:2 --m 10 --n 20 --k 30 --json -").out)
    assert result["macs"] == 6000
    assert result["bytes"] == 10 * 30 + 30 * 20 + 4 * 10 * 20
    assert result["utilization"] == pytest.approx(6000 / (2 * 16 * 16 * 1000))
    assert result["busbw_GBps"] == 0
    assert result["dtype"] == "e4m3"
    assert result["algorithm"] is None


def test_no_bound_gives_no_efficiency_and_no_time_no_bandwidth(
        capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = FakeResult(cycles=0, bound_cycles=0, efficiency=None, time_ns=0.0, waited_cycles=0)
    monkeypatch.setattr(emu, "open", lambda *spec, **options: FakeSuperNode.open(
        *spec, **options, result=nothing))
    for line, _ in COMMANDS[:-1]:
        outcome = invoke(capsys, f"{line} --json -")
        assert outcome.status == 0, outcome.err
        result = json.loads(outcome.out)
        assert result["efficiency"] is None
        assert result["algbw_GBps"] == result["busbw_GBps"] == 0


def test_without_json_a_table_says_what_happened(capsys: Any) -> None:
    outcome = invoke(capsys, "run allreduce --topology ring:4 --bytes 1K")
    assert outcome.status == 0
    assert outcome.err == ""
    for text in ("allreduce on ring:4: 4 cards, 1,024 bytes of f32, ring", "1,000", "900", "0.900",
                 "bit for bit", "waited", "card-cycles per second"):
        assert text in outcome.out


def test_a_json_file_replaces_an_older_one_and_follows_links(capsys: Any, tmp_path: Any) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("older")
    link.symlink_to(target)
    outcome = invoke(capsys, f"run p2p --topology ring:2 --bytes 4 --json {link}")
    assert outcome.status == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["workload"] == "p2p"
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_a_device_is_written_and_not_replaced(capsys: Any) -> None:
    outcome = invoke(capsys, f"run p2p --topology ring:2 --bytes 4 --json {os.devnull}")
    assert outcome.status == 0
    with open(os.devnull, "rb") as null:  # noqa: PTH123 - a device, by its own name
        assert null.read() == b""


def test_one_seed_gives_one_result(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    keep = FakeSuperNode.start_write

    def record(self: Any, source: Any, target: Any) -> Any:
        written.append(source.values.tobytes())
        return keep(self, source, target)
    monkeypatch.setattr(FakeSuperNode, "start_write", record)
    for seed in (1, 1, 2):
        assert invoke(capsys, f"run p2p --topology ring:2 --bytes 64 --seed {seed}").status == 0
    assert written[0] == written[1] != written[2]
