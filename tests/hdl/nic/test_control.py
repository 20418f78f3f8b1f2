"""The control side of the NIC as a whole: latency, throughput, and every rule one by one."""

from __future__ import annotations

import cocotb

from hdl.layouts import NO_COUNTER, DType, Op, ReduceOp, Status
from hdl.nic.commands import PREFETCH
from hdl.nic.control import Control
from hdl.nic.interfaces import Response
from hdl.registers import IDENT, RegisterMap
from tests.bench import elaborated, run_bench
from tests.hdl.nic.control_bench import MASK32, MEMORY, NODE, PARAMS, World, number


@cocotb.test()
async def latencies_are_those_of_the_law(dut) -> None:
    latency, flits = 64, 64 // PARAMS.link.flit_bytes
    world = World(dut, PARAMS, latency=latency)
    await world.start()

    async def offered(command) -> int:
        await world.bench.until(lambda: command.offered is not None, "transfer")
        return command.offered

    ring = world.post(0, {"op": Op.WRITE})
    assert await offered(ring) - world.doorbells[0][-1][0] == 5 + latency + flits
    direct = world.post(world.direct, {"op": Op.WRITE})
    assert await offered(direct) - world.doorbells[world.direct][-1][0] == 4
    waiting = world.post(world.direct, {
        "op": Op.WRITE, "flags": {"wait": 1, "signal": 1}, "wait_counter": 3,
        "wait_value": world.totals[3] + 1})
    await world.bench.cycles(100)
    assert int(dut.idle.value) and waiting.offered is None
    world.adds[0].append(3)
    assert await offered(waiting) - world.increments[-1][0] == 3
    await world.finish()
    waited = waiting.record["started"] - (waiting.record["posted"] + 3)
    assert await world.get("waited") == waited
    dut._log.info(f"doorbell to transfer {5 + latency + flits}, direct post to transfer 4, "
                  f"increment to transfer 3")


@cocotb.test()
async def back_to_back_commands_keep_the_rail_busy(dut) -> None:
    world = World(dut, PARAMS, latency=64, ring=64)
    await world.start()

    async def rate(queues: int) -> float:
        before = len(world.offers)
        for queue in range(queues):
            for _ in range(64):
                world.post(queue, {"op": Op.WRITE, "rail": queue}, ring_doorbell=False)
            world.write("queue_tail", world.posted[queue], queue)
        await world.bench.until(lambda: len(world.offers) == before + 64 * queues, "transfers")
        offers = [cycle for cycle, _, _ in world.offers[before:]]
        return (offers[-1] - offers[0]) / (len(offers) - 1)

    one, two = await rate(1), await rate(2)
    dut._log.info(f"cycles per command: one ring {one:.2f}, two rings {two:.2f}")
    assert one <= (64 + 8) / PREFETCH + 0.5
    assert two <= one / 2 + 0.3
    await world.finish()


