"""Compilers by name, objects of two of them in one library, code compiled by what it counted."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emu import compiler as compiler_module
from emu.build import Builder
from emu.cache import BuildError, Cache
from emu.compiler import Compiler, CompilerError, find_compiler
from emu.kinds import NodeKind
from emu.toolchain import find_toolchain
from emu.training import COUNT_FLAGS, VARIABLE, mode, use_flags

from .machines import toy_params

COUNTED = """
extern "C" __attribute__((visibility("default"))) int steps(int n) {
    int count = 0;
    while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; ++count; }
    return count;
}
"""
THROWS = """
#include <stdexcept>
#include <string>
#include <vector>
std::vector<std::string> names(int count) {
    if (count < 0) throw std::out_of_range("names");
    return std::vector<std::string>(count, "a name that does not fit into the object itself");
}
"""
CATCHES = """
#include <stdexcept>
#include <string>
#include <vector>
std::vector<std::string> names(int count);
extern "C" __attribute__((visibility("default"))) int letters(int count) {
    try {
        int total = 0;
        for (const std::string& name : names(count)) total += name.size();
        return total;
    } catch (const std::out_of_range&) { return -1; }
}
"""


def build(compiler: Compiler, text: str, target: Path, *flags: str) -> Path:
    source = target.with_suffix(".cpp")
    source.write_text(text)
    subprocess.run(compiler.command(source, target, ("-O2", "-Werror", *flags)), check=True)
    return target


@pytest.fixture
def clang() -> Compiler:
    for name in ("zig", "clang++"):
        try:
            return find_compiler(name)
        except CompilerError:
            continue
    pytest.skip("no clang: pip install ziglang")


@pytest.mark.parametrize("linker", ["gnu", "clang"])
def test_objects_of_two_compilers_share_types_and_exceptions(tmp_path, clang, linker):
    gnu = find_compiler("g++")
    assert clang.clang and not gnu.clang and clang.id != gnu.id
    objects = [build(gnu, CATCHES, tmp_path / "catches.o"),
               build(clang, THROWS, tmp_path / "throws.o")]
    target = tmp_path / "both.so"
    subprocess.run({"gnu": gnu, "clang": clang}[linker].link_command(objects, target), check=True)
    library = ctypes.CDLL(str(target))
    assert [library.letters(count) for count in (0, 3, -1)] == [0, 3 * 47, -1]


def test_the_processor_is_told_apart_only_where_code_is_for_it(clang):
    for compiler in (find_compiler("g++"), clang):
        assert compiler.processor != compiler.id
        assert len(compiler.march_flags) == 1


def test_auto_takes_the_first_that_is_there(monkeypatch):
    monkeypatch.delenv("SUPERNODE_CXX", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(compiler_module, "AUTOMATIC", ("no-such-compiler", "g++"))
    assert find_compiler().name == "g++"
    monkeypatch.setenv("SUPERNODE_CXX", "g++")
    monkeypatch.setattr(compiler_module, "AUTOMATIC", ())
    assert find_compiler().name == "g++"


def test_profiles_are_made_with_gnu_whatever_is_faster_without(monkeypatch):
    monkeypatch.delenv("SUPERNODE_CXX", raising=False)
    monkeypatch.setenv(VARIABLE, "1")
    assert find_compiler().name == "g++"


@pytest.mark.parametrize(("name", "message"), [
    ("no-such-compiler", r"SUPERNODE_CXX='no-such-compiler' is not a program: set it to a C\+\+"),
    ("false", "false does not report a version"),
])
def test_a_compiler_that_is_none_is_refused_in_one_line(monkeypatch, name, message):
    monkeypatch.setenv("SUPERNODE_CXX", name)
    with pytest.raises(CompilerError, match=message) as error:
        find_compiler()
    assert "\n" not in str(error.value)


def test_code_is_compiled_by_what_it_counted_and_does_the_same(tmp_path):
    gnu, counts = find_compiler("g++"), tmp_path / "counts"
    (tmp_path / "elsewhere").mkdir()
    objects = [build(gnu, COUNTED, tmp_path / "elsewhere" / "counted.o", *COUNT_FLAGS)]
    counting = tmp_path / "counting.so"
    subprocess.run(gnu.link_command(objects, counting, COUNT_FLAGS), check=True)
    run = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(counting)!r}).steps(27)"]
    subprocess.run(run, check=True, env=os.environ | {
        "GCOV_PREFIX": str(counts), "GCOV_PREFIX_STRIP": "99"})
    flags = use_flags(counts, tmp_path / "counted.cpp")
    assert flags[0] == "-fprofile-use"
    assert use_flags(counts, tmp_path / "other.cpp") == use_flags(None, tmp_path / "x.cpp") == ()
    plain = build(gnu, COUNTED, tmp_path / "counted.o").read_bytes()
    guided = build(gnu, COUNTED, tmp_path / "counted.o", *flags)
    by_counts = guided.read_bytes()
    (tmp_path / "counted.gcda").rename(tmp_path / "away.gcda")
    unguided = build(gnu, COUNTED, tmp_path / "counted.o", *flags).read_bytes()
    assert len({by_counts, unguided, plain}) == 3
    (tmp_path / "away.gcda").rename(tmp_path / "counted.gcda")
    guided = build(gnu, COUNTED, tmp_path / "counted.o", *flags)
    library = tmp_path / "guided.so"
    subprocess.run(gnu.link_command([guided], library), check=True)
    assert ctypes.CDLL(str(library)).steps(27) == 111


def test_a_variable_without_meaning_and_a_compiler_without_counts_are_refused(
        tmp_path, monkeypatch, clang):
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(BuildError, match="SUPERNODE_PGO='yes' has no meaning: accepted are 0 and"):
        mode()
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setenv("SUPERNODE_CXX", clang.name)
    find_toolchain.cache_clear()
    try:
        with pytest.raises(BuildError, match=r"profile-guided builds are g\+\+'s, and the comp"):
            Builder(Cache(tmp_path)).profile(NodeKind.card(toy_params()), [])
    finally:
        find_toolchain.cache_clear()


def test_a_kind_without_a_workload_is_built_without_a_profile(tmp_path, monkeypatch):
    monkeypatch.delenv("SUPERNODE_CXX", raising=False)
    monkeypatch.setenv(VARIABLE, "1")
    find_toolchain.cache_clear()
    try:
        kind = NodeKind("toy", (), toy_params())
        steps: list[str] = []
        Builder(Cache(tmp_path), progress=steps.append).profile(kind, [])
    finally:
        find_toolchain.cache_clear()
    assert steps == ["profiling the toy (first time)"]
    assert [list(path.iterdir()) for path in tmp_path.glob("profile-toy-*[!k]")] == [[]]


@pytest.mark.slow
def test_profiles_change_no_event(tmp_path):
    logs = []
    for value in ("0", "1"):
        program = ("import hashlib, numpy as np, emu\n"
                   "with emu.open('torus:2x2x2', event_log=True) as machine:\n"
                   "    arrays = [machine.malloc(1000, 'f32', c) for c in range(machine.cards)]\n"
                   "    [a.write(np.arange(1000, dtype=np.float32)) for a in arrays]\n"
                   "    machine.allreduce(arrays).wait()\n"
                   "    log = machine.backend.event_log()\n"
                   "    print(len(log), hashlib.sha256(log.tobytes()).hexdigest())\n")
        run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                             text=True, env=os.environ | {VARIABLE: value, "SUPERNODE_CXX": "g++"})
        logs.append(run.stdout)
    assert logs[0] == logs[1] and int(logs[0].split()[0]) > 1000
