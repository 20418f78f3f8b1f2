"""Wrong input: one line on stderr that names the bad value, the right status, nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import emu

from .fake import FakeSuperNode
from .invoke import invoke

#: Command line, and what the error must name.
USAGE = [
    ("fly", ["'fly'", "demo", "run", "verilog", "doctor", "clean"]),
    ("run sort --topology ring:2", ["'sort'", "gemm", "allreduce", "p2p"]),
    ("run allreduce", ["--topology"]),
    ("run allreduce --topology star:4", ["'star:4'", "ring", "mesh", "torus"]),
    ("run allreduce --topology torus", ["'torus'", "ring", "mesh", "torus"]),
    ("run allreduce --topology torus:2x0x2", ["'torus:2x0x2'", "0", "at least 1"]),
    ("run allreduce --topology torus:-2", ["'torus:-2'", "ring", "mesh", "torus"]),
    ("run allreduce --topology torus:2x2x2x2", ["'torus:2x2x2x2'", "1 to 3"]),
    ("run allreduce --topology ring:999999", ["--topology", "ring:999999", "16"]),
    ("run allreduce --topology ring:2 --bytes 1022", ["1022", "4 bytes", "f32"]),
    ("run allreduce --topology ring:2 --bytes 3 --dtype bf16", ["3", "2 bytes", "bf16"]),
    ("run allreduce --topology ring:2 --bytes -4", ["'-4'", "≥ 0"]),
    ("run allreduce --topology ring:2 --bytes 1.5K", ["'1.5K'", "K, M or G"]),
    ("run allreduce --topology ring:2 --bytes 2T", ["'2T'", "K, M or G"]),
    ("run allreduce --topology ring:2 --dtype f64", ["'f64'", "f32", "bf16"]),
    ("run allreduce --topology ring:2 --dtype u8", ["'u8'", "f32", "bf16"]),
    ("run allreduce --topology ring:2 --algorithm star", ["'star'", "ring", "tree"]),
    ("run broadcast --topology ring:2 --root 2", ["2", "ring:2", "0 to 1"]),
    ("run allreduce --topology ring:2 --preset huge", ["'huge'", "default", "small"]),
    ("run allreduce --topology ring:2 --preset booksim", ["'booksim'", "default", "small"]),
    ("run allreduce --topology ring:2 --seed -1", ["-1", "0<=x"]),
    ("run allreduce --topology ring:2 --seed x", ["'x'", "--seed"]),
    ("run allreduce --topology ring:2 --window 0", ["0", "x>=1"]),
    ("run allreduce --topology ring:2 --threads 0", ["0", "x>=1"]),
    ("run allreduce --topology ring:2 --threads two", ["'two'", "--threads"]),
    ("run allreduce --topology ring:2 --lanes 32", ["'32'", "'64'", "'512'"]),
    ("run allreduce --topology ring:2 --stall-rate 1", ["1", "x<1"]),
    ("run allreduce --topology ring:2 --color", ["--color"]),
    ("run allreduce --topology ring:2 --link copper", ["'copper'", "plain", "reliable"]),
    ("run allreduce --topology ring:2 --ber 1", ["1", "x<1"]),
    ("run allreduce --topology ring:2 --ber often", ["'often'", "--ber"]),
    ("run allreduce --topology ring:2 --ber 1e-9 --link plain", ["'plain'", "--ber", "reliable"]),
    ("run allreduce --topology ring:2 --fail 0:0@5-9 --link plain",
     ["'plain'", "--fail", "reliable"]),
    ("run allreduce --topology ring:2 --deadline 0", ["0", "x>=1"]),
    ("run allreduce --topology ring:2 --fail 0:0", ["'0:0'", "NODE:PORT@CYCLE-CYCLE"]),
    ("run allreduce --topology ring:2 --fail 0:0@x", ["'0:0@x'", "NODE:PORT@CYCLE"]),
    ("run allreduce --topology ring:2 --fail 0:0@9-9", ["--fail", "from 9 to 9"]),
    ("run allreduce --topology ring:2 --fail 2:0@9", ["--fail", "no node 2", "0 to 1"]),
    ("run allreduce --topology ring:2 --fail 0:+y@9", ["--fail", "+y", "+x, -x"]),
    ("run allreduce --topology mesh:2 --fail 0:-x@9", ["--fail", "-x", "+x"]),
    ("run allreduce --topology ring:2 --fail 0:+x@9 --fail 1:-x@10-20",
     ["--fail", "cycle 10", "down already"]),
    ("demo --ber 2", ["2", "x<1"]),
    ("run allreduce --topology ring:2 --waves 0", ["'0'", "CARD[,CARD…]@FROM-TO", "--waves"]),
    ("run allreduce --topology ring:2 --waves 0@5", ["'0@5'", "CARD[,CARD…]@FROM-TO"]),
    ("run allreduce --topology ring:2 --waves 0,2@5-9", ["'2'", "0 to 1"]),
    ("run allreduce --topology ring:2 --waves s0@5-9", ["'s0'", "0 to 1"]),
    ("run allreduce --topology ring:2 --waves 1@9-5", ["9 to 5", "1 to 10,000,000 cycles"]),
    ("run allreduce --topology ring:2 --waves 1@5-9 --waves-dir /dev/null/w",
     ["'/dev/null/w'", "--waves-dir"]),
    ("traffic --topology ring:4 --sweep --waves 1@5-9", ["--waves", "--sweep"]),
    ("traffic --topology ring:4 --sweep --profile", ["--profile", "--sweep"]),
    ("run gemm --topology ring:1 --m 4 --n 4", ["--k"]),
    ("run gemm --topology ring:1 --m -1 --n 4 --k 4", ["-1", "x>=0"]),
    ("run gemm --topology ring:1 --m 4 --n 4 --k 4 --a-format f32", ["'f32'", "e4m3", "e5m2"]),
    ("run gemm --topology ring:1 --m 4 --n 4 --k 4 --b-format e3m4", ["'e3m4'", "e4m3", "e5m2"]),
    ("run p2p --topology ring:4 --source 4", ["card 4", "0 to 3"]),
    ("run p2p --topology ring:4 --target -1", ["card -1", "0 to 3"]),
    ("run p2p --topology ring:4 --dtype f64", ["'f64'", "f32", "bf16", "e4m3", "e5m2", "i8"]),
    ("run p2p --topology ring:4 --bytes 6", ["6", "4 bytes", "f32"]),
    ("demo --topology torus:0", ["'torus:0'", "at least 1"]),
    ("verilog router -o x.v", ["'router'", "network", "compute", "card", "switch", "traffic"]),
    ("verilog card", ["--output"]),
    ("topology", ["SPEC"]),
    ("topology cube:4", ["'cube:4'", "ring", "mesh", "torus"]),
    ("topology torus", ["'torus'", "ring", "mesh", "torus"]),
    ("topology torus:2x0x2", ["'torus:2x0x2'", "size 0", "at least 1"]),
    ("topology torus:2x2x2x2", ["'torus:2x2x2x2'", "1 to 3"]),
    ("topology ring:-1", ["'-1'", "ring", "mesh", "torus"]),
    ("topology ring:65537", ["ring:65537", "17 bits", "16"]),
    ("topology torus:64x64x32", ["torus:64x64x32", "17 bits", "16"]),
    ("topology ring:2 --preset huge", ["'huge'", "default", "small"]),
    ("topology ring:2 --seed x", ["'x'", "--seed"]),
    ("topology torus:16x16x32 --svg x.svg --json x.json", ["--svg", "8,192", "1,024"]),
    ("topology ring:2 --svg -/x", ["'-/x'", "writable"]),
    ("topology ring:2 --svg x --json x", ["--svg", "JSON"]),
    ("topology ring:2 mesh:2", ["mesh:2"]),
]


@pytest.fixture
def no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it a failure to open a machine."""
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a machine was opened")
    monkeypatch.setattr(emu, "open", refuse)


