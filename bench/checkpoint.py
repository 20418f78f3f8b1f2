"""Size and time of a checkpoint: ``python -m bench.checkpoint SPEC…``.

An AllReduce of 64 KiB per card is saved in its middle, restored, and brought to its end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import emu
from emu.checkpoint import CheckpointReader

__all__ = ["main"]

_COUNT = 16 << 10


def main(specs: list[str]) -> None:
    """Print a row per topology."""
    print("| cards | file | of it memory | save | check and restore | building the machine |")
    print("|---:|---:|---:|---:|---:|---:|")
    for spec in specs:
        with tempfile.TemporaryDirectory() as folder:
            print(_row(spec, Path(folder) / "machine.ckpt"), flush=True)


def _row(spec: str, path: Path) -> str:
    machine = emu.open(spec)
    rng = np.random.default_rng(1)
    machine.kept["arrays"] = arrays = [
        machine.malloc(_COUNT, "f32", card).write(rng.standard_normal(_COUNT, np.float32))
        for card in range(machine.cards)]
    machine.kept["handle"] = handle = machine.allreduce(arrays)
    saves: list[float] = []

    def save() -> None:
        start = time.perf_counter()
        machine.save(path)
        saves.append(time.perf_counter() - start)
        machine.save_every(0, save)

    machine.save_every(handle.bound.cycles // 2, save)
    result = handle.wait()
    machine.close()
    start = time.perf_counter()
    emu.open(spec).close()
    build = time.perf_counter() - start
    start = time.perf_counter()
    again = emu.restore(path)
    restore = time.perf_counter() - start
    if again.kept["handle"].wait() != result:
        raise RuntimeError(f"{spec}: the restored machine came to another result")
    cards = again.cards
    again.close()
    with CheckpointReader(path) as file:
        memory = sum(file.stored(name) for name in file.sections if name.startswith("memory "))
    size = path.stat().st_size
    return (f"| {cards:,} | {size / 1e6:.1f} MB | {memory / 1e6:.1f} MB | {saves[0]:.2f} s | "
            f"{restore - build:.2f} s | {build:.2f} s |")


if __name__ == "__main__":
    main(sys.argv[1:] or ["torus:4x4x4"])
