"""A machine does the same at the same cycles, however it is run."""

from __future__ import annotations

import numpy as np
import pytest

from emu.emulator import EngineBackend
from hdl.topology import parse

from .machines import MACHINES

each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())

MEMORY = 1 << 20


def run(machine, cards, **options):
    """Run the machine's workload; return the event log, memories and the last cycle."""
    backend = EngineBackend(parse(f"ring:{cards}"), machine.params, tiles=machine.tiles,
                            memory_bytes=MEMORY, event_log=True, **options)
    try:
        machine.workload(backend)
        memories = [backend.memory_view(rank).copy() for rank in range(cards)]
        return backend.event_log(), memories, backend.cycle
    finally:
        backend.close()


def assert_same(a, b):
    (log_a, memories_a, cycle_a), (log_b, memories_b, cycle_b) = a, b
    differing = np.flatnonzero(log_a[:len(log_b)] != log_b[:len(log_a)])
    assert not len(differing), f"first difference: {log_a[differing[0]]} and {log_b[differing[0]]}"
    assert len(log_a) == len(log_b) and cycle_a == cycle_b
    assert all(np.array_equal(x, y) for x, y in zip(memories_a, memories_b, strict=True))


@each_machine
def test_the_workload_causes_events_of_every_kind(machine):
    log, _, _ = run(machine, 2)
    assert set(log["kind"]) == set(range(9))
    keys = log[["cycle", "node", "port", "kind"]]
    assert np.array_equal(keys, np.sort(keys)) and len(np.unique(keys)) == len(log)


@each_machine
def test_every_legal_window_gives_the_same_events(machine):
    reference = run(machine, 4, window=1)
    for window in range(2, machine.params.link.latency + 1):
        assert_same(run(machine, 4, window=window), reference)


@each_machine
def test_skipping_idle_tiles_changes_nothing(machine):
    assert_same(run(machine, 4, skip_idle=True), run(machine, 4, skip_idle=False))


@each_machine
@pytest.mark.parametrize("seed", [1, 2])
def test_random_memory_stalls_are_the_same_in_every_window_and_without_skipping(machine, seed):
    options = {"seed": seed, "stall_rate": 0.3}
    reference = run(machine, 2, **options)
    assert_same(run(machine, 2, window=3, **options), reference)
    assert_same(run(machine, 2, skip_idle=False, **options), reference)


@pytest.mark.parametrize("cards", [2, 4])
@each_machine
def test_one_flat_design_gives_the_same_events(machine, cards):
    assert_same(run(machine, cards), run(machine, cards, flat=True))
    assert_same(run(machine, cards, seed=3, stall_rate=0.2),
                run(machine, cards, seed=3, stall_rate=0.2, flat=True))
