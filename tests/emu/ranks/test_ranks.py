"""A machine in several processes does what it does in one, and ends as a whole."""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

import pytest

from emu.ranks.launch import RankDied, launch
from tests.emu.cli.invoke import invoke
from tests.emu.machines import FLAT_MACHINES, MACHINES, flat_machine
from tests.emu.test_exactness import assert_same, run

PROGRAM = Path(__file__).with_name("program.py")


def start(folder, ranks, task, *arguments):
    """Run a task of the program; return its exit status. No process is left when it has ended."""
    try:
        return launch(ranks, [str(folder), task, *arguments],
                      program=[sys.executable, str(PROGRAM)])
    finally:
        pids = [path.stem for path in folder.glob("*.pid")]
        assert len(pids) == ranks
        end = time.monotonic() + 10
        while any(is_running(pid) for pid in pids):
            assert time.monotonic() < end, f"some of the processes {pids} are left"


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def compare(folder, ranks, names):
    assert start(folder, ranks, "compare", "3", *names) == 0
    for (name, options), found in pickle.loads((folder / "results").read_bytes()).items():
        assert_same(found, run(MACHINES[name], 3, **dict(options)))


@pytest.mark.parametrize(("ranks", "names"), [
    (2, ["card"]), (3, ["faulty mixed"])])
def test_ranks_change_nothing(tmp_path, ranks, names):
    compare(tmp_path, ranks, names)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_no_number_of_ranks_changes_anything(tmp_path, ranks):
    # Only the mixed machine has as many as four nodes.
    compare(tmp_path, ranks, [name for name in MACHINES if ranks < 4 or "mixed" in name])


@pytest.mark.slow
@pytest.mark.parametrize("cards", [4, 8])
@pytest.mark.parametrize("name", FLAT_MACHINES)
def test_ranks_windows_and_threads_give_the_events_of_one_flat_design(tmp_path, name, cards):
    reference = run(flat_machine(name, cards), cards, flat=True)
    for ranks in (2, 3, 4):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        assert start(folder, ranks, "windows", str(cards), name) == 0
        for found in pickle.loads((folder / "results").read_bytes()).values():
            assert_same(found, reference)


def test_a_rank_that_is_killed_ends_the_run_on_all(tmp_path):
    with pytest.raises(RankDied, match=r"a rank, process \d+, died: Killed \(signal 9\); the "
                       "run is over on all 3 ranks"):
        start(tmp_path, 3, "killed")


def test_a_rank_that_fails_ends_the_run_on_all_and_says_why(tmp_path, capsys):
    assert start(tmp_path, 2, "failing") == 1
    assert capsys.readouterr().err == "supernode: error: rank 1: out of luck\n"


def test_an_interrupt_is_taken_at_a_boundary_and_the_machine_can_go_on(tmp_path, capsys):
    assert start(tmp_path, 2, "interrupted") == 0
    assert capsys.readouterr().out == "went on, True, 1\n"


def test_the_first_broken_rule_is_told_whichever_rank_has_it_and_refusals_come_to_rank_0(
        tmp_path, capsys):
    assert start(tmp_path, 3, "broken") == 0
    broken, *refused = capsys.readouterr().out.splitlines()
    assert broken.startswith("card 2 memory port") and "in cycle 1 is beyond the memory" in broken
    assert refused == [
        "the memory of card 2 is in another process: it can be read and written, not shared",
        "NoneType", "card 2 has no input no"]


@pytest.mark.parametrize(("ranks", "parts"), [
    ("0", ["--ranks", "0", "x>=1"]), ("many", ["--ranks", "'many'"])])
def test_a_bad_number_of_ranks_is_refused(capsys, ranks, parts):
    outcome = invoke(capsys, f"run allreduce --topology ring:2 --ranks {ranks}")
    assert outcome.status == 2
    assert all(part in outcome.error for part in parts)


def test_more_ranks_than_nodes_are_refused(capsys):
    outcome = invoke(capsys, "run allreduce --topology ring:2 --ranks 3 --preset small")
    assert outcome.status == 2
    assert "3 ranks cannot share 2 nodes" in outcome.error
