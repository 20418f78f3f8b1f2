"""Profile-guided builds: what a kind of node is compiled for is how it runs a short workload.

With ``SUPERNODE_PGO=1`` the tiles of a kind are first built with counters in them and run, in a
process of its own, through the workload of :data:`WORKLOADS`; what was counted is a cache entry,
and tells g++ which branches are taken. A kind without a workload is built as without the variable.
Profiles change how fast a tile runs and nothing else.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cache import BuildError

if TYPE_CHECKING:
    from .kinds import NodeKind

__all__ = ["COUNT_FLAGS", "VARIABLE", "WORKLOADS", "mode", "train", "use_flags"]

VARIABLE = "SUPERNODE_PGO"
#: What the process that counts has the variable set to.
_COUNT = "count"
#: Of code that counts what it runs, and of linking it.
COUNT_FLAGS = ("-fprofile-generate",)


def mode() -> str:
    """``"use"`` if models are built by profiles, ``"count"`` if they are to make them, or else
    ``""``.

    Raises
    ------
    BuildError
        If the variable has no meaning.
    """
    value = os.environ.get(VARIABLE, "")
    modes = {"": "", "0": "", "1": "use", _COUNT: _COUNT}
    if value not in modes:
        raise BuildError(f"{VARIABLE}={value!r} has no meaning: accepted are 0 and 1")
    return modes[value]


def use_flags(profile: Path | None, source: Path) -> tuple[str, ...]:
    """Flags that compile ``source``, to an object beside it, by what the folder ``profile`` says of
    it: g++ looks for that beside the object, where it is put."""
    counts = profile / f"{source.stem}.gcda" if profile else None
    if counts is None or not counts.exists():
        return ()
    shutil.copyfile(counts, source.with_suffix(".gcda"))
    # What the workload did not reach is compiled as without a profile, and not for size; of what
    # was inlined everywhere there is none. That the code was in another folder when it counted is
    # a mismatch to g++; the key covers its text.
    return ("-fprofile-use", "-fprofile-partial-training", "-fprofile-correction",
            "-Wno-missing-profile", "-Wno-coverage-mismatch")


def train(kind: NodeKind, folder: Path) -> None:
    """Fill ``folder`` with the counts of the tiles of ``kind``, a file per source.

    Raises
    ------
    BuildError
        If the workload fails.
    """
    if kind.name not in WORKLOADS:
        return
    # Counts go to the names of objects, below a prefix and without their folders.
    variables = {VARIABLE: _COUNT, "GCOV_PREFIX": str(folder), "GCOV_PREFIX_STRIP": "99",
                 "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-m", __name__, kind.name],
                         input=pickle.dumps(kind.params), capture_output=True,
                         env=os.environ | variables)
    if run.returncode:
        said = run.stderr.decode(errors="replace").strip().splitlines()
        raise BuildError(f"the workload that profiles a {kind.name} failed: "
                         f"{said[-1] if said else f'exit status {run.returncode}'}")


def _card(params: Any) -> None:
    """AllReduce and remote writes on a torus, and a GEMM."""
    import numpy as np

    from drivers.supernode import SuperNode
    from hdl.topology import parse

    from .emulator import EngineBackend

    count, size = 16 << 10, 64
    with SuperNode(EngineBackend(parse("torus:2x2x2"), params)) as machine:
        arrays = [machine.malloc(count, "f32", card) for card in range(machine.cards)]
        for card, array in enumerate(arrays):
            array.write(np.full(count, card, np.float32))
        machine.allreduce(arrays).wait()
        machine.write(arrays[0], arrays[-1])
        a, b = (machine.malloc((size, size), "e4m3", 0) for _ in range(2))
        for array in (a, b):
            array.write(np.ones((size, size), array.dtype.numpy))
        machine.gemm(a, b, machine.malloc((size, size), "f32", 0)).wait()


def _traffic(params: Any) -> None:
    """Uniform load on a mesh."""
    from hdl.params import preset
    from hdl.topology import parse

    from .traffic import Load, TrafficNetwork, parse_pattern

    shape = parse("mesh:4x4")
    network = TrafficNetwork(shape, params, preset("booksim"))
    network.load(Load(parse_pattern("uniform", shape), 0.2), measure_from=0)
    network.advance_to(5000)
    network.close()


#: By the name of a kind, of its parameters.
WORKLOADS: dict[str, Callable[[Any], None]] = {"card": _card, "traffic": _traffic}


if __name__ == "__main__":
    WORKLOADS[sys.argv[1]](pickle.load(sys.stdin.buffer))
