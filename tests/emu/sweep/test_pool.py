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


def test_runs_go_to_the_cluster_of_a_scheduler() -> None:
    with LocalCluster(n_workers=1, threads_per_worker=3, processes=False, memory_limit=None,
                      dashboard_address=None) as cluster, \
            processes(2, cluster.scheduler_address) as spread:
        batches = list(spread(work, [(name,) for name in "abcd"]))
    # Three threads of one process are still one process, so every run ends alone.
    assert [[found[0] for _, found in batch] for batch in batches] == [["a"], ["b"], ["c"], ["d"]]
    # It belongs to somebody else: its signals stay what they are.
    assert not any(found[4] for batch in batches for _, found in batch)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_no_scheduler_is_said_so(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emu.sweep.pool.PATIENCE_S", 0.5)
    with pytest.raises(NoCluster, match=address), processes(1, address):
        pass
