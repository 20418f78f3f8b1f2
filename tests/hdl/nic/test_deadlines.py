"""Deadlines of the NIC: what happens to commands whose answers, or whose waits, never come."""

from __future__ import annotations

import os

import cocotb

from hdl.layouts import NO_COUNTER, Op, Status
from hdl.nic.control import Control
from hdl.nic.interfaces import Response
from tests.bench import elaborated, run_bench
from tests.hdl.nic.control_bench import PARAMS, World, number
from tests.hdl.nic.test_control_random import traffic

#: Most cycles by which a deadline is overrun: the watchdog looks at slots and queues in turn.
SLACK = 2 * (PARAMS.nic.slots + PARAMS.nic.queues + 1) + 8
ACKED = {"op": Op.WRITE, "length": 64, "target": {"node": 7},
         "flags": {"ack": 1, "signal": 1}}


async def record(world: World, command) -> dict:
    """The record of a command, once it is there."""
    def found() -> list[dict]:
        return [r for r in world.records if r["tag"] == command.tag and r["queue"] != 0xF]
    await world.bench.until(lambda: bool(found()), f"record of command {command.tag}")
    assert len(found()) == 1
    return found()[0]


def held(world: World, counter: int = 3, **fields) -> dict:
    return {"op": Op.NOP, "wait_counter": counter, "wait_value": world.totals[counter] + 1,
            "flags": {"wait": 1, "signal": 1}, **fields}


@cocotb.test()
async def a_wait_ends_with_timeout_and_the_queue_goes_on(dut) -> None:
    world = World(dut, PARAMS, deadline=300, skip=True)
    await world.start()
    for queue in range(world.queues):
        first, then = world.post(queue, held(world)), world.post(
            queue, {"op": Op.NOP, "flags": {"signal": 1}})
        await world.settle()
        posted = world.bench.cycle
        ended = await record(world, first)
        assert ended["status"] is Status.TIMEOUT and (ended["peer"], ended["link"]) == (0, 0)
        assert posted + 290 <= ended["ended"] <= posted + 300 + 30 + SLACK
        assert (await record(world, then))["status"] is Status.OK
    assert world.bench.skipped > 600, "waiting for a deadline is idle"
    # With nothing under way there is no deadline, after one last look.
    await world.bench.cycles(1000)
    assert int(dut.idle.value) and int(dut.wake.value) == (1 << 48) - 1
    assert await world.get("errors") == world.queues
    assert await world.get("waited") >= 300 * world.queues


@cocotb.test()
async def a_wait_that_is_over_in_time_is_no_timeout(dut) -> None:
    world = World(dut, PARAMS, deadline=200, skip=True)
    await world.start()
    for delay in (190, 100, 1):
        waiting = world.post(0, held(world))
        await world.settle()
        await world.bench.cycles(delay)
        world.adds[0].append(3)
        assert (await record(world, waiting))["status"] is Status.OK
        world.totals[3] += 1
    # One that is woken again and again and never gets there does not escape.
    world.pulses = (range(5, 6), 0.3)
    waiting = world.post(1, held(world, 5, wait_value=world.totals[5] + 10_000))
    await world.settle()
    posted = world.bench.cycle
    ended = await record(world, waiting)
    assert ended["status"] is Status.TIMEOUT and ended["ended"] <= posted + 200 + 30 + SLACK


@cocotb.test()
async def the_rest_of_a_list_ends_with_its_first_timeout(dut) -> None:
    world = World(dut, PARAMS, deadline=300)
    await world.start()
    tag = 77
    wait = held(world, tag=tag) | {"flags": {"wait": 1}}
    world.post(0, wait)
    world.by_tag[tag] = None
    for _ in range(3):
        world.post(0, ACKED | {"tag": tag, "flags": {"ack": 1}})
    world.post(0, {"op": Op.FENCE, "tag": tag, "flags": {"signal": 1}})
    # Another queue's command with that tag, and the next list, are none of it.
    other = world.post(1, {"op": Op.NOP, "tag": tag, "flags": {"signal": 1}})
    after = world.post(0, ACKED | {"tag": 78})
    await world.settle()
    start = world.bench.cycle
    await world.bench.until(lambda: any(r["tag"] == 78 for r in world.records), "next list")
    assert world.bench.cycle < start + 300 + 100 + SLACK
    seen = [(r["queue"], r["op"], r["status"]) for r in world.records if r["tag"] == tag]
    assert seen == [(1, Op.NOP, Status.OK), (0, Op.NOP, Status.TIMEOUT),
                    (0, Op.FENCE, Status.TIMEOUT)]
    assert [transfer["tag"] for _, _, transfer in world.offers] == [78]
    assert after.fields["tag"] == 78 and other.queue == 1
    assert await world.get("errors") == 5


