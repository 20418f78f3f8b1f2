"""A whole machine, drivers included, goes on from a checkpoint as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from drivers.supernode import SuperNode
from emu.checkpoint import CheckpointError
from emu.emulator import EngineBackend
from emu.faults import BitErrors, Faults
from hdl.params import preset
from hdl.topology import parse

from ..machines import MEMORY, reliable

#: Of bit errors that reliable links survive.
NOISE = Faults(errors=BitErrors(rate=3e-5))


def start(seed: int, *, entries: int = 8, noisy: bool = False) -> SuperNode:
    """A machine with all kinds of work under way: sums, products and a write that overlap, and more
    commands than its rings hold."""
    params = preset("small")
    machine = SuperNode(
        EngineBackend(parse("ring:2"), reliable(params) if noisy else params, memory_bytes=MEMORY,
                      event_log=True, seed=seed, stall_rate=0.1, faults=NOISE if noisy else None),
        queue_entries=entries, completion_entries=entries)
    rng = np.random.default_rng(seed)
    cards = range(machine.cards)
    arrays = [machine.malloc(1500, "f32", card).write(rng.standard_normal(1500, np.float32))
              for card in cards]
    products = []
    for card in cards:
        for _ in range(3):
            a, b = machine.malloc((5, 20), "e4m3", card), machine.malloc((20, 6), "e5m2", card)
            for operand in (a, b):
                codes = rng.integers(0, 120, operand.shape, dtype=np.uint8)
                machine.backend.memory_write(card, operand.offset, codes)
            products.append((a, b, machine.malloc((5, 6), "f32", card)))
    machine.kept = {"arrays": arrays, "results": [c for _, _, c in products], "handles": [
        machine.allreduce(arrays), machine.gemms(products),
        machine.start_write(arrays[0].view(700, 300), arrays[1].view(0, 300), ack=False),
        machine.allreduce([array.view(0, 300) for array in arrays], algorithm="ring")]}
    return machine


def finish(machine: SuperNode) -> dict[str, Any]:
    """Wait for all of it, and start more; what came of it."""
    results = [handle.wait() for handle in machine.kept["handles"]]
    if "last" not in machine.kept:  # else the checkpoint is from after its start
        machine.kept["last"] = machine.allreduce(machine.kept["arrays"])
    results.append(machine.kept["last"].wait())
    again = machine.malloc(10, "f32", 0)
    return {"results": results, "again": again.offset, "cycle": machine.cycle,
            "arrays": [array.read().tobytes() for array in
                       machine.kept["arrays"] + machine.kept["results"]],
            "links": machine.backend.link_statistics(),
            "log": machine.backend.event_log().tobytes()}


def saving(machine: SuperNode, cycles: int, path: Callable[[int], Path]) -> list[Path]:
    """Let it be saved to a file of its own every so many cycles."""
    files: list[Path] = []

    def save() -> None:
        files.append(path(len(files)))
        machine.save(files[-1])

    machine.save_every(cycles, save)
    return files


@pytest.mark.parametrize("options", [{}, {"entries": 64}, {"entries": 64, "noisy": True}],
                         ids=["full rings", "wide rings", "noisy links"])
def test_every_checkpoint_of_a_run_leads_to_the_same_end(tmp_path, seed, options):
    reference = finish(start(seed, **options))
    saved = start(seed, **options)
    files = saving(saved, 64, lambda count: tmp_path / f"{count}.ckpt")
    assert finish(saved) == reference, "saving changes what happens"
    assert len(files) > 4
    for count, file in enumerate(files[::2]):
        with emu.restore(file, window=1 + count % 5, threads=1 + count % 2) as machine:
            # Saved again, at other instants, it still comes to the same end.
            saving(machine, 192, lambda _: tmp_path / "again.ckpt")
            assert finish(machine) == reference, file
    with emu.restore(tmp_path / "again.ckpt") as machine:
        assert finish(machine) == reference


def test_what_the_caller_saves_between_two_calls_goes_on_too(tmp_path, seed):
    machine = start(seed)
    machine.kept["handles"][1].wait()
    machine.kept["notes"] = {"text": "half", "numbers": [1, 2.5, None, True]}
    machine.save(tmp_path / "a.ckpt")
    reference = finish(machine)
    with emu.restore(tmp_path / "a.ckpt") as again:
        assert again.kept["notes"] == machine.kept["notes"]
        assert again.kept["handles"][1].wait() == machine.kept["handles"][1].wait()
        assert finish(again) == reference
    machine.kept["code"] = [machine.close]
    with pytest.raises(ValueError, match=r"kept\['code'\] holds a method: accepted are arrays"):
        machine.save(tmp_path / "b.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


ELSEWHERE = """
import hashlib, sys
import emu
from tests.emu.checkpoint.test_machine import finish
print(hashlib.sha256(repr(finish(emu.restore(sys.argv[1]))).encode()).hexdigest())
"""


def test_another_process_takes_over(tmp_path, seed):
    import hashlib

    machine = start(seed, entries=64, noisy=True)
    saving(machine, 400, lambda _: tmp_path / "a.ckpt")
    reference = hashlib.sha256(repr(finish(machine)).encode()).hexdigest()
    found = subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path / "a.ckpt")],
                           capture_output=True, text=True, check=True, timeout=300,
                           cwd=Path(__file__).parents[3])
    assert found.stdout.strip() == reference


def test_a_machine_that_failed_to_be_saved_goes_on(tmp_path, seed):
    reference = finish(start(seed))
    machine = start(seed)
    files = []

    def save() -> None:
        files.append(machine.cycle)
        with pytest.raises(CheckpointError, match="No such file"):
            machine.save(tmp_path / "absent" / "a.ckpt")

    machine.save_every(100, save)
    assert finish(machine) == reference and files


#: Attributes that are no state of the drivers: what they are made of, and links to each other.
NO_STATE = {
    "SuperNode": {"_backend", "_options", "_deadline", "_autosave", "world"},
    "Device": {"backend", "rank", "_registers", "_records", "_record_count", "_deadline"},
    "Allocator": {"_name", "_align", "_size"},
    "CounterPool": {"_name"},
    "Handle": {"_supernode"},
    "_Queue": {"index", "entries", "base"},
    "_Staged": set(), "Operation": set(), "Lease": {"_devices"},
}
#: The others, which a restored machine has as they were.
STATE = {
    "SuperNode": {"devices", "active", "routes", "kept", "passing"},
    "Device": {"memory", "counters", "_lists", "_direct", "consumed", "_signals", "_operations",
               "_next_tag", "_tails", "_waited", "_recent"},
    "Allocator": {"_holes", "_used"},
    "CounterPool": {"_totals", "_free"},
    "Handle": {"operation", "bound", "lease", "schedule", "order", "algorithm", "reason",
               "result"},
    "_Queue": {"tail", "head", "waiting"},
    "_Staged": {"operation", "tag", "commands", "taken"},
    "Operation": {"name", "pending", "records"},
    "Lease": {"held"},
}


def test_every_attribute_of_the_drivers_is_saved_or_known_to_be_no_state(tmp_path, seed):
    machine = start(seed)
    device = next(each for each in machine.devices if each.backlog)
    handle = machine.active[0]
    staged = (device._lists.waiting or device._direct.waiting)[0]
    objects = [machine, device, device.memory, device.counters, device._lists, staged, handle,
               handle.operation, handle.lease]
    assert {type(each).__name__ for each in objects} == STATE.keys() == NO_STATE.keys()
    for each in objects:
        name = type(each).__name__
        assert vars(each).keys() == STATE[name] | NO_STATE[name], name
    machine.save(tmp_path / "a.ckpt")
    with emu.restore(tmp_path / "a.ckpt") as again:
        assert _plain(again) == _plain(machine)


def test_a_machine_whose_ranks_are_in_the_middle_of_a_call_is_not_saved(tmp_path):
    with emu.open("ring:2", preset="small", memory_bytes=1 << 20) as machine:
        arrays = [machine.rank(card).malloc(4, "f32") for card in range(2)]
        machine.rank(0).allreduce(arrays[0])
        with pytest.raises(ValueError, match="some ranks have called a collective that others"):
            machine.save(tmp_path / "a.ckpt")
        machine.rank(1).allreduce(arrays[1]).wait()
        machine.save(tmp_path / "a.ckpt")


def _plain(value: Any, depth: int = 0) -> Any:
    """What a machine's drivers hold, in a form that can be compared."""
    assert depth < 20
    name = type(value).__name__
    if name in STATE:
        return {key: _plain(getattr(value, key), depth + 1) for key in sorted(STATE[name])
                if (name, key) != ("Handle", "schedule")}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if name == "CommandList":
        return _plain(vars(value), depth + 1)
    if isinstance(value, dict):
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)) or name == "deque":
        return [_plain(each, depth + 1) for each in value]
    return value