@cocotb.test()
async def every_error_is_reported_and_the_queue_goes_on(dut) -> None:
    counters = PARAMS.nic.counters
    good: dict = {"op": Op.WRITE, "length": 64, "source": 128, "target": {"offset": 64}}
    add = good | {"op": Op.REDUCE, "dtype": DType.F32}
    half = add | {"dtype": DType.BF16}
    apart = add | {"flags": {"addend": 1}}
    cases = [
        (good | {"op": Op.READ}, Status.BAD_COMMAND), (good | {"op": Op.COPY}, Status.BAD_COMMAND),
        (good | {"op": Op.ATOMIC}, Status.BAD_COMMAND), (good | {"op": 200}, Status.BAD_COMMAND),
        (good | {"count": 2}, Status.BAD_COMMAND), (good | {"count": 1}, Status.OK),
        (good | {"rail": PARAMS.rails}, Status.BAD_COMMAND),
        (good | {"addend": 1}, Status.BAD_COMMAND), (add | {"addend": 64}, Status.BAD_COMMAND),
        (good | {"flags": {"addend": 1}, "addend": 64}, Status.BAD_COMMAND),
        (apart | {"addend": 64}, Status.OK), (apart | {"addend": 1 << 20}, Status.OK),
        (apart | {"addend": 68}, Status.BAD_DTYPE), (apart | {"addend": 65}, Status.BAD_DTYPE),
        (good | {"reserved": 0x8000}, Status.BAD_COMMAND),
        ({"op": Op.NOP, "argument": {"operands": {"compare": 1}}}, Status.BAD_COMMAND),
        ({"op": Op.FENCE, "flags": {"reserved": 1}}, Status.BAD_COMMAND),
        (good | {"local_counter": counters}, Status.BAD_COUNTER),
        (good | {"flags": {"wait": 1}, "wait_counter": counters}, Status.BAD_COUNTER),
        ({"op": Op.NOP, "flags": {"wait": 1}, "wait_counter": NO_COUNTER}, Status.BAD_COUNTER),
        (good | {"target_counter": 254, "key": 1}, Status.OK),
        (good | {"source": MEMORY - 63}, Status.SOURCE_RANGE),
        (good | {"source": MEMORY - 64}, Status.OK),
        (good | {"source": MEMORY, "length": 0}, Status.OK),
        (good | {"source": (1 << 48) - 1, "length": (1 << 32) - 1}, Status.SOURCE_RANGE),
        (add, Status.OK), (half, Status.OK), (add | {"dtype": 7}, Status.BAD_DTYPE),
        (add | {"dtype": 15}, Status.BAD_DTYPE), (add | {"redop": 3}, Status.BAD_DTYPE),
        (add | {"redop": ReduceOp.MIN}, Status.OK), (half | {"redop": ReduceOp.MAX}, Status.OK),
        (add | {"redop": ReduceOp.SWAP}, Status.BAD_DTYPE),
        (add | {"length": 62}, Status.BAD_DTYPE), (add | {"dtype": DType.I32}, Status.OK),
        (add | {"dtype": DType.I32, "length": 62}, Status.BAD_DTYPE),
        (add | {"dtype": DType.F16, "length": 62}, Status.OK),
        (add | {"dtype": DType.F16, "length": 63}, Status.BAD_DTYPE),
        *((add | {"dtype": dtype, "length": 61, "target": {"offset": 63}}, Status.OK)
          for dtype in (DType.E4M3, DType.E5M2, DType.I8)),
        (half | {"length": 62}, Status.OK), (half | {"length": 63}, Status.BAD_DTYPE),
        (add | {"target": {"offset": 66}}, Status.BAD_DTYPE),
        (half | {"target": {"offset": 65}}, Status.BAD_DTYPE),
        (add | {"source": 129}, Status.OK),
        ({"op": Op.GEMM, "source": 64}, Status.BAD_DESCRIPTOR),
        ({"op": Op.GEMM, "source": MEMORY}, Status.SOURCE_RANGE),
        ({"op": Op.GEMM, "source": MEMORY - 128}, Status.OK),
        ({"op": Op.GEMM, "source": 0, "key": 1}, Status.BAD_DESCRIPTOR),
        (good | {"flags": {"ack": 1}, "key": 1}, Status.TARGET_RANGE),
    ]
    world = World(dut, PARAMS)
    await world.start()
    posted = []
    for fields, status in cases:
        if world.posted[0] - (await world.get("queue_head", 0)) >= world.ring:
            await world.bench.cycles(50)
        fields = fields | {"flags": fields.get("flags", {}) | {"signal": 1}}
        if status is not Status.OK and "local_counter" not in fields:
            fields["local_counter"] = 1
        posted.append((world.post(0, fields), status))
        await world.bench.cycles(20)
    # A command that did not ask for acks ends well and its error comes late.
    await world.finish()
    for command, status in posted:
        seen = command.record["status"]
        assert seen is status or (status is Status.TARGET_RANGE and seen is Status.LINK_DOWN), (
            command.fields, seen)


