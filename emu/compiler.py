"""Running the C++ compiler: flags, what they depend on, and several files at once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from .cache import BuildError

__all__ = ["COMMON_FLAGS", "compile_objects", "compiler_fingerprint", "link_shared", "run_tool"]

#: One library per engine, loaded beside others: nothing but the C ABI may be seen from outside.
#: Code for this very processor (-march=native) runs no faster, measured, and would not be portable.
COMMON_FLAGS = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique",
                "-fcf-protection=none")


@cache
def compiler_fingerprint(compiler: str) -> str:
    """What an object depends on besides its source and flags: the compiler's version, and the
    processor that it generates code for."""
    runs = [subprocess.run([compiler, *query], capture_output=True, text=True, check=True)
            for query in (("--version",), ("-Q", "--help=target"))]
    return "".join(run.stdout for run in runs)


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


def compile_objects(compiler: str, sources: Iterable[tuple[Path, Sequence[str]]], folder: Path, *,
                    what: str) -> list[Path]:
    """Compile each (source, flags) to an object in ``folder``, as many at once as there are
    processors, largest first."""
    jobs = sorted(sources, key=lambda job: -job[0].stat().st_size)

    def compile_one(job: tuple[Path, Sequence[str]]) -> Path:
        source, flags = job
        target = folder / f"{source.stem}.o"
        run_tool([compiler, *COMMON_FLAGS, *flags, "-c", source, "-o", target], what,
                 log=folder / "compile.log")
        return target

    workers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(compile_one, jobs))


def link_shared(compiler: str, objects: Iterable[Path], target: Path) -> None:
    """Link objects into a shared library."""
    run_tool([compiler, "-shared", "-Wl,-Bsymbolic,-z,defs", "-o", target, *objects, "-pthread"],
             "linking the engine", log=target.parent / "link.log")
