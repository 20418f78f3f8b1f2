"""Schedules: what the checker refuses, and what the compiler makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drivers.collectives import (
    Buffer,
    Collective,
    Done,
    Placement,
    Region,
    Schedule,
    ScheduleError,
    Send,
    Setting,
    Signal,
    Task,
    Wait,
    check,
    compile_schedule,
    ring,
)
from drivers.collectives.ring import ring_shape
from drivers.commands import packet_count
from drivers.dtypes import DTYPES
from hdl.layouts import Op
from hdl.params import preset

F32 = DTYPES["f32"]
PARAMS = preset("default")


def allreduce(members: int, count: int, in_place: bool = True) -> Task:
    return Task(Collective.ALLREDUCE, members, (count,), in_place=in_place)


def ring_of(members: int = 3, count: int = 6, in_place: bool = True) -> Schedule:
    return ring(allreduce(members, count, in_place), Setting(PARAMS, 4, tuple(range(members))))


@pytest.mark.parametrize("members", [2, 3, 8])
def test_a_ring_member_sends_no_more_than_it_must(members):
    schedule = ring_of(members, 1024 * members)
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


# --- what must be refused

def change(schedule: Schedule, position: int, index: int, *steps) -> Schedule:
    """Replace one step by any number of others."""
    lists = list(schedule.lists)
    lists[position] = (*lists[position][:index], *steps, *lists[position][index + 1:])
    return replace(schedule, lists=tuple(lists))


def sends(schedule: Schedule, position: int) -> list[int]:
    return [i for i, step in enumerate(schedule.lists[position]) if isinstance(step, Send)]


def made(name: str, count: int, *lists, in_place: bool = True) -> Schedule:
    """A schedule of an allreduce that is not one."""
    return Schedule(name, allreduce(len(lists), count, in_place), lists, (0,) * len(lists))


def add(peer: int, start: int, count: int, **more) -> Send:
    region = Region(start, count)
    return Send(peer=peer, source=region, target=region, addend=region, notify="data", **more)


@pytest.mark.parametrize("which", range(1, 4))
def test_a_missing_wait_is_a_race_between_named_steps(which):
    schedule = ring_of()
    index = sends(schedule, 1)[which]
    broken = change(schedule, 1, index, replace(schedule.lists[1][index], waits=()))
    with pytest.raises(ScheduleError, match=rf"step {index} of member 1 .* race for "
                                            r"output\[\d:\d\] of member"):
        check(broken)


def test_a_missing_ready_wait_touches_an_unsignalled_peer():
    schedule = ring_of()
    index = sends(schedule, 2)[0]
    broken = change(schedule, 2, index, replace(schedule.lists[2][index], waits=()))
    with pytest.raises(ScheduleError, match=rf"step {index} of member 2 .* touches the buffer of "
                                            r"0, which has not signalled"):
        check(broken)


def test_a_contribution_added_twice_is_named():
    send = add(0, 0, 4, waits=(Wait("go", 1),))
    schedule = made("twice", 4, (Signal(peer=1, notify="go"), Done(waits=(Wait("data", 2),))),
                    (send, replace(send, source=Region(2, 2), target=Region(2, 2),
                                   addend=Region(2, 2)), Done()))
    with pytest.raises(ScheduleError, match=r"step 1 of member 1 .* adds the contributions of 1 a "
                                            r"second time"):
        check(schedule)


def test_a_contribution_left_out_is_named():
    schedule = ring_of(2)
    # Member 0 keeps its chunk to itself and only says that it came.
    index = sends(schedule, 0)[0]
    step = schedule.lists[0][index]
    broken = change(schedule, 0, index, Signal(peer=1, notify=step.notify, waits=step.waits))
    with pytest.raises(ScheduleError, match=r"output\[0:3\] of member \d ends with the "
                                            r"contributions of 1 from 0 on instead of 0, 1 from 0"):
        check(broken)


def test_contributions_of_other_elements_are_not_the_same():
    schedule = ring_of(2, in_place=False)
    index = sends(schedule, 0)[0]
    step = schedule.lists[0][index]
    broken = change(schedule, 0, index, replace(step, source=replace(step.source, start=1)))
    with pytest.raises(ScheduleError, match=r"contributions of 1 from 0 on and 0 from 1 on instead "
                                            r"of 0, 1 from 0 on"):
        check(broken)


def test_what_nobody_has_written_is_not_given_away():
    schedule = ring_of(2, in_place=False)
    index = sends(schedule, 0)[0]
    step = schedule.lists[0][index]
    source = replace(step.source, buffer=Buffer.OUTPUT)
    with pytest.raises(ScheduleError, match=r"takes what nobody has written to output\[0:3\] of "
                                            r"member 0"):
        check(change(schedule, 0, index, replace(step, source=source)))
    with pytest.raises(ScheduleError, match=r"takes what nobody has written to output\[0:3\] of "
                                            r"member 1"):
        check(change(schedule, 0, index, replace(step, addend=step.target)))


def test_two_reductions_into_one_element_in_open_order_are_a_race():
    schedule = made(
        "fan-in", 4,
        (Signal(peer=1, notify="go"), Signal(peer=2, notify="go"), Done(waits=(Wait("data", 2),))),
        (add(0, 0, 4, waits=(Wait("go", 1),)), Done()),
        (add(0, 2, 2, waits=(Wait("go", 1),)), Done()))
    with pytest.raises(ScheduleError, match=r"(?=.*step 0 of member 1)(?=.*step 0 of member 2)"
                                            r".* race for output\[2:4\] of member 0"):
        check(schedule)


def test_a_counter_that_is_shared_by_separately_awaited_senders_is_refused():
    send = add(0, 0, 2, waits=(Wait("go", 1),))
    back = Send(peer=1, source=Region(0, 2), target=Region(0, 2), notify="back",
                waits=(Wait("data", 1),))
    schedule = made(
        "shared", 4,
        (Signal(peer=1, notify="go"), Signal(peer=2, notify="go"), back,
         Done(waits=(Wait("data", 2),))),
        (send, Signal(peer=0, notify="ready"), Done(waits=(Wait("back", 1),))),
        (add(0, 2, 2, waits=(Wait("go", 1),)), Done()))
    with pytest.raises(ScheduleError, match=r"step 2 of member 0 .* step 0 of member 1 .* shares "
                                            r"with step 0 of member 2"):
        check(schedule)


def test_arrivals_on_two_rails_have_no_order():
    schedule = made(
        "rails", 4,
        (Signal(peer=1, notify="go"), Signal(peer=1, notify="x", waits=(Wait("data", 1),)),
         Done(waits=(Wait("data", 2),))),
        (add(0, 0, 2, waits=(Wait("go", 1),)), add(0, 2, 2, rail=1), Done(waits=(Wait("x", 1),))))
    with pytest.raises(ScheduleError, match=r"step 0 of member 1 .* shares with step 1 of member "
                                            r"1 .* order is open"):
        check(schedule)


def test_waiting_for_more_than_is_sent_is_refused():
    schedule = ring_of()
    done = len(schedule.lists[0]) - 1
    broken = change(schedule, 0, done, Done(waits=(Wait("from 2", 99),)))
    with pytest.raises(ScheduleError, match="waits for 99 arrivals at a counter that gets 4"):
        check(broken)


def test_lists_that_wait_for_each_other_are_refused():
    lists = tuple((Signal(peer=1 - me, notify="go", waits=(Wait("go", 1),)), Done())
                  for me in range(2))
    with pytest.raises(ScheduleError, match=r"does not end: step 0 of member 0 .* waits forever; "
                                            r"step 0 of member 1"):
        check(made("embrace", 1, *lists))


def test_a_member_that_is_done_too_early_is_refused():
    schedule = ring_of()
    done = len(schedule.lists[2]) - 1
    broken = change(schedule, 2, done, Done(waits=(Wait("from 1", 3), Wait("ready", 1))))
    with pytest.raises(ScheduleError, match=rf"step {done} of member 2 \(done after .*\) does not "
                                            r"wait for step \d of member 1"):
        check(broken)


def test_a_barrier_that_leaves_someone_out_is_refused():
    task = Task(Collective.BARRIER, 3, ())
    lists = ((Signal(peer=1, notify="x"), Done(waits=(Wait("x", 1),))),
             (Signal(peer=0, notify="x"), Done(waits=(Wait("x", 1),))), (Done(),))
    with pytest.raises(ScheduleError, match=r"step 1 of member 0 .* does not wait for member 2"):
        check(Schedule("barrier", task, lists, (0, 0, 0)))


@pytest.mark.parametrize(("step", "text"), [
    (Signal(peer=7, notify="x"), "has no peer 7"),
    (add(1, 5, 2), "not in the buffer"), (add(1, 0, 0), "empty"),
    (replace(add(1, 0, 2), addend=Region(0, 1)), "different sizes"),
    (replace(add(1, 0, 2), target=Region(0, 1)), "different sizes"),
    (replace(add(1, 0, 2), addend=Region(1, 2)), "overlap"),
    (Send(peer=0, source=Region(0, 2), target=Region(1, 2), notify="x"), "overlap"),
    (Send(peer=1, source=Region(0, 2), target=Region(0, 2, Buffer.SCRATCH), notify="x"),
     "not in the buffer"),
    (Done(), "not the last")])
def test_malformed_steps_are_refused(step, text):
    schedule = change(ring_of(), 0, 0, step, ring_of().lists[0][0])
    with pytest.raises(ScheduleError, match=text):
        check(schedule)
    with pytest.raises(ScheduleError, match="does not end with a done"):
        check(made("open", 1, (Signal(peer=0, notify="x"),)))


def test_inputs_are_not_written_and_only_sums_add():
    schedule = ring_of(in_place=False)
    index = sends(schedule, 0)[0]
    step = schedule.lists[0][index]
    target = replace(step.target, buffer=Buffer.INPUT)
    with pytest.raises(ScheduleError, match="writes to an input"):
        check(change(schedule, 0, index, replace(step, target=target, addend=target)))
    task = Task(Collective.BROADCAST, 3, (6,), in_place=True)
    with pytest.raises(ScheduleError, match="adds in a collective that does not"):
        check(replace(ring_of(), task=task))


# --- compilation

@pytest.mark.parametrize("count", [1, 7, 1000])
def test_compiled_waits_are_packet_totals_and_the_last_command_signals(count):
    schedule = ring_of(3, count, in_place=False)
    placements = [Placement(node, {Buffer.INPUT: 1 << 14, Buffer.OUTPUT: 4096 * node + 4 * node})
                  for node in range(3)]
    counters = {key: (number, 1000 * number) for number, key in enumerate(schedule.arrivals)}
    compiled = compile_schedule(schedule, placements, F32, mtu=256, counters=counters)
    arrived: dict[tuple[int, int], int] = {}
    for commands in compiled.lists:
        assert commands[-1].op is Op.FENCE and commands[-1].signal
        assert not any(command.signal for command in commands[:-1])
        for command in commands:
            if command.op in (Op.WRITE, Op.REDUCE):
                assert not command.ack
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
    schedule = ring_of(3, 1)
    counters = {key: (number, 0) for number, key in enumerate(schedule.arrivals)}
    compiled = compile_schedule(schedule, [Placement(n, {Buffer.OUTPUT: 0}) for n in range(3)], F32,
                                mtu=256, counters=counters)
    ops = [command.op for command in compiled.lists[1]]
    assert ops == [Op.WRITE, Op.NOP, Op.REDUCE, Op.FENCE]


def test_an_addend_elsewhere_is_named_and_one_in_the_target_is_not():
    schedule = ring_of(2, 64, in_place=False)
    counters = {key: (number, 0) for number, key in enumerate(schedule.arrivals)}
    places = {Buffer.INPUT: 4096, Buffer.OUTPUT: 8192}
    compiled = compile_schedule(schedule, [Placement(n, places) for n in range(2)], F32, mtu=256,
                                counters=counters)
    apart = next(command for command in compiled.lists[0] if command.op is Op.REDUCE)
    assert apart.addend == apart.address - 4096 and apart.source == apart.addend
    schedule = ring_of(2, 64)
    compiled = compile_schedule(schedule, [Placement(n, places) for n in range(2)], F32, mtu=256,
                                counters=counters)
    assert next(command for command in compiled.lists[0]
                if command.op is Op.REDUCE).addend is None
