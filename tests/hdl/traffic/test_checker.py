"""Bench of the checker: good packets are measured, what is wrong is counted as what it is."""

from __future__ import annotations

import itertools
import os
from collections import Counter

import cocotb
import pytest

from hdl.layouts import PacketHeader, PacketOp, field_slices, flit, pack
from hdl.nic.packets import header_flits
from hdl.params import LinkParams, RouterParams, TrafficParams
from hdl.traffic.checker import Checker
from hdl.traffic.packet import PacketName, digest_model, flit_model
from hdl.traffic.registers import RegisterWrite, TrafficRegisters
from tests.bench import Bench, run_bench

BUILDS = {
    "wide": LinkParams(flit_bytes=32, classes=1, vcs_per_class=4, vc_depth=8),
    "narrow": LinkParams(flit_bytes=16, classes=2, vcs_per_class=2, vc_depth=8),
}
NODE, BINS = 0x13, 32
#: The RAMs of the block keep their contents from one test to the next: each has sources of its own.
RUNS = itertools.count(1)
FAULTS = ("misrouted", "corrupt", "disordered", "duplicated", "cut", "returned")


def registers_of(link: LinkParams) -> TrafficRegisters:
    return TrafficRegisters(TrafficParams(router=RouterParams(link=link), bins=BINS))


class CheckerBench:
    """The checker, fed with flits, and what it should count."""

    def __init__(self, dut) -> None:
        self.link = BUILDS[os.environ["BUILD"]]
        self.dut, self.bench = dut, Bench(dut)
        self.now = 5000
        self.heads = header_flits(self.link)
        self.expected: Counter[str] = Counter()
        self.latencies: list[int] = []
        self.digest = 0
        self._created: dict[int, int] = {}
        self._run = next(RUNS) << 8
        self._counted = [0] * BINS
        self._slices = field_slices(flit(self.link))
        dut.node.value, dut.read.value = NODE, 0
        dut.write__valid.value, dut.receive__valid.value = 0, 0
        self.bench.on_drive(self._count)

    def _count(self) -> None:
        self.now += 1
        self.dut.now.value = self.now

    async def flits(self, words) -> None:
        """One (payload, head, tail, poison, vc) per cycle; ``None`` is a cycle without."""
        for word in words:
            self.dut.receive__valid.value = int(word is not None)
            if word is not None:
                self.dut.receive__payload.value = sum(
                    value << self._slices[name][0] for name, value in zip(
                        ("payload", "head", "tail", "poison", "vc"), word, strict=True))
            await self.bench.cycles(1)
        self.dut.receive__valid.value = 0

    def packet(self, *, src: int, created: int | None = None, flits: int | None = None,
               dst: int = NODE, measured: int = 0) -> tuple[PacketName, list]:
        src += self._run
        if created is None:
            created = max(self._created.get(src, 0) + 1, self.now - self.bench.rng.randrange(60))
        self._created[src] = created
        flits = self.heads if flits is None else flits
        name = PacketName(dst, src, created & 0xFF_FFFF, measured, flits)
        return name, [(flit_model(name, at, self.link), int(at == 0), int(at == flits - 1), 0, 0)
                      for at in range(flits)]

    async def deliver(self, name: PacketName, words, *, gaps: float = 0.0) -> None:
        """Send a packet that is to be counted as received."""
        self.expected.update(packets=1, flits=len(words), measured=name.measured)
        self.digest = (self.digest + digest_model(name)) % 2**64
        for word in words:
            while self.bench.rng.random() < gaps:
                await self.flits([None])
            await self.flits([word])
        if name.measured:
            self.latencies.append(self.now - name.created)

    async def check(self) -> None:
        await self.bench.cycles(4)
        dut = self.dut
        for name in ("packets", "flits", "measured", *FAULTS):
            found = int(getattr(dut, f"received__{name}").value)
            assert found == self.expected[name], f"{name}: {found}, not {self.expected[name]}"
        assert int(dut.received__digest.value) == self.digest
        assert int(dut.received__latency_sum.value) == sum(self.latencies)
        assert int(dut.received__latency_max.value) == max(self.latencies, default=0)
        assert int(dut.idle.value)

    async def write(self, offset: int, value: int) -> None:
        self.dut.write__payload.value = int.from_bytes(
            pack(RegisterWrite, {"address": offset, "data": value}), "little")
        self.dut.write__valid.value = 1
        await self.bench.cycles(1)
        self.dut.write__valid.value = 0

    async def begin(self) -> None:
        await self.bench.start()
        self._counted = await self.histogram()

    async def histogram(self) -> list[int]:
        """What has been counted since the test began."""
        await self.write(registers_of(self.link).bin_index.offset, 0)
        counts = []
        self.dut.read.value = 1
        for _ in range(BINS):
            await self.bench.cycles(1)
            counts.append(int(self.dut.bin.value))
        self.dut.read.value = 0
        return [now - before for now, before in zip(counts, self._counted, strict=True)]


