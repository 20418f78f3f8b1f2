"""Events reach a listener while a machine runs, and are those of the whole log."""

from __future__ import annotations

import numpy as np
import pytest

from emu.library import EventKind

from ..machines import MACHINES


@pytest.mark.parametrize("kinds", [frozenset(EventKind), frozenset((
    EventKind.HEADER, EventKind.ACTIVITY, EventKind.HOST_WRITE))], ids=["all", "some"])
def test_pieces_make_up_the_log_of_the_kinds_that_were_asked_for(kinds) -> None:
    machine = MACHINES["faulty mixed"]
    whole, fabric = machine.open(3, event_log=True, faults=machine.faults)
    machine.workload(whole)
    log = fabric.event_log()
    fabric.close()
    log = log[np.isin(log["kind"], list(kinds))]

    piecewise, fabric = machine.open(3, event_log=kinds, faults=machine.faults)
    pieces: list[np.ndarray] = []
    fabric.listener = pieces.append
    machine.workload(piecewise)
    rest = fabric.event_log()
    fabric.close()
    assert len(pieces) > 10
    assert np.array_equal(np.concatenate([*pieces, rest]), log)
    assert set(log["kind"]) == set(kinds)