@cocotb.test()
async def waits_compare_modulo_2_to_the_32(dut) -> None:
    world = World(dut, PARAMS)
    await world.start()
    total = world.totals[5]

    async def wait_for(value: int, queue: int = world.direct) -> int:
        world.post(queue, {"op": Op.NOP, "wait_counter": 5, "wait_value": value & MASK32,
                           "flags": {"wait": 1, "signal": 1}})
        before = len(world.records)
        await world.settle()
        await world.bench.cycles(30)
        return len(world.records) - before

    for value in (total, total - 1, total - 0x7FFF_FFFF, total + 0x8000_0001):
        assert await wait_for(value) == 1, hex(value - total)
    for steps in (1, 2, 5):
        assert await wait_for(total + steps) == 0
        held = await world.get("queue_wait", world.direct)
        assert held == 1 | 5 << 8 | (total + steps & MASK32) << 32
        assert int(dut.idle.value)
        before = len(world.records)
        for step in range(steps):
            assert len(world.records) == before
            world.adds[step % PARAMS.rails].append(5)
            await world.bench.cycles(20)
        total += steps
        assert len(world.records) == before + 1
    # Only 2^31 − 1 and 2^31 increments would end these.
    assert await wait_for(total + 0x7FFF_FFFF, 0) == 0
    assert await wait_for(total + 0x8000_0000, 1) == 0
    world.adds[0].extend([5] * 20)
    await world.bench.cycles(100)
    assert len(world.records) == 7 and int(dut.idle.value)


@cocotb.test()
async def an_increment_at_any_moment_ends_the_wait(dut) -> None:
    """No wake-up is lost: the only increment may come while its waiter, or another, is judged."""
    world = World(dut, PARAMS)
    await world.start()
    wait = {"op": Op.NOP, "flags": {"wait": 1, "signal": 1}}
    for delay in range(7):
        world.post(0, wait | {"wait_counter": 1, "wait_value": world.totals[1] + delay + 1})
        await world.settle()
        await world.bench.cycles(30)
        assert len(world.records) == 2 * delay and int(dut.idle.value)
        world.post(world.direct, wait | {"wait_counter": 2,
                                         "wait_value": world.totals[2] + delay + 1})
        await world.settle()
        await world.bench.cycles(delay)
        world.adds[0].append(1)
        world.adds[1].append(2)
        await world.bench.cycles(20)
        assert len(world.records) == 2 * delay + 2, f"a wait outlasts its increment, {delay}"
    await world.finish()


@cocotb.test()
async def simultaneous_increments_all_count(dut) -> None:
    world = World(dut, PARAMS, latency=8)
    await world.start()
    for _ in range(8):
        world.post(0, {"op": Op.NOP, "local_counter": 7, "flags": {"signal": 1}},
                   ring_doorbell=False)
    world.write("queue_tail", world.posted[0], 0)
    for rail in range(PARAMS.rails):
        world.adds[rail].extend([7] * 60)
    await world.finish()
    assert await world.get("counter", 7) == world.totals[7] + 8 + 60 * PARAMS.rails


@cocotb.test()
async def a_full_window_drops_and_counts_posts(dut) -> None:
    world = World(dut, PARAMS)
    await world.start()
    blocker = {"op": Op.NOP, "wait_counter": 2, "wait_value": world.totals[2] + 1,
               "flags": {"wait": 1, "signal": 1}}
    depth = PARAMS.nic.direct_depth
    for index in range(depth + 3):
        world.post(world.direct, blocker if not index else
                   {"op": Op.NOP, "flags": {"signal": 1}})
    await world.settle()
    assert await world.get("direct_lost") == 3
    assert await world.get("direct_taken") == 0
    world.adds[0].append(2)
    await world.bench.until(lambda: len(world.records) == depth, "records")
    more = world.post(world.direct, {"op": Op.NOP, "flags": {"signal": 1}})
    await world.bench.until(lambda: len(world.records) == depth + 1, "record")
    kept = [*world.commands[:depth], more]
    assert [record["tag"] for record in world.records] == [c.tag for c in kept]
    assert await world.get("direct_taken") == depth + 1
    assert await world.get("direct_lost") == 3


