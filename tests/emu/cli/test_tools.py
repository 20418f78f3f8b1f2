"""The commands that run no workload."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emu.toolchain import find_toolchain

from .invoke import invoke


@pytest.mark.parametrize("tile", [
    "network", "compute", "card", "traffic",
    # One of 48 ports, whatever the preset.
    pytest.param("switch", marks=pytest.mark.slow)])
def test_verilog_writes_the_tile_and_its_manifest(tile: str, capsys: Any, tmp_path: Path) -> None:
    outcome = invoke(capsys, f"verilog {tile} -o {tmp_path / 'tile.v'} --preset small --json -")
    assert outcome.status == 0, outcome.err
    result = json.loads(outcome.out)
    assert set(result) == {"tile", "preset", "verilog", "manifest", "lines", "ports"}
    text = (tmp_path / "tile.v").read_text()
    manifest = json.loads((tmp_path / "tile.json").read_text())
    assert f"module {tile}(" in text
    assert manifest["name"] == tile
    assert result["ports"] == len(manifest["ports"])
    assert result["lines"] == text.count("\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tile.json", "tile.v"]


def test_verilog_names_no_path_of_the_build_machine(capsys: Any, tmp_path: Path) -> None:
    outcome = invoke(capsys, f"verilog card -o {tmp_path / 'card.v'} --preset small")
    assert outcome.status == 0, outcome.err
    for file in ("card.v", "card.json"):
        text = (tmp_path / file).read_text()
        for path in (sys.prefix, str(Path(__file__).parents[3]), str(Path.home()), str(tmp_path)):
            assert path == "/" or path not in text


def test_doctor_names_every_prerequisite(capsys: Any, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERNODE_CACHE", str(tmp_path / "cache"))
    outcome = invoke(capsys, "doctor --json -")
    assert outcome.status == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["verified"] is True
    assert [check["name"] for check in result["checks"]] == [
        "python", "g++", "compiler", "make", "perl", "verilator", "yosys", "cache"]
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_what_is_missing_and_how_to_get_it(
        capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SUPERNODE_VERILATOR", raising=False)
    find_toolchain.cache_clear()
    try:
        outcome = invoke(capsys, "doctor")
    finally:
        find_toolchain.cache_clear()
    assert outcome.status == 1
    for tool in ("g++", "make", "perl"):
        assert f"{tool}: not found (install {tool} (Debian: apt-get install {tool}))" in \
            outcome.error
        assert f"fix: install {tool}" in outcome.out


@pytest.mark.parametrize("request_", ["build", "build --preset booksim --topology mesh:8x8"])
def test_build_makes_what_runs_need_and_says_by_what(capsys: Any, request_: str) -> None:
    outcome = invoke(capsys, f"{request_} --json -")
    assert outcome.status == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["compiler"] == find_toolchain().compiler.name
    assert result["compiler_version"] and result["pgo"] is False


def test_build_refuses_what_is_no_topology(capsys: Any) -> None:
    outcome = invoke(capsys, "build --topology heap:9")
    assert outcome.status == 2 and "'heap:9'" in outcome.error


def test_clean_removes_the_cache_and_nothing_else(capsys: Any, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    cache, key = tmp_path / "cache", "0123456789abcdef01234567"
    monkeypatch.setenv("SUPERNODE_CACHE", str(cache))
    for name in (f"tile-network-{key}", f"core-{key}.partial"):
        (cache / name / "inside").mkdir(parents=True)
    (cache / f"core-{key}.lock").touch()
    (tmp_path / "other").touch()
    assert json.loads(invoke(capsys, "clean --json -").out) == {"folder": str(cache), "removed": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert json.loads(invoke(capsys, "clean --json -").out) == {"folder": str(cache), "removed": 0}


def test_clean_refuses_a_folder_that_holds_something_else(
        capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERNODE_CACHE", str(tmp_path))
    (tmp_path / "thesis.tex").touch()
    outcome = invoke(capsys, "clean")
    assert outcome.status == 1
    assert "'thesis.tex'" in outcome.error
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("line", ["--help", "--version", "demo --help", "run --help",
                                  "run gemm --help", "verilog --help"])
def test_help_and_version_need_nothing_but_the_package(line: str, capsys: Any) -> None:
    outcome = invoke(capsys, line)
    assert outcome.status == 0
    assert outcome.out
    assert outcome.err == ""
