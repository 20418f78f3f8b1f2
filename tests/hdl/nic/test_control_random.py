"""Random commands on every queue of the NIC's control side, against the reference.

The same run is done twice, with and without skipping idle cycles: every output of every cycle must
be equal, which is what lets an engine skip them.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import cocotb
import pytest

from hdl.compute.elements import ELEMENT_BYTES, OPERATORS
from hdl.layouts import NO_COUNTER, Op
from hdl.nic.control import Control
from hdl.params import CardParams, LinkParams, NicParams, RouterParams
from tests.bench import elaborated, run_bench
from tests.hdl.nic.control_bench import MEMORY, NODE, PARAMS, World

NARROW = CardParams(router=RouterParams(dim_ports=(2,), link=LinkParams(flit_bytes=16)),
                    nic=NicParams(queues=1, counters=8, mtu=256, slots=2, direct_depth=1))
WIDE = CardParams(router=RouterParams(dim_ports=(2,), link=LinkParams(flit_bytes=64)),
                  nic=NicParams(queues=3, counters=16, mtu=256, slots=8, direct_depth=3))
BUILDS = {"two_rails": PARAMS, "narrow": NARROW, "wide": WIDE}


def random_command(rng: random.Random, params: CardParams, number: int) -> dict:
    """Fields of a command that ends sooner or later, of any kind, some of them wrong."""
    counters, memory = params.nic.counters, MEMORY
    op = rng.choices([Op.WRITE, Op.REDUCE, Op.GEMM, Op.NOP, Op.FENCE], [8, 4, 2, 3, 2])[0]
    fields: dict = {"op": op}
    flags = {"signal": rng.random() < 0.5, "ack": rng.random() < 0.4}
    if op in (Op.WRITE, Op.REDUCE):
        dtype, redop = rng.choice(list(ELEMENT_BYTES)), rng.choice(OPERATORS)
        size = ELEMENT_BYTES[dtype]
        length = rng.choice([0, size, 64, 256, rng.randrange(1200)]) // size * size
        fields |= {"dtype": dtype, "redop": redop, "rail": rng.randrange(params.rails),
                   "length": length, "source": rng.randrange(memory - length),
                   "target": {"offset": rng.randrange(1 << 20) * size,
                              "node": rng.choice([NODE, NODE, 0x0101])},
                   "target_counter": rng.choice([NO_COUNTER, rng.randrange(counters)]),
                   "key": rng.choice([0] * 12 + [1, 2])}
    if op is Op.REDUCE and rng.random() < 0.4:
        flags["addend"] = 1
        fields["addend"] = (rng.randrange(1 << 12) * 64
                            + fields["target"]["offset"] % params.link.flit_bytes)
    if op is Op.GEMM:
        # A descriptor of its own: the request has nothing else to know its command by.
        fields |= {"source": number % (memory // 128) * 128, "key": rng.random() < 0.1}
    if rng.random() < 0.3:
        flags["wait"] = 1
        fields |= {"wait_counter": rng.randrange(4),
                   "wait_value": rng.choice([0, rng.randrange(20), (1 << 32) - 1, 0xC000_0000])}
        if rng.random() < 0.5:
            fields["wait_value"] = rng.randrange(8)
    if rng.random() < 0.3:
        fields["local_counter"] = rng.randrange(counters)
        flags["signal"] = 1
    if rng.random() < 0.15:
        name, value = rng.choice([
            ("op", rng.choice([3, 5, 7, 8, 255])), ("addend", 1 << rng.randrange(48)),
            ("reserved", 1 << rng.randrange(16)),
            ("argument", {"operands": {"operand": 1 << rng.randrange(64)}}),
            ("count", rng.choice([1, 2, 1 << 31])), ("rail", params.rails),
            ("local_counter", counters), ("dtype", rng.choice([7, 11, 15])), ("redop", 9),
            ("source", rng.choice([memory, memory - 64, (1 << 48) - 1])),
            ("length", rng.choice([1, 3, memory, (1 << 32) - 1])),
            ("local_counter", 254), ("wait_counter", counters), ("wait_counter", NO_COUNTER)])
        fields[name] = value
        if name == "local_counter":
            flags["signal"] = 1
    fields["flags"] = {name: int(value) for name, value in flags.items()}
    return fields


async def traffic(world: World, count: int) -> None:
    """Post ``count`` random commands to all queues at random times, as ring space allows."""
    rng, params = world.rng, world.params
    heads = [0] * world.queues
    left, progress = count, 0
    while left:
        queue = rng.randrange(world.queues)
        if queue == world.direct:
            room = params.nic.direct_depth - (world.posted[queue] - heads[queue])
        else:
            room = world.ring - (world.posted[queue] - heads[queue])
        if room <= 0:
            heads[queue] = (await world.get("direct_taken") if queue == world.direct
                            else await world.get("queue_head", queue))
            assert world.bench.cycle - progress < world.bench.limit, world.bench.stuck()
            continue
        batch = min(left, rng.randint(1, room))
        for index in range(batch):
            world.post(queue, random_command(rng, params, world.next_tag),
                       ring_doorbell=index == batch - 1)
        left, progress = left - batch, world.bench.cycle
        await world.bench.cycles(rng.choice([0, 1, 5, 40]))


@cocotb.test()
async def random_commands_do_what_they_say(dut) -> None:
    world = World(dut, BUILDS[os.environ["BENCH_BUILD"]],
                  rate=float(os.environ.get("BENCH_RATE", "0.4")),
                  skip=os.environ.get("BENCH_SKIP") == "1")
    await world.start()
    world.drain, world.strobe_rate = 0.1, 0.1
    world.pulses = (range(4), 0.05)
    await traffic(world, int(os.environ.get("BENCH_COMMANDS", "250")))
    await world.finish()
    if path := os.environ.get("BENCH_TRACE"):
        Path(path).write_text(json.dumps({
            "trace": world.trace, "skipped": world.bench.skipped,
            "records": [str(record) for record in world.records]}))


def run(build: str, folder: Path, **variables: object) -> dict:
    """Run the bench on one build and return what it saw."""
    trace = folder / "trace.json"
    env = {f"BENCH_{name.upper()}": str(value) for name, value in variables.items()}
    run_bench(elaborated(Control, BUILDS[build]), __name__,
              env=env | {"BENCH_BUILD": build, "BENCH_TRACE": str(trace)})
    return json.loads(trace.read_text())


def test_skipping_idle_cycles_changes_nothing(tmp_path: Path) -> None:
    full = run("two_rails", tmp_path)
    skipping = run("two_rails", tmp_path, skip=1)
    assert skipping["skipped"] > len(skipping["trace"]) // 20
    assert skipping["records"] == full["records"]
    assert skipping["trace"] == full["trace"]


@pytest.mark.parametrize("build", ["narrow", "wide"])
def test_other_flit_sizes_keep_the_contract(build: str, tmp_path: Path) -> None:
    run(build, tmp_path, rate=1.0 if build == "wide" else 0.5)
