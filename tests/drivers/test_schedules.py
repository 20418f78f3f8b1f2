"""Schedules: the ring's shape, what the checker refuses, what the compiler makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.collectives import (
    Done,
    Placement,
    Region,
    Schedule,
    ScheduleError,
    Send,
    Signal,
    Wait,
    check,
    compile_schedule,
    reference,
    ring_allreduce,
)
from drivers.collectives.ring import ring_shape
from drivers.commands import packet_count
from drivers.dtypes import DTYPES
from hdl.layouts import Op
from hdl.params import preset

F32 = DTYPES["f32"]


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("count", [0, 1, 3, 17, 1023, 4096])
@pytest.mark.parametrize(("granule", "parts"), [(1, 1), (1, 4), (8, 2)])
def test_ring_schedules_are_proved(members, count, granule, parts):
    check(ring_allreduce(members, count, granule=granule, parts=parts))


@pytest.mark.parametrize("members", [2, 3, 8])
def test_a_ring_member_sends_no_more_than_it_must(members):
    schedule = ring_allreduce(members, 1024 * members, parts=4)
    for steps in schedule.lists:
        sent = sum(step.source.count for step in steps if isinstance(step, Send))
        assert sent == 2 * (members - 1) * 1024


@pytest.mark.parametrize("size", [4, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24])
def test_parts_leave_time_for_a_step_and_stay_few(size):
    params = preset("default")
    granule, parts = ring_shape(params, 8, size // 4, 4, 1)
    chunk = size // 8
    assert 1 <= parts <= 8
    assert granule * 4 in (4, 32, 1024) and (granule == 1 or chunk >= 32 * granule * 4)
    if size == 1 << 20:
        cycles = chunk // 32
        assert (granule, parts) == (256, 2)
        assert cycles - cycles // parts >= 2 * (2 * params.memory.latency + params.link.latency)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_reference_adds_in_ring_order(dtype):
    members, count = 5, 23
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(count).astype(np.float32).astype(DTYPES[dtype].numpy)
              for _ in range(members)]
    outputs = reference(ring_allreduce(members, count), inputs, dtype)
    start = 0
    for chunk, region in enumerate(Region(0, count).split(members)):
        total = inputs[chunk][region.start:region.end]
        for step in range(1, members):  # each member adds what arrives to what it has
            total = inputs[(chunk + step) % members][region.start:region.end] + total
        for output in outputs:
            assert output[region.start:region.end].tobytes() == total.tobytes()
        start = region.end
    assert start == count


# --- what must be refused

def ring(members: int = 3, count: int = 6, parts: int = 1) -> Schedule:
    return ring_allreduce(members, count, parts=parts)


def change(schedule: Schedule, position: int, index: int, *steps) -> Schedule:
    """Replace one step by any number of others."""
    lists = list(schedule.lists)
    lists[position] = (*lists[position][:index], *steps, *lists[position][index + 1:])
    return replace(schedule, lists=tuple(lists))


def sends(schedule: Schedule, position: int) -> list[int]:
    return [i for i, step in enumerate(schedule.lists[position]) if isinstance(step, Send)]


@pytest.mark.parametrize("which", range(1, 4))
def test_a_missing_wait_is_a_race_between_named_steps(which):
    schedule = ring()
    index = sends(schedule, 1)[which]
    step = schedule.lists[1][index]
    broken = change(schedule, 1, index, replace(step, waits=()))
    with pytest.raises(ScheduleError, match=rf"step {index} of member 1 .* race for \[\d:\d\] of "
                                            r"member"):
        check(broken)


def test_a_missing_ready_wait_touches_an_unsignalled_peer():
    schedule = ring()
    index = sends(schedule, 2)[0]
    broken = change(schedule, 2, index, replace(schedule.lists[2][index], waits=()))
    with pytest.raises(ScheduleError, match=rf"step {index} of member 2 .* touches the buffer of "
                                            r"0, which has not signalled"):
        check(broken)


def test_a_contribution_added_twice_is_named():
    send = Send(peer=0, source=Region(0, 4), target=Region(0, 4), notify="data", reduce=True,
                waits=(Wait("go", 1),))
    lists = ((Signal(peer=1, notify="go"), Done(waits=(Wait("data", 2),))),
             (send, replace(send, source=Region(2, 2), target=Region(2, 2)), Done()))
    with pytest.raises(ScheduleError, match=r"step 1 of member 1 .* adds the contributions of 1 to "
                                            r"\[2:4\] a second time"):
        check(Schedule("twice", 4, lists, ((), ())))


def test_a_contribution_left_out_is_named():
    schedule = ring(2)
    # Member 0 keeps its chunk to itself and only says that it came.
    index = sends(schedule, 0)[0]
    step = schedule.lists[0][index]
    broken = change(schedule, 0, index, Signal(peer=1, notify="reduce", waits=step.waits))
    with pytest.raises(ScheduleError, match=r"\[0:3\] of member \d ends with the contributions of "
                                            r"1 instead of 0, 1"):
        check(broken)


def test_two_reductions_into_one_element_in_open_order_are_a_race():
    lists = ((Signal(peer=1, notify="go"), Signal(peer=2, notify="go"),
              Done(waits=(Wait("data", 2),))),
             (Send(peer=0, source=Region(0, 4), target=Region(0, 4), notify="data", reduce=True,
                   waits=(Wait("go", 1),)), Done()),
             (Send(peer=0, source=Region(2, 2), target=Region(2, 2), notify="data", reduce=True,
                   waits=(Wait("go", 1),)), Done()))
    everyone = frozenset(range(3))
    schedule = Schedule("fan-in", 4, lists, (((Region(2, 2), everyone),), (), ()))
    with pytest.raises(ScheduleError, match=r"(?=.*step 0 of member 1)(?=.*step 0 of member 2)"
                                            r".* race for \[2:4\] of member 0"):
        check(schedule)


def test_a_counter_that_is_shared_by_separately_awaited_senders_is_refused():
    send = Send(peer=0, source=Region(0, 2), target=Region(0, 2), notify="data",
                waits=(Wait("go", 1),))
    lists = ((Signal(peer=1, notify="go"), Signal(peer=2, notify="go"),
              Send(peer=1, source=Region(0, 2), target=Region(0, 2), notify="back",
                   waits=(Wait("data", 1),)),
              Done(waits=(Wait("data", 2),))),
             (send, Signal(peer=0, notify="ready"), Done(waits=(Wait("back", 1),))),
             (replace(send, source=Region(2, 2), target=Region(2, 2)), Done()))
    schedule = Schedule("shared", 4, lists, ((), (), ()))
    with pytest.raises(ScheduleError, match=r"step 2 of member 0 .* step 0 of member 1 .* shares "
                                            r"with step 0 of member 2"):
        check(schedule)


def test_waiting_for_more_than_is_sent_is_refused():
    schedule = ring()
    done = len(schedule.lists[0]) - 1
    broken = change(schedule, 0, done, Done(waits=(Wait("gather", 99),)))
    with pytest.raises(ScheduleError, match="waits for 99 arrivals at a counter that gets 2"):
        check(broken)


def test_lists_that_wait_for_each_other_are_refused():
    lists = tuple((Signal(peer=1 - me, notify="go", waits=(Wait("go", 1),)), Done())
                  for me in range(2))
    with pytest.raises(ScheduleError, match=r"does not end: step 0 of member 0 .* waits forever; "
                                            r"step 0 of member 1"):
        check(Schedule("embrace", 1, lists, ((), ())))


def test_a_member_that_is_done_too_early_is_refused():
    schedule = ring()
    done = len(schedule.lists[2]) - 1
    broken = change(schedule, 2, done, Done(waits=(Wait("gather", 1),)))
    with pytest.raises(ScheduleError, match=rf"step {done} of member 2 \(done after gather≥1\) "
                                            r"does not wait for step \d of member 1"):
        check(broken)


@pytest.mark.parametrize(("step", "text"), [
    (Send(peer=0, source=Region(0, 1), target=Region(0, 1), notify="x"), "has no peer 0"),
    (Signal(peer=7, notify="x"), "has no peer 7"),
    (Send(peer=1, source=Region(5, 2), target=Region(4, 2), notify="x"), "not in the buffer"),
    (Send(peer=1, source=Region(0, 0), target=Region(0, 0), notify="x"), "empty"),
    (Send(peer=1, source=Region(0, 1), target=Region(0, 2), notify="x"), "different sizes"),
    (Done(), "not the last")])
def test_malformed_steps_are_refused(step, text):
    schedule = change(ring(), 0, 0, step, ring().lists[0][0])
    with pytest.raises(ScheduleError, match=text):
        check(schedule)
    with pytest.raises(ScheduleError, match="does not end with a done"):
        check(Schedule("open", 1, ((Signal(peer=0, notify="x"),),), ((),)))


# --- compilation

@pytest.mark.parametrize("count", [1, 7, 1000])
def test_compiled_waits_are_packet_totals_and_the_last_command_signals(count):
    schedule = ring_allreduce(3, count, parts=2)
    placements = [Placement(node, 4096 * node + 4 * node) for node in range(3)]
    counters = {key: (number, 1000 * number) for number, key in enumerate(schedule.arrivals)}
    compiled = compile_schedule(schedule, placements, F32, mtu=256, counters=counters)
    arrived: dict[tuple[int, int], int] = {}
    for position, commands in enumerate(compiled.lists):
        assert commands[-1].op is Op.FENCE and commands[-1].signal
        assert not any(command.signal for command in commands[:-1])
        for command in commands:
            if command.op in (Op.WRITE, Op.REDUCE):
                assert command.node != position and not command.ack
                key = (command.node, command.target_counter)
                arrived[key] = arrived.get(key, 0) + packet_count(
                    command.address, command.length, 256)
    for (position, name), packets in compiled.packets.items():
        number, before = counters[position, name]
        assert arrived[position, number] == packets
        # The last wait of the member for this counter names everything that arrives.
        waits = [command.wait[1] for command in compiled.lists[position]
                 if command.wait and command.wait[0] == number]
        assert waits == sorted(set(waits)) and waits[-1] == before + packets


def test_a_step_with_two_waits_gets_a_nop():
    # With one element, member 1's first send waits for its peer and for data.
    schedule = ring_allreduce(3, 1)
    counters = {key: (number, 0) for number, key in enumerate(schedule.arrivals)}
    compiled = compile_schedule(schedule, [Placement(n, 0) for n in range(3)], F32, mtu=256,
                                counters=counters)
    ops = [command.op for command in compiled.lists[1]]
    assert ops == [Op.WRITE, Op.NOP, Op.REDUCE, Op.FENCE]