@pytest.mark.usefixtures("no_machine")
@pytest.mark.parametrize(("line", "named"), USAGE)
def test_a_bad_request_is_one_line_that_names_the_value_and_what_is_accepted(
        line: str, named: list[str], capsys: Any, tmp_path: Any,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = invoke(capsys, line)
    assert outcome.status == 2
    assert outcome.out == ""
    for text in named:
        assert text in outcome.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_machine")
@pytest.mark.parametrize("line", [
    "run p2p --topology ring:2 --json",
    "run gemm --topology ring:1 --m 4 --n 4 --k 4 --json",
    "run allreduce --topology ring:2 --json",
    "demo --json",
    "verilog card -o",
])
@pytest.mark.parametrize("output", ["missing/folder/x", ".", "/proc/x", "file/x"])
def test_an_unwritable_output_is_refused_before_the_run(
        line: str, output: str, capsys: Any, tmp_path: Any,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    outcome = invoke(capsys, f"{line} {output}")
    assert outcome.status == 2
    assert f"'{output}'" in outcome.error
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("no_machine")
def test_a_verilog_file_that_would_be_its_own_manifest_is_refused(
        capsys: Any, tmp_path: Any) -> None:
    outcome = invoke(capsys, f"verilog card -o {tmp_path / 'card.json'}")
    assert outcome.status == 2
    assert "card.json" in outcome.error
    assert list(tmp_path.iterdir()) == []


def _machine_error(module: str, name: str) -> Exception:
    return getattr(__import__(module, fromlist=[name]), name)("card 3 waits for counter 7")


@pytest.mark.parametrize(("module", "name"), [
    ("drivers.backend", "StallError"), ("drivers.backend", "WaitTimeout"),
    ("emu.toolchain", "ToolchainError"), ("emu.cache", "BuildError"),
    ("emu.emulator", "EngineError"),
    ("builtins", "OSError"), ("builtins", "MemoryError")])
def test_a_failed_run_is_one_line_and_status_1(
        module: str, name: str, capsys: Any, tmp_path: Any,
        monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise _machine_error(module, name)
    monkeypatch.setattr(FakeSuperNode, "start_write", fail)
    monkeypatch.setattr(emu, "open", FakeSuperNode.open)
    outcome = invoke(capsys, f"run p2p --topology ring:2 --json {tmp_path / 'x.json'}")
    assert outcome.status == 1
    assert "card 3 waits for counter 7" in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_exception_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError
    monkeypatch.setattr(emu, "open", fail)
    from emu.cli import main

    with pytest.raises(ZeroDivisionError):
        main(["run", "p2p", "--topology", "ring:2"])


@pytest.mark.parametrize(("variable", "value"), [
    ("SUPERNODE_VERILATOR", "/nowhere/verilator"), ("SUPERNODE_CACHE", "{folder}/file/cache"),
    ("SUPERNODE_CACHE", "/proc/cache")])
@pytest.mark.parametrize("line", ["run p2p --topology ring:2 --preset small --json {folder}/x.json",
                                  "doctor"])
def test_a_missing_tool_or_cache_is_one_line_that_names_it_and_leaves_nothing(
        line: str, variable: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"SUPERNODE_CACHE": str(tmp_path / "cache"),
                   variable: value.format(folder=tmp_path)}
    run = subprocess.run([sys.executable, "-c", "from emu.cli import main; main()",
                          *line.format(folder=tmp_path).split()],
                         env={**os.environ, **environment}, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("supernode: error: ")
    assert run.stderr.count("\n") == 1
    assert value.format(folder=tmp_path) in run.stderr
    assert variable in run.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]
