"""The commands that run no workload."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emu.toolchain import find_toolchain
from hdl.params import SwitchParams, TrafficParams, preset
from tests.emu.toys import ToyComputeTile

from .invoke import invoke


@pytest.mark.parametrize("tile", [
    "network", "traffic", pytest.param("compute", marks=pytest.mark.slow),
    pytest.param("card", marks=pytest.mark.slow),
    # One of 48 ports, whatever the preset.
    pytest.param("switch", marks=pytest.mark.slow)])
def test_verilog_writes_the_tile_and_its_manifest_and_no_path_of_the_build_machine(
        tile: str, capsys: Any, tmp_path: Path) -> None:
    outcome = invoke(capsys, f"verilog {tile} -o {tmp_path / 'tile.v'} --preset small --json -")
    assert outcome.status == 0, outcome.err
    result = json.loads(outcome.out)
    assert set(result) == {"tile", "preset", "verilog", "manifest", "lines", "ports"}
    texts = [(tmp_path / name).read_text() for name in ("tile.v", "tile.json")]
    for path in (sys.prefix, str(Path(__file__).parents[3]), str(Path.home()), str(tmp_path)):
        assert path == "/" or not any(path in text for text in texts)
    text, manifest = texts[0], json.loads(texts[1])
    assert f"module {tile}(" in text
    assert manifest["name"] == tile
    assert result["ports"] == len(manifest["ports"])
    assert result["lines"] == text.count("\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tile.json", "tile.v"]


@pytest.mark.parametrize(("tile", "factory"), [
    ("network", "hdl.card.NetworkTile"), ("compute", "hdl.card.ComputeTile"),
    ("card", "hdl.card.Card"), ("switch", "hdl.switch.SwitchTile"),
    ("traffic", "hdl.traffic.TrafficTile")])
def test_each_name_of_a_tile_is_that_tile_as_machines_of_the_preset_have_it(
        tile: str, factory: str, capsys: Any, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    small, asked = preset("small"), []

    def make(params: Any) -> ToyComputeTile:
        asked.append(params)
        return ToyComputeTile(small)

    monkeypatch.setattr(factory, make)
    outcome = invoke(capsys, f"verilog {tile} -o {tmp_path / 'tile.v'} --preset small")
    assert outcome.status == 0, outcome.err
    assert asked == [{"switch": SwitchParams(link=small.link),
                      "traffic": TrafficParams(router=small.router)}.get(tile, small)]
    assert f"module {tile}(" in (tmp_path / "tile.v").read_text()


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


@pytest.mark.parametrize("request_", [
    "build --preset small --topology ring:2", "build --preset booksim --topology mesh:4x4",
    # Tiles of the largest preset, and as many nodes as have lanes.
    *(pytest.param(line, marks=pytest.mark.slow) for line in (
        "build", "build --preset booksim --topology mesh:8x8"))])
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
