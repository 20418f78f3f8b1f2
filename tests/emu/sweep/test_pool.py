"""Processes have one run at a time; one that dies loses its own run and no other."""

from __future__ import annotations

import itertools
import os

import pytest
from distributed import LocalCluster

from emu.sweep import LostRun, NoCluster, processes

from .jobs import work


def test_a_process_that_dies_loses_its_own_run_and_no_other() -> None:
    names = ["a", "b", "die", "c", "d", "e"]
    with processes(2) as spread:
        found = dict(itertools.chain.from_iterable(spread(work, [(name,) for name in names])))
    assert sorted(found) == list(range(len(names)))
    assert isinstance(found.pop(2), LostRun)
    assert [found[index][0] for index in sorted(found)] == ["a", "b", "c", "d", "e"]
    by_process: dict[int, list[tuple[float, float]]] = {}
    for _, process, start, end, deaf in found.values():
        by_process.setdefault(process, []).append((start, end))
        assert deaf
    assert os.getpid() not in by_process
    assert len(by_process) >= 2
    for spans in by_process.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.slow
def test_runs_go_to_the_cluster_of_a_scheduler() -> None:
    with LocalCluster(n_workers=2, threads_per_worker=4, processes=False, memory_limit=None,
                      dashboard_address=None) as cluster, \
            processes(7, cluster.scheduler_address) as spread:
        jobs = [(name,) for name in "abcdefghij"]
        found = dict(itertools.chain.from_iterable(spread(work, jobs)))
    assert "".join(found[index][0] for index in range(10)) == "abcdefghij"
    # Two workers have two runs at a time, however many threads they have.
    spans = [(start, end) for _, _, start, end, _ in found.values()]
    assert max(sum(start <= now < end for start, end in spans) for now, _ in spans) <= 2
    # It belongs to somebody else: its signals stay what they are.
    assert not any(deaf for *_, deaf in found.values())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_no_scheduler_is_said_so(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emu.sweep.pool.PATIENCE_S", 0.5)
    with pytest.raises(NoCluster, match=address), processes(1, address):
        pass
