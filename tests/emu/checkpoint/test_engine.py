"""A fabric that was saved and restored, however often and wherever, does what it would have done.

Every comparison is of complete event logs, memories, counts of links and time with those of a run
that was left alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emu.checkpoint import CheckpointError, CheckpointReader
from emu.fabric import Fabric
from emu.library import Outcome
from emu.traffic.patterns import parse_pattern
from emu.traffic.setup import Load, Sizes

from ..machines import LATENCY, MACHINES, MEMORY, MIXED, mixed_fabric, toy_card, toy_params
from ..test_exactness import assert_same, run
from ..traffic.networks import traffic_network
from .members import members
from .restarting import restarting


@pytest.mark.parametrize(("name", "options"), [
    (name, options) for name, machine in MACHINES.items()
    for options in ({}, *[{"stall_rate": 0.3, "seed": 1}, {"flat": True},
                          {"lanes": 64, "threads": 1}] * ("toy" in name))])
def test_restarts_change_nothing(tmp_path, seed, name, options):
    machine = MACHINES[name]
    restarts: list[int] = []

    def open_restarting(cards, **given):
        device, fabric = machine.open(cards, **given)
        restarts.append(restarting(fabric, tmp_path / "a.ckpt", seed, gap=150))
        return device, fabric

    cards = 2 if "flat" in options else 3
    reference = run(machine, cards, **options)
    assert_same(run(replace(machine, open=open_restarting), cards, **options), reference)
    assert len(restarts[0]) > 5, restarts


def test_restarts_change_nothing_of_traffic(tmp_path, seed):
    logs = []
    for restarted in (False, True):
        with traffic_network("torus:3x2", event_log=True) as network:
            restarts = (restarting(network.fabric, tmp_path / "a.ckpt", seed, gap=100)
                        if restarted else [])
            network.load(Load(parse_pattern("uniform", network.topology), 0.3,
                              Sizes((1, 3), (1.0, 1.0)), seed=seed), measure_from=0)
            network.fabric.advance(1000)
            network.stop()
            totals = network.read_all()
            logs.append((network.fabric.event_log(), totals.sum("received_packets"),
                         network.fabric.link_statistics()))
    assert np.array_equal(logs[0][0], logs[1][0]) and logs[0][1:] == logs[1][1:]
    assert logs[0][1] > 500 and len(restarts) > 5


def test_a_failed_save_leaves_a_fabric_that_goes_on(tmp_path):
    machine = MACHINES["mixed"]
    reference = run(machine, 3)

    def open_unsaved(cards, **given):
        fabric, _ = machine.open(cards, **given)
        with pytest.raises(CheckpointError, match="absent"):
            fabric.save(tmp_path / "absent" / "a.ckpt")
        return fabric, fabric

    assert_same(run(replace(machine, open=open_unsaved), 3), reference)
    assert not list(tmp_path.iterdir())


def test_a_restore_takes_no_time_and_forgets_nothing_for_the_host(tmp_path):
    fabric = mixed_fabric()
    fabric.advance(320)
    fabric.host_write(0, 0, 0)
    fabric.save(tmp_path / "a.ckpt", about={"why": "test"}, host={"some": [1, 2.5, None, "x"]})
    with CheckpointReader(tmp_path / "a.ckpt") as file:
        assert file.manifest["why"] == "test" and file.manifest["cycle"] == 320
    again = _unstarted()
    assert again.restore(tmp_path / "a.ckpt") == {"some": [1, 2.5, None, "x"]}
    assert again.cycle == 320 and again.status(0).host_operations == 1
    assert again.run((), 320) is Outcome.DEADLINE


def _unstarted(**options: object) -> Fabric:
    """The fabric of :func:`mixed_fabric`, whose kinds and options may be others."""
    whole = mixed_fabric()
    kinds = options.pop("kinds", whole.kinds)
    links = options.pop("links", MIXED)
    return Fabric(kinds, links, **{"latency": LATENCY, "quantum": 32, "memory_bytes": MEMORY}
                  | options)


@pytest.mark.parametrize(("options", "message"), [
    ({"seed": 3}, "seed is 0 there and 3 here"),
    ({"quantum": 64}, "quantum is 32 there and 64 here"),
    ({"event_log": True}, r"event_log is \[\] there and \[0, 1"),
    ({"memory_bytes": 2 * MEMORY}, f"memory_bytes is {MEMORY} there and {2 * MEMORY} here"),
    ({"latency": [9, *LATENCY[1:]]}, "links is "),
    ({"kinds": [toy_card(toy_params())] * 4}, "it has nodes of kind switch, and here are card"),
    ({"faults": MACHINES["faulty mixed"].faults}, "faults is "),
])
def test_a_checkpoint_of_another_fabric_is_refused(tmp_path, options, message):
    mixed_fabric().save(tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=message) as error:
        _unstarted(**options).restore(tmp_path / "a.ckpt")
    assert "\n" not in str(error.value)


def test_other_rtl_is_refused_and_named(tmp_path):
    mixed_fabric().save(tmp_path / "a.ckpt")
    other = _unstarted()
    made = other._made[0]
    other._made = [replace(made, models=("network_0", made.models[1])), *other._made[1:]]
    with pytest.raises(CheckpointError, match="tile network of card has other RTL, "
                                              r"network_[0-9a-f]{8} there and network_0 here"):
        other.restore(tmp_path / "a.ckpt")


def test_parts_of_another_shape_are_refused_by_the_engine():
    fabric, other = mixed_fabric(), _unstarted()
    part = bytes(fabric.save_part(1))
    for wrong in (b"", part[:-1], part + b"\0", bytes(len(part)), bytes(fabric.save_part(4))):
        with pytest.raises(RuntimeError, match=r"saved by|saved with"):
            other.restore_part(1, wrong)
    fabric.restore_part(1, part)


#: Members of the engine's classes that are no state: made anew from what a fabric is built of, or
#: computed in each cycle before they are used.
NO_STATE = {
    "TimedRing": set(),
    "ReadPort": {"pins_", "port_", "memory_"},
    "WritePort": {"pins_", "port_", "memory_"},
    "Faults": {"errors", "outages"},
    "Link": {"spec", "number", "length", "outbox", "next",  # the node has the latter
             "unseen_"},
    "Flow": {"format_"},
    "LinkPort": {"in", "out", "tx", "rx"},  # the node archives the first
    "Joint": {"source", "bit", "sink", "out", "in"},
    "Tile": {"kind", "pins", "writes", "model",  # the node archives the latter
             "offers", "moved", "first_read", "first_write", "host", "first_stream", "first_due"},
    "Node": {"number", "name", "log_", "progress_", "memory_", "format_", "host_pins_",
             "has_memory_", "signals_", "observed_", "logged_", "link_bits_",
             "due_", "host_due_"},  # rings keep these
    "Group": {"border", "awake_"},
    "EventLog": {"enabled", "kinds_", "taken_"},
    "Fabric": {"error", "saved", "settings_", "flow_format_", "next_", "flat_views_", "models_",
               "nodes_", "groups_", "links_", "node_of_", "group_of_", "link_of_", "rank_of_",
               "thread_of_", "names_", "tile_kinds_", "partitions_", "peers_", "team_",
               # Empty, or set anew, at a boundary of the host.
               "foreign_", "leaving_", "plan_", "boundary_", "passed_", "conditions_", "deadline_",
               "until_", "outcome_", "cut_off_"},
}


@pytest.mark.parametrize("name", NO_STATE)
def test_every_member_of_the_engine_is_saved_or_known_to_be_no_state(name):
    found, archived = members(name)
    assert found - archived == NO_STATE[name]
