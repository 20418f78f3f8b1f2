"""A link that dies under traffic: everybody concerned gets an error that names it, within a bound;
nobody else notices; and a link that comes back works again."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from drivers.handle import OperationError
from emu.faults import Faults, Outage
from hdl.layouts import Status
from hdl.registers import RegisterMap

DEADLINE = 4000
#: Cycles beyond the deadline within which every card concerned has its error: what the cards still
#: do before the last of them waits in vain, and the watchdogs' own time. Stated in docs/faults.md.
SLACK = 500
START = 12_800


def machine(fail: int, end: int | None = None, *, cards: int = 8, **options):
    """A ring whose cable from card 1 to card 2 fails at a cycle."""
    return emu.open(f"ring:{cards}", preset="small", memory_bytes=1 << 20, deadline=DEADLINE,
                    faults=Faults(outages=[Outage(node=1, port=0, start=fail, end=end)]), **options)


def arrays_of(sn, cards, count, seed=0):
    rng = np.random.default_rng(seed)
    values = [rng.integers(-8, 8, count).astype(np.float32) for _ in cards]
    return [sn.malloc(count, "f32", card).write(each)
            for card, each in zip(cards, values, strict=True)], np.sum(values, axis=0)


def works(sn, cards, count=3000):
    """An AllReduce over ``cards`` is right."""
    arrays, total = arrays_of(sn, cards, count, seed=7)
    sn.allreduce(arrays).wait(200_000)
    for array in arrays:
        assert np.array_equal(array.read(), total)
    sn.free(*arrays)


def sent_by(sn, source, target, seed):
    """A write between two cards; its cycles."""
    values = np.random.default_rng(seed).integers(0, 256, 5000, np.uint8)
    a, b = sn.malloc(5000, "u8", source).write(values), sn.malloc(5000, "u8", target)
    result = sn.write(a, b, timeout=100_000)
    assert np.array_equal(b.read(), values)
    sn.free(a, b)
    return result.cycles


@pytest.mark.parametrize("after", [0, 40, 500, 1300, 2700])
def test_an_allreduce_whose_link_dies_fails_on_every_card_and_nobody_else_notices(after):
    fail = START + after
    with machine(fail) as sn:
        before = [sent_by(sn, 5, 6, seed) for seed in range(3)]
        arrays, _ = arrays_of(sn, range(4), 20_000)
        sn.backend.advance(START - sn.cycle)
        handle = sn.allreduce(arrays)
        # Neighbours write to each other while the collective dies.
        meanwhile = [sent_by(sn, 5, 6, seed) for seed in range(3)]
        with pytest.raises(OperationError, match=r"dead link 1:\+x \(SIGNAL\)") as caught:
            handle.wait(200_000)
        error = caught.value
        assert {record.card for record in error.records} == {0, 1, 2, 3}
        assert not error.silent
        assert [link.split()[0] for link in error.links] == ["1:+x"]
        assert {record.status for record in error.records} <= {
            Status.LINK_DOWN, Status.TIMEOUT, Status.POISON}
        last = max(record.ended for record in error.records)
        print(f"failed at {fail}: last error {last - fail} cycles later, raised "
              f"{sn.cycle - fail} cycles later; {error}")
        assert last - fail <= DEADLINE + SLACK
        assert sn.cycle - fail <= 2 * DEADLINE + 2 * SLACK
        assert meanwhile == before
        # The rest of the machine goes on, the failed cards included.
        assert [sent_by(sn, 5, 6, seed) for seed in range(3)] == before
        sent_by(sn, 3, 2, 1)
        works(sn, range(4, 8))
        works(sn, (2, 3))
        # What goes over the dead link is refused at once.
        with pytest.raises(OperationError, match=r"LINK_DOWN of link 1:\+x"):
            sent_by(sn, 0, 3, 1)


def test_a_write_over_a_dead_link_comes_back_as_an_error():
    with machine(START) as sn:
        # Some thousand packets come back.
        a, b = sn.malloc(400_000, "u8", 0), sn.malloc(400_000, "u8", 2)
        sn.backend.advance(START + 100 - sn.cycle)
        for ack in (True, False):
            with pytest.raises(OperationError, match=r"with LINK_DOWN of link 1:\+x") as caught:
                sn.write(a, b, ack=ack, timeout=100_000)
            bounced = [r for r in caught.value.records if r.status is Status.LINK_DOWN]
            assert {(record.card, record.peer, record.link) for record in bounced} == {(0, 1, 0)}
            # To send all takes longer than the deadline: let it end.
            sn.backend.advance(20_000)
        # An error for each, and a timeout for that which was not acknowledged; the card goes on.
        assert sn.backend.register_read(0, RegisterMap(sn.params.nic).errors.at()) == 3
        sent_by(sn, 0, 7, 1)
        works(sn, (0, 1))


def test_a_link_that_comes_back_works_again():
    fail, back = START + 900, START + 8000
    with machine(fail, back, cards=4, reliable=True) as sn:
        works(sn, range(4))
        arrays, _ = arrays_of(sn, range(4), 20_000)
        sn.backend.advance(START - sn.cycle)
        with pytest.raises(OperationError, match=r"dead link 1:\+x \(SIGNAL\)") as caught:
            sn.allreduce(arrays).wait(200_000)
        assert {record.card for record in caught.value.records} == set(range(4))
        assert sn.cycle < back + 8000
        sn.backend.advance(max(0, back - sn.cycle) + 2000)
        works(sn, range(4))
        sent_by(sn, 1, 2, 3)
        sent_by(sn, 2, 1, 3)
