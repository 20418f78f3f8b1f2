"""The cycles that docs/architecture.md tells of one remote write, from the event log."""

from __future__ import annotations

import numpy as np
import pytest

import emu

LINK, READ_REQUEST, WRITE = 0, 1, 3


@pytest.fixture(scope="module")
def events():
    """One acknowledged write of 1 KiB between neighbours: events by kind, cycles from its post."""
    values = np.arange(1024, dtype=np.uint16).astype(np.uint8)
    with emu.open("ring:2", memory_bytes=1 << 22, event_log=True) as sn:
        source = sn.malloc(1024, "u8", 0).write(values)
        target = sn.malloc(1024, "u8", 1)
        record, = sn.write(source, target).completions
        assert np.array_equal(target.read(), values)
        log = sn.backend.event_log()

    def cycles(node, kind):
        chosen = log[(log["node"] == node) & (log["kind"] == kind) & (log["cycle"] > record.posted)]
        return (chosen["cycle"] - record.posted).tolist()

    return cycles, record


def test_the_waterfall_of_a_write_is_as_documented(events):
    cycles, record = events
    assert record.started - record.posted == 3
    reads = cycles(0, READ_REQUEST)
    assert (reads[0], len(reads)) == (5, 32) and np.all(np.diff(reads) == 1)
    flits = cycles(0, LINK)[:33]
    assert flits[0] == 74 and np.all(np.diff(flits) == 1)
    writes = cycles(1, WRITE)
    assert (writes[0], writes[-1], len(writes)) == (97, 128, 32)
    assert cycles(1, LINK)[-1] == 133
    assert record.ended - record.posted == 155
    assert cycles(0, WRITE) == [157]