@cocotb.test()
async def good_packets_are_counted_and_measured(dut):
    check = CheckerBench(dut)
    rng, heads = check.bench.rng, check.heads
    await check.begin()
    for shift in (0, 2):
        await check.write(registers_of(check.link).bin_shift.offset, shift)
        if shift:
            break
        for _ in range(150):
            name, words = check.packet(src=rng.randrange(20), measured=int(rng.random() < 0.7),
                                       flits=heads + rng.choice((0, 0, 1, 5)))
            await check.deliver(name, words, gaps=rng.choice((0.0, 0.5)))
        await check.check()
        counts = Counter(min(latency, BINS - 1) for latency in check.latencies)
        assert await check.histogram() == [counts[place] for place in range(BINS)]
    before = len(check.latencies)
    for _ in range(20):
        name, words = check.packet(src=1, measured=1)
        await check.deliver(name, words)
    await check.check()
    counts.update(min(latency >> 2, BINS - 1) for latency in check.latencies[before:])
    assert await check.histogram() == [counts[place] for place in range(BINS)]


@cocotb.test()
async def packets_of_one_latency_may_follow_each_other(dut):
    check = CheckerBench(dut)
    await check.begin()
    words = []
    for index in range(8):
        created = check.now + 1 + check.heads * (index + 1) - 9
        name, flits = check.packet(src=4, created=created, measured=1)
        check.expected.update(packets=1, flits=len(flits), measured=1)
        check.digest = (check.digest + digest_model(name)) % 2**64
        words += flits
    await check.flits(words)
    await check.bench.cycles(4)
    counts = await check.histogram()
    assert max(counts) == 8 and sum(counts) == 8
    check.latencies = [counts.index(8)] * 8
    await check.check()


@cocotb.test()
async def every_flipped_bit_is_seen(dut):
    check = CheckerBench(dut)
    await check.begin()
    flits = check.heads + 2
    # Bits of the fields that say what the packet is make another good one out of it, or one for
    # somebody else, or a response: they are tried elsewhere.
    slices = field_slices(PacketHeader)
    names = {bit for field in ("src", "sequence", "group", "op", "dst")
             for bit in range(slices[field][0], sum(slices[field]))}
    for at in range(flits):
        for bit in range(0, check.link.flit_bits, 5):
            if at * check.link.flit_bits + bit in names:
                continue
            name, words = check.packet(src=2, flits=flits)
            words[at] = (words[at][0] ^ 1 << bit, *words[at][1:])
            await check.deliver(name, words)
            check.expected["corrupt"] += 1
    await check.check()


@cocotb.test()
async def wrong_lengths_and_destinations_are_seen(dut):
    check = CheckerBench(dut)
    await check.begin()
    heads = check.heads
    name, words = check.packet(src=2, flits=heads + 3)
    early = [*words[:heads + 1], (*words[heads + 1][:2], 1, 0, 0)]
    await check.deliver(name, early)
    name, words = check.packet(src=2, flits=heads + 3)
    late = [(*word[:2], 0, *word[3:]) for word in words]
    await check.deliver(name, [*late, words[-1]])
    check.expected.update(corrupt=2)
    name, words = check.packet(src=9, dst=NODE ^ 1)
    await check.deliver(name._replace(dst=NODE), words)
    check.expected.update(corrupt=1, misrouted=1)
    await check.check()


@cocotb.test()
async def order_is_checked_per_source(dut):
    check = CheckerBench(dut)
    await check.begin()
    for src, created in ((1, 100), (2, 50), (1, 101), (2, 90), (1, 90), (1, 95), (2, 90), (2, 91)):
        await check.deliver(*check.packet(src=src, created=created))
    check.expected.update(disordered=1, duplicated=1)
    # The creation cycle wraps.
    await check.deliver(*check.packet(src=5, created=0xFF_FFFE))
    await check.deliver(*check.packet(src=5, created=0x100_0001))
    # Two sources that share an entry are not compared with each other.
    await check.deliver(*check.packet(src=0x1007, created=200))
    await check.deliver(*check.packet(src=0x2007, created=100))
    await check.check()


@cocotb.test()
async def cut_and_returned_packets_are_counted_as_such(dut):
    check = CheckerBench(dut)
    await check.begin()
    name, words = check.packet(src=2, flits=check.heads + 4)
    await check.flits([*words[:check.heads + 1], (0, 0, 1, 1, 0)])
    check.expected.update(cut=1, flits=check.heads + 2)
    header = int.from_bytes(pack(PacketHeader, {
        "dst": NODE, "src": 77, "klass": check.link.classes - 1, "op": PacketOp.RESPONSE}),
        "little")
    bits = check.link.flit_bits
    answer = [(header >> bits * at & (1 << bits) - 1, int(at == 0), int(at == check.heads - 1), 0,
               (check.link.classes - 1) * check.link.vcs_per_class) for at in range(check.heads)]
    await check.flits(answer)
    check.expected.update(returned=1)
    if check.link.classes > 1:
        # Amid a packet, on the lanes of its own class.
        name, words = check.packet(src=2, flits=check.heads + 4)
        await check.deliver(name, words[:2])
        await check.flits(answer)
        check.expected.update(returned=1, packets=-1)
        check.digest = (check.digest - digest_model(name)) % 2**64
        await check.deliver(name, words[2:])
    await check.deliver(*check.packet(src=2))
    await check.check()


def test_a_checker_counts_what_is_right_and_what_is_wrong() -> None:
    link = BUILDS["wide"]
    run_bench(Checker(link, registers_of(link), bins=BINS, ordered=True), __name__,
              env={"BUILD": "wide"})


@pytest.mark.slow
def test_a_checker_of_narrow_flits_and_two_classes_does_too() -> None:
    link = BUILDS["narrow"]
    run_bench(Checker(link, registers_of(link), bins=BINS, ordered=True), __name__,
              env={"BUILD": "narrow"})
