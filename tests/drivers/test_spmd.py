"""Collectives from the point of view of one rank: what belongs together, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.spmd import CollectiveMismatchError

from .test_supernode import CUBE, machine


@pytest.fixture
def sn():
    return machine("ring:3")


def arrays(sn, count, dtype="f32", value=None):
    return [sn.malloc(count, dtype, card).write(
        np.full(count, card + 1 if value is None else value).astype(np.float32))
        for card in range(sn.cards)]


def wait_all(handles):
    for handle in list(handles):
        handle.wait()


def test_a_collective_starts_with_the_last_call_and_ends_on_all(sn):
    mine = arrays(sn, 10)
    handles = [sn.rank(card).allreduce(mine[card]) for card in (2, 0)]
    assert not any(handle.done for handle in handles)
    assert sn.cycle == machine("ring:3").cycle
    handles.append(sn.rank(1).allreduce(mine[1]))
    assert handles[0].wait() is handles[2].wait()
    assert all(handle.done for handle in handles)
    assert all((array.read() == 6).all() for array in mine)


def test_ranks_may_run_ahead_of_each_other(sn):
    first, second = arrays(sn, 5), arrays(sn, 7)
    early = [sn.rank(0).allreduce(first[0]), sn.rank(0).allgather(
        sn.malloc(1, "f32", 0).write(np.ones(1, np.float32)), sn.malloc(3, "f32", 0))]
    early += [sn.rank(0).broadcast(second[0], root=2)]
    for card in (1, 2):
        rank = sn.rank(card)
        out = rank.malloc(3, "f32")
        rank.allreduce(first[card])
        rank.allgather(rank.malloc(1, "f32").write(np.full(1, card + 1, np.float32)), out)
        rank.broadcast(second[card], root=2)
    for handle in early:
        handle.wait()
    assert (first[0].read() == 6).all() and out.read().tolist() == [1, 2, 3]
    assert all((array.read() == 3).all() for array in second)


@pytest.mark.parametrize(("wrong", "text"), [
    (lambda rank: rank.allgather(None, rank.malloc(12, "f32")),
     "rank 0 calls allreduce of 12 f32 by sum in place, and rank 1 calls allgather of 12 f32"),
    (lambda rank: rank.allreduce(rank.malloc(11, "f32")), "and rank 1 calls allreduce of 11 f32"),
    (lambda rank: rank.allreduce(rank.malloc(12, "bf16")), "and rank 1 calls allreduce of 12 bf16"),
    (lambda rank: rank.allreduce(rank.malloc(12, "f32"), algorithm="tree"), "by algorithm tree"),
    (lambda rank: rank.allreduce(rank.malloc(12, "f32"), rank.malloc(12, "f32")),
     "and rank 1 calls allreduce of 12 f32 by sum"),
    (lambda rank: rank.reduce(rank.malloc(12, "f32"), root=1), "reduce of 12 f32 by sum with root"),
    (lambda rank: rank.barrier(), "and rank 1 calls barrier")])
def test_ranks_that_call_different_things_are_told_all_of_them(sn, wrong, text):
    mine = arrays(sn, 12)
    handles = [sn.rank(0).allreduce(mine[0]), wrong(sn.rank(1)), sn.rank(2).allreduce(mine[2])]
    for handle in handles:
        with pytest.raises(CollectiveMismatchError, match=text):
            handle.wait()
    assert all((array.read() == card + 1).all() for card, array in enumerate(mine))
    # What they call next belongs together again.
    handles = [sn.rank(card).allreduce(mine[card]) for card in range(3)]
    handles[1].wait()
    assert (mine[0].read() == 6).all()


def test_waiting_for_who_has_not_called_names_them(sn):
    handle = sn.rank(1).barrier()
    with pytest.raises(CollectiveMismatchError,
                       match="rank 1 waits for barrier, which rank 0, 2 has not called"):
        handle.wait()


def test_every_rooted_and_blocked_collective_has_its_view(sn):
    ranks = [sn.rank(card) for card in range(3)]
    mine = arrays(sn, 6)
    out = [rank.malloc(2, "f32") for rank in ranks]
    wait_all(rank.reduce_scatter(array, result)
             for rank, array, result in zip(ranks, mine, out, strict=True))
    assert all(result.read().tolist() == [6, 6] for result in out)
    total = ranks[1].malloc(6, "f32")
    wait_all(rank.reduce(array, total if rank.rank == 1 else None, root=1)
             for rank, array in zip(ranks, mine, strict=True))
    assert (total.read() == 6).all() and (mine[1].read() == 2).all()
    sent = [rank.malloc(3, "f32").write(np.arange(3, dtype=np.float32) + 10 * rank.rank)
            for rank in ranks]
    got = [rank.malloc(3, "f32") for rank in ranks]
    wait_all(rank.alltoall(array, result)
             for rank, array, result in zip(ranks, sent, got, strict=True))
    assert got[1].read().tolist() == [1, 11, 21]
    rows = ((1, 2, 0), (0, 1, 2), (2, 0, 1))
    got = [rank.malloc(sum(row[rank.rank] for row in rows), "f32") for rank in ranks]
    wait_all(rank.alltoall(array, result, counts=rows[rank.rank])
             for rank, array, result in zip(ranks, sent, got, strict=True))
    assert got[0].read().tolist() == [0, 20, 21] and got[2].read().tolist() == [11, 12, 22]


def test_messages_match_one_by_one(sn):
    a, b = sn.rank(0), sn.rank(2)
    source = [a.malloc(4, "f32").write(np.full(4, value, np.float32)) for value in (5, 6)]
    target = [b.malloc(4, "f32") for _ in range(2)]
    handles = [a.send(source[0], 2), a.send(source[1], 2), b.recv(target[0], 0)]
    handles.append(b.recv(target[1], 0))
    for handle in handles:
        handle.wait()
    assert [array.read()[0] for array in target] == [5, 6]
    lonely = b.recv(target[0], 0)
    with pytest.raises(CollectiveMismatchError, match="recv of 4 f32 from rank 0, which rank 0"):
        lonely.wait()
    a.send(a.malloc(3, "f32"), 2)
    with pytest.raises(CollectiveMismatchError, match=r"recv of 4 f32 .* send of 3 f32 to rank 2"):
        lonely.wait()


def test_groups_number_their_members():
    sn = machine("torus:2x2x2", params=CUBE)
    group = sn.group([6, 3])
    mine = [sn.malloc(2, "f32", card).write(np.full(2, card, np.float32)) for card in (6, 3)]
    handles = [group.rank(member).allreduce(mine[member]) for member in (0, 1)]
    assert [handle.rank for handle in handles] == [6, 3]
    handles[0].wait()
    assert mine[1].read().tolist() == [9, 9]
    with pytest.raises(ValueError, match="numbered from 0 to 1, and 2 is none"):
        group.rank(2)
