"""A machine does the same at the same cycles, however it is run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.library import EventKind

from .machines import FLAT_MACHINES, MACHINES, MEMORY, flat_machine

each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
#: Whole cards as one design take long to build: more than one such design is for the campaigns, as
#: is a plain one, which runs under cocotb too.
each_flat = pytest.mark.parametrize(("machine", "cards"), [
    pytest.param(machine, cards, id=f"{name} {cards}",
                 marks=[pytest.mark.slow] if name == "card" else [])
    for name, machine in MACHINES.items() for cards in machine.flat])

FAULTS = {EventKind.CORRUPT, EventKind.LOST, EventKind.SIGNAL}


def run(machine, cards, **options):
    """Run the machine's workload; return the event log, memories, counts of the links and the last
    cycle."""
    machine_, fabric = machine.open(cards, event_log=True, faults=machine.faults, **options)
    try:
        machine.workload(machine_)
        memories = [fabric.memory_read(node, 0, MEMORY) for node in range(cards)]
        return fabric.event_log(), memories, fabric.link_statistics(), fabric.cycle
    finally:
        fabric.close()


def assert_same(a, b):
    (log_a, memories_a, *rest_a), (log_b, memories_b, *rest_b) = a, b
    least = min(len(log_a), len(log_b))
    differing = np.flatnonzero(log_a[:least] != log_b[:least])
    assert not len(differing), f"first difference: {log_a[differing[0]]} and {log_b[differing[0]]}"
    assert len(log_a) == len(log_b) and rest_a == rest_b
    assert all(np.array_equal(x, y) for x, y in zip(memories_a, memories_b, strict=True))


@each_machine
def test_the_workload_causes_events_of_every_kind(machine):
    log, _, links, _ = run(machine, 2)
    assert set(log["kind"]) == set(EventKind) - (set() if machine.faults else FAULTS)
    keys = log[["cycle", "node", "port", "kind"]]
    assert np.array_equal(keys, np.sort(keys)) and len(np.unique(keys)) == len(log)
    for kind, counted in ((EventKind.LINK, "words"), (EventKind.CORRUPT, "corrupted"),
                          (EventKind.LOST, "lost")):
        assert sum(getattr(link, counted) for link in links) == np.sum(log["kind"] == kind)


@each_machine
def test_every_legal_window_gives_the_same_events(machine):
    reference = run(machine, 3, window=1)
    for window in range(2, machine.latency + 1):
        assert_same(run(machine, 3, window=window), reference)


@each_machine
def test_threads_change_nothing(machine):
    reference = run(machine, 3, threads=1)
    assert_same(run(machine, 3, threads=2), reference)
    assert_same(run(machine, 3, threads=3, window=1), reference)


@pytest.mark.slow
@each_machine
def test_threads_windows_and_stalls_change_nothing_in_any_combination(machine):
    for options in ({}, {"seed": 5, "stall_rate": 0.25}, {"skip_idle": False}):
        reference = run(machine, 3, threads=1, window=1, **options)
        for threads in (1, 2, 3, 4):
            for window in range(1, machine.latency + 1):
                assert_same(run(machine, 3, threads=threads, window=window, **options), reference)


@each_machine
def test_skipping_idle_tiles_changes_nothing(machine):
    assert_same(run(machine, 3, skip_idle=True), run(machine, 3, skip_idle=False))


@each_machine
@pytest.mark.parametrize("seed", [1, 2])
def test_random_memory_stalls_are_the_same_in_every_window_and_without_skipping(machine, seed):
    options = {"seed": seed, "stall_rate": 0.3}
    reference = run(machine, 2, **options)
    assert_same(run(machine, 2, window=3, **options), reference)
    assert_same(run(machine, 2, skip_idle=False, **options), reference)


@each_flat
def test_one_flat_design_gives_the_same_events(machine, cards):
    assert_same(run(machine, cards), run(machine, cards, flat=True))
    assert_same(run(machine, cards, seed=3, stall_rate=0.2),
                run(machine, cards, seed=3, stall_rate=0.2, flat=True))


@pytest.mark.slow
@pytest.mark.parametrize("cards", [4, 8])
@pytest.mark.parametrize("name", FLAT_MACHINES)
def test_one_flat_design_gives_the_events_of_every_window_and_number_of_threads(name, cards):
    machine = flat_machine(name, cards)
    reference = run(machine, cards, flat=True)
    assert not machine.faults or EventKind.LOST in reference[0]["kind"]
    for threads in (1, 2, 3, 4):
        for window in range(1, machine.latency + 1):
            assert_same(run(machine, cards, threads=threads, window=window), reference)


@pytest.mark.parametrize("name", ["toy", "mixed"])
def test_faults_that_never_happen_change_nothing(name):
    machine, faulty = MACHINES[name], MACHINES[f"faulty {name}"]
    absent = replace(faulty.faults, errors=None, links={}, outages=[
        replace(faulty.faults.outages[0], start=1 << 40, end=None)])
    assert_same(run(machine, 2), run(replace(machine, faults=absent), 2))