@cocotb.test()
async def a_full_completion_ring_holds_records_and_overwrites_none(dut) -> None:
    world = World(dut, PARAMS, records=4)
    await world.start()
    world.drain = 0.0
    world.write("completion_size", 0)
    for _ in range(6):
        world.post(0, {"op": Op.NOP, "flags": {"signal": 1}})
    await world.bench.cycles(60)
    world.post(1, {"op": Op.NOP, "local_counter": 9})
    await world.bench.cycles(60)
    assert int(dut.idle.value) and not world.records
    assert await world.get("slots_busy") == (1 << PARAMS.nic.slots) - 1
    assert await world.get("queue_wait", 0) & 3 == 2
    assert await world.get("queue_wait", 1) & 3 == 2
    assert await world.get("counter", 9) == world.totals[9]
    world.write("completion_size", 4)
    await world.bench.cycles(100)
    assert len(world.records) == 4 and int(dut.idle.value)
    # Slots are free again: the other queue goes on although records wait.
    assert await world.get("counter", 9) == world.totals[9] + 1
    assert await world.get("completion_tail") == 4
    world.write("completion_head", 1)
    world.head = 1
    await world.bench.cycles(50)
    assert len(world.records) == 5
    world.drain = 1.0
    await world.bench.until(lambda: len(world.records) == 6, "records")
    assert [record["tag"] for record in world.records] == [c.tag for c in world.commands[:6]]


@cocotb.test()
async def a_fence_waits_for_its_queue_only(dut) -> None:
    world = World(dut, PARAMS, automatic=False)
    await world.start()
    signal = {"flags": {"signal": 1}}
    first = world.post(0, {"op": Op.WRITE, **signal})
    world.post(0, {"op": Op.FENCE, **signal})
    world.post(0, {"op": Op.NOP, **signal})
    await world.bench.cycles(60)
    assert first.offered is not None and not world.records and int(dut.idle.value)
    assert await world.get("queue_wait", 0) & 3 == 2
    world.post(1, {"op": Op.FENCE, **signal})
    world.post(world.direct, {"op": Op.FENCE, **signal})
    await world.bench.until(lambda: len(world.records) == 2, "other queues' fences")
    assert {record["queue"] for record in world.records} == {1, world.direct}
    world.automatic = True
    await world.finish()
    assert [record["tag"] for record in world.records[2:]] == [1, 2, 3]


@cocotb.test()
async def a_route_command_writes_the_route_table(dut) -> None:
    world = World(dut, PARAMS)
    await world.start()
    writes: list[tuple[int, int]] = []

    def watch() -> None:
        if int(dut.table__valid.value):
            writes.append((world.bench.cycle, int(dut.table__payload.value)))

    world.bench.on_sample(watch)
    words = [world.rng.getrandbits(48) for _ in range(20)]
    waiting = world.post(1, {"op": Op.ROUTE, "source": words[0], "wait_counter": 3,
                             "wait_value": world.totals[3] + 1, "flags": {"wait": 1, "signal": 1}})
    world.post(1, {"op": Op.ROUTE, "source": 5, "rail": 99, "reserved": 1})
    await world.settle()
    await world.bench.cycles(40)
    assert not writes
    world.adds[0].append(3)
    for word in words[1:]:
        world.post(0, {"op": Op.ROUTE, "source": word, "flags": {"signal": 1}})
        await world.bench.cycles(10)
    await world.finish()
    assert sorted(word for _, word in writes) == sorted(words)
    assert (waiting.record["started"] + 1, words[0]) in writes


