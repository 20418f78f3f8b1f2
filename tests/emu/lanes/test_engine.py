"""A fabric in lanes does the same at the same cycles as one of Verilated tiles."""

import pytest

from tests.emu.machines import MACHINES
from tests.emu.test_exactness import assert_same, run


def test_cards_in_lanes_give_the_same_events():
    machine = MACHINES["card"]
    alone = run(machine, 4)
    assert_same(alone, run(machine, 4, lanes=64))
    assert_same(alone, run(machine, 4, lanes=64, skip_idle=False, stall_rate=0.0, threads=2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy", "faulty toy", "mixed", "faulty mixed",
                                  "faulty reliable card"])
def test_any_machine_in_lanes_gives_the_same_events(name):
    machine = MACHINES[name]
    assert_same(run(machine, 3), run(machine, 3, lanes=64))
