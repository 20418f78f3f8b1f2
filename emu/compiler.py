"""C++ compilers: which one builds engines, what its objects depend on, and how it is run.

Every compiler here uses the C++ library of the system's g++ and its linker, so that objects of one
and of another go into one engine. ``SUPERNODE_CXX`` says which: a program, ``zig`` for the clang
inside the ``ziglang`` wheel, or ``auto``, which is the first of :data:`AUTOMATIC` that is there.
Models are built by profiles with g++, because the wheel lacks the library that counts.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .cache import BuildError
from .training import mode

__all__ = ["AUTOMATIC", "Compiler", "CompilerError", "compile_objects", "find_compiler",
           "link_shared", "run_tool"]

#: In the order in which ``auto`` takes them: none is faster in use, see docs/build.md.
AUTOMATIC = ("g++", "clang++", "zig")
#: One library per engine, loaded beside others: nothing but the C ABI may be seen from outside.
#: Code for this very processor (-march=native) runs no faster, measured, and would not be portable.
COMMON_FLAGS = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique",
                "-fcf-protection=none")
#: What clang does not know and has no need of; and what it needs, because g++'s library deprecates
#: what it uses itself.
GNU_ONLY = ("-fno-gnu-unique",)
CLANG_ONLY = ("-Wno-deprecated-declarations",)


class CompilerError(RuntimeError):
    """There is no C++ compiler, or not the one that was asked for; one line that names the fix."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that was found.

    Attributes
    ----------
    name : str
        As ``SUPERNODE_CXX`` names it.
    program : tuple of str
        The command line up to the first flag.
    version : str
        First line of what it says about itself.
    clang : bool
        It is clang, and not g++.
    """

    name: str
    program: tuple[str, ...]
    version: str
    clang: bool

    @property
    def id(self) -> str:
        """What objects depend on besides source and flags: the compiler's version, and the
        processor family that it generates code for. Part of every key."""
        return _identity(self, ())

    @property
    def common_flags(self) -> tuple[str, ...]:
        """Flags of every object."""
        if self.clang:
            return (*(flag for flag in COMMON_FLAGS if flag not in GNU_ONLY), *CLANG_ONLY)
        return COMMON_FLAGS

    @property
    def march_flags(self) -> tuple[str, ...]:
        """Generate code for this very processor. What is built with them has :attr:`processor` in
        its key."""
        known = platform.machine() in ("x86_64", "AMD64", "i686")
        return ("-march=native",) if known else ("-mcpu=native",)

    @property
    def processor(self) -> str:
        """What :attr:`march_flags` stand for on this machine."""
        return _identity(self, self.march_flags)

    def command(self, source: Path, target: Path, flags: Sequence[str] = ()) -> list[str]:
        """The command that compiles ``source`` to the object ``target``."""
        return [*self.program, *self.common_flags, *flags, "-c", str(source), "-o", str(target)]

    def link_command(self, objects: Iterable[Path], target: Path,
                     flags: Sequence[str] = ()) -> list[str]:
        """The command that links ``objects``, of any compiler, into the shared library
        ``target``."""
        return [*self.program, "-shared", "-Wl,-Bsymbolic,-z,defs", *flags, "-o", str(target),
                *map(str, objects), "-pthread"]


@cache
def _identity(compiler: Compiler, flags: tuple[str, ...]) -> str:
    """Its version and what it says, with ``flags``, about the processor it generates code for: g++
    in words, clang in the macros that it predefines."""
    target = (("-dM", "-E", "-x", "c++", os.devnull) if compiler.clang
              else ("-Q", "--help=target"))
    runs = [subprocess.run([*compiler.program, *query], capture_output=True, text=True, check=True)
            for query in (("--version",), (*flags, *target))]
    return "".join(run.stdout for run in runs)


def find_compiler(name: str | None = None) -> Compiler:
    """Return the compiler called ``name``; that of ``SUPERNODE_CXX``, or else ``auto``, if absent.

    Raises
    ------
    CompilerError
        If there is none of that name, or it does not run.
    """
    name = name or os.environ.get("SUPERNODE_CXX") or "auto"
    automatic = ("g++",) if mode() else AUTOMATIC
    for candidate in automatic if name == "auto" else (name,):
        program = _zig() if candidate == "zig" else _program(candidate)
        if program is not None:
            return _compiler(candidate, program)
    if name == "auto":
        raise CompilerError("no C++ compiler found: install g++ (Debian: apt-get install g++)")
    if name == "zig":
        raise CompilerError("SUPERNODE_CXX='zig' needs the ziglang package and g++, whose library "
                            "it uses: pip install ziglang, apt-get install g++")
    raise CompilerError(f"SUPERNODE_CXX={name!r} is not a program: set it to a C++ compiler, to "
                        "'zig' or to 'auto'")


@cache
def _compiler(name: str, program: tuple[str, ...]) -> Compiler:
    try:
        run = subprocess.run([*program, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise CompilerError(f"{program[0]} does not run: {error.strerror}") from error
    first = run.stdout.strip().partition("\n")[0]
    if run.returncode or not first:
        raise CompilerError(f"{program[0]} does not report a version: is it a C++ compiler?")
    return Compiler(name, program, first, clang="clang" in first)


def _program(name: str) -> tuple[str, ...] | None:
    path = shutil.which(name)
    return None if path is None else (path,)


def _zig() -> tuple[str, ...] | None:
    """The clang inside the wheel, without the driver that puts another library and linker in."""
    wheel = importlib.util.find_spec("ziglang")
    gnu = shutil.which("g++")
    if wheel is None or wheel.origin is None or gnu is None:
        return None
    folder = Path(wheel.origin).parent
    target = subprocess.run([gnu, "-dumpmachine"], capture_output=True, text=True).stdout.strip()
    return (str(folder / "zig"), "clang", "--driver-mode=g++", f"--target={target}",
            "-resource-dir", str(folder / "lib"))


def run_tool(command: Sequence[str | Path], what: str, *, log: Path,
             env: dict[str, str] | None = None) -> None:
    """Run a build tool; its output goes to ``log``.

    Raises
    ------
    BuildError
        If it fails, with the first error it printed.
    """
    run = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, errors="replace", env=env)
    if run.returncode:
        if "No space left on device" in run.stdout:
            raise BuildError(f"{what}: no space left on the device of {log.parent}: free some, or "
                             "set SUPERNODE_CACHE to another folder")
        errors = [line for line in run.stdout.splitlines() if "rror" in line]
        reason = (errors or run.stdout.splitlines() or [f"exit status {run.returncode}"])[0]
        raise BuildError(f"{what} failed: {reason.strip()}")
    with log.open("a") as file:
        file.write(run.stdout)


def compile_objects(compiler: Compiler, sources: Iterable[tuple[Path, Sequence[str]]],
                    folder: Path, *, what: str) -> list[Path]:
    """Compile each (source, flags) to an object in ``folder``, as many at once as there are
    processors, largest first."""
    jobs = sorted(sources, key=lambda job: -job[0].stat().st_size)

    def compile_one(job: tuple[Path, Sequence[str]]) -> Path:
        source, flags = job
        target = folder / f"{source.stem}.o"
        run_tool(compiler.command(source, target, flags), what, log=folder / "compile.log")
        return target

    workers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(compile_one, jobs))


def link_shared(compiler: Compiler, objects: Iterable[Path], target: Path,
                flags: Sequence[str] = ()) -> None:
    """Link objects into a shared library."""
    run_tool(compiler.link_command(objects, target, flags), "linking the engine",
             log=target.parent / "link.log")