@cocotb.test()
async def late_answers_are_not_those_of_the_slots_next_command(dut) -> None:
    """One tag for all, so that only the generation tells them apart."""
    world = World(dut, PARAMS, deadline=300, loss=1.0)
    await world.start()
    lost = []
    for _ in range(7):  # generations repeat after eight ends of one slot
        lost.append(world.post(0, ACKED | {"length": 600}))
        ended = await record(world, lost[-1])
        assert ended["status"] is Status.TIMEOUT
        assert ended["started"] + 300 <= ended["ended"] <= ended["started"] + 300 + SLACK
    assert await world.get("slots_busy") == 0
    world.loss = 0.0
    old = [command.plan["key"] for command in lost]
    for _ in range(3 * PARAMS.nic.slots):
        command = world.post(0, ACKED | {"length": 600})
        await world.bench.until(lambda command=command: command.offered is not None, "transfer")
        # Answers of all who have been in a slot come first, and are errors.
        for slot, generation in old:
            world.answers[0].insert(0, number(
                Response, slot=slot, generation=generation, ack=1, tag=command.tag, peer=9,
                status=Status.TARGET_RANGE))
            world.in_slot[slot, generation] = lost[0]
        assert (await record(world, command))["status"] is Status.OK
        old = old[1:] or old
    assert await world.get("slots_busy") == 0


@cocotb.test()
async def a_transfer_that_its_rail_still_sends_keeps_its_slot(dut) -> None:
    world = World(dut, PARAMS, deadline=200, automatic=False)
    await world.start()
    stuck = [world.post(0, {"op": Op.WRITE, "rail": rail, "flags": {"ack": ack, "signal": 1}})
             for rail, ack in ((0, 1), (1, 0))]
    for command in stuck:
        ended = await record(world, command)
        assert ended["status"] is Status.TIMEOUT
    busy = await world.get("slots_busy")
    assert busy.bit_count() == 2 and int(dut.idle.value)
    # The queues go on with the slots that are left, fences included.
    fence = world.post(0, {"op": Op.FENCE, "flags": {"signal": 1}})
    assert (await record(world, fence))["status"] is Status.OK
    world.automatic = True
    await world.bench.until(lambda: not any(map(any, (world.dones, world.answers)))
                            and not any(world.live), "end of both transfers")
    await world.bench.cycles(20)
    assert await world.get("slots_busy") == 0
    for rail in range(PARAMS.rails):
        for _ in range(2 * PARAMS.nic.slots):
            command = world.post(1, ACKED | {"rail": rail, "length": 300})
            assert (await record(world, command))["status"] is Status.OK


@cocotb.test()
async def the_first_error_that_came_back_says_more_than_timeout(dut) -> None:
    world = World(dut, PARAMS, deadline=200, automatic=False)
    await world.start()
    command = world.post(0, ACKED | {"length": 600})
    await world.bench.until(lambda: command.offered is not None, "transfer")
    transfer = world.live[0][0]
    world.in_slot[transfer["slot"], 0] = command
    command.plan = {"tag": command.tag, "events": 9, "lost": 2, "key": (transfer["slot"], 0)}
    world.answers[0].append(number(Response, slot=transfer["slot"], ack=1, tag=command.tag,
                                   status=Status.LINK_DOWN, peer=0x0102, link=5))
    ended = await record(world, command)
    assert (ended["status"], ended["peer"], ended["link"]) == (Status.LINK_DOWN, 0x0102, 5)
    assert ended["started"] + 200 <= ended["ended"]


@cocotb.test()
async def random_losses_cost_their_commands_and_nothing_else(dut) -> None:
    """Random commands on all queues, some of whose answers are lost; waits may time out too."""
    deadline = 2500
    world = World(dut, PARAMS, rate=0.6, deadline=deadline, loss=0.1, skip=True)
    await world.start()
    world.drain = 0.3
    world.pulses = (range(4), 0.05)
    await traffic(world, int(os.environ.get("BENCH_COMMANDS", "200")))
    await world.bench.until(lambda: not world.operations and all(map(world.done, world.commands)),
                            "end of all commands")
    world.pulses = (range(1), 0.0)
    await world.bench.cycles(deadline)
    await world.settle()
    timeouts = 0
    for command in world.commands:
        mine = [r for r in world.records if r["tag"] == command.tag and r["queue"] != 0xF]
        assert len(mine) <= 1
        if command.plan.get("lost"):
            ended, = mine
            assert ended["status"] is (command.outcome[0] if command.outcome[0] is not Status.OK
                                       else Status.TIMEOUT)
            assert deadline <= ended["ended"] - ended["started"] <= deadline + SLACK
            timeouts += 1
        elif mine:
            assert mine[0]["status"] is command.status, command.fields
    assert timeouts
    assert await world.get("slots_busy") == 0
    assert int(dut.idle.value)
    total = 2 * PARAMS.nic.slots
    world.loss = 0.0
    for _ in range(total):
        command = world.post(0, ACKED | {"length": 300, "local_counter": NO_COUNTER})
        assert (await record(world, command))["status"] is Status.OK


def test_deadlines_end_what_nobody_answers() -> None:
    run_bench(elaborated(Control, PARAMS), __name__)