@cocotb.test()
async def late_errors_are_recorded_once_and_never_stall(dut) -> None:
    world = World(dut, PARAMS)
    await world.start()
    size, errors = world.ring_records, 0

    async def late(*triples, rail: int = 0) -> None:
        for tag, peer, status in triples:
            world.answers[rail].append(number(
                Response, slot=0, ack=0, tag=tag, peer=peer, status=status))
        await world.bench.until(lambda: not world.answers[rail], "responses")
        await world.bench.cycles(30)

    a, b = (700, 1, Status.TARGET_RANGE), (700, 2, Status.TARGET_RANGE)
    await late(a, a, a, b, b, a)
    assert [(r["tag"], r["peer"]) for r in world.records] == [(700, 1), (700, 2), (700, 1)]
    # A command with that tag starts anew; one with another tag does not.
    other = world.post(0, {"op": Op.WRITE, "tag": 701})
    await world.bench.until(lambda: other.last_event is not None, "transfer")
    await late(a)
    assert len(world.records) == 3
    again = world.post(0, {"op": Op.WRITE, "tag": 700})
    await world.bench.until(lambda: again.last_event is not None, "transfer")
    await late(a, a)
    assert len(world.records) == 4
    errors = 4
    # Of one node, each of its dead links is told.
    for link in (3, 3, 4):
        world.answers[0].append(number(Response, slot=0, ack=0, tag=700, peer=1, link=link,
                                       status=Status.LINK_DOWN))
    await late()
    assert [r["link"] for r in world.records[4:]] == [3, 4]
    errors = 6
    # With no room for records, four wait, the rest is counted; the other rail has its own four.
    world.write("completion_size", 0)
    await world.settle()
    burst = [(800 + index, 3, Status.POISON) for index in range(7)]
    await late(*burst)
    await late((900, 3, Status.POISON), rail=PARAMS.rails - 1)
    assert len(world.records) == 6
    assert await world.get("errors") == errors + 8
    world.write("completion_size", size)
    await world.bench.cycles(60)
    assert sorted(r["tag"] for r in world.records[6:]) == [800, 801, 802, 803, 900]
    assert all(r["queue"] == 0xF and r["ended"] for r in world.records)


@cocotb.test()
async def registers_answer_as_the_map_says(dut) -> None:
    world = World(dut, PARAMS)
    await world.start()
    rng = world.rng
    written = {}
    readable = [(register, index) for register in RegisterMap(PARAMS.nic, PARAMS.router.links)
                for index in range(register.count)]
    for register, index in readable:
        # queue_tail and the window would post commands; both are exercised elsewhere.
        if register.name in ("queue_tail", "direct", "completion_head"):
            continue
        value = rng.getrandbits(64)
        world.write(register.name, value, index)
        if register.access == "rw":
            written[register.name, index] = value
    expected = {"ident": IDENT, "node": NODE}
    links = [rng.getrandbits(64) for _ in range(PARAMS.router.links)]
    dut.status.value = sum(value << 64 * link for link, value in enumerate(links))
    for register, index in readable:
        value = await world.get(register.name, index)
        if register.name == "counter":
            assert value == world.totals[index]
        elif (register.name, index) in written:
            assert value == written[register.name, index], register.name
        elif register.name == "link":
            assert value == links[index]
        elif register.name != "packets_sent":
            assert value == expected.get(register.name, 0), register.name
    mapped = {register.at(index) for register, index in readable}
    for offset in [*rng.sample(range(1 << 13), 60), 0x068, 0x0F8, 0x120, 0x7F8,
                   0x800 + 8 * PARAMS.nic.counters, 0x1040, 0x1FF8, 0x801, 0x009]:
        if offset in mapped:
            continue
        result: list[int] = []
        world.operations.append((1, offset, rng.getrandbits(64)))
        world.operations.append((0, offset, 0))
        world.reading.append(result)
        await world.settle()
        assert result == [0], hex(offset)


def test_control_keeps_its_contract() -> None:
    run_bench(elaborated(Control, PARAMS), __name__)
