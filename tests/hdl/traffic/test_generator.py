"""Bench of the generator: every flit against a model of what the registers ask for."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

import cocotb
import pytest

from hdl.layouts import field_slices, flit, pack
from hdl.nic.packets import header_flits
from hdl.params import LinkParams, RouterParams, TrafficParams
from hdl.traffic.gap import GAP_STEPS, gap_thresholds
from hdl.traffic.generator import Generator
from hdl.traffic.packet import PacketName, digest_model, flit_model
from hdl.traffic.random import FRACTION_BITS, RandomWordModel, cumulative
from hdl.traffic.registers import Field as IdField
from hdl.traffic.registers import RegisterWrite, Size, Target, TrafficRegisters
from hdl.traffic.target import TargetModel
from tests.bench import Bench, run_bench

#: Five lanes, which is no power of two, and headers of two flits.
BUILDS = {
    "wide": LinkParams(flit_bytes=32, classes=1, vcs_per_class=4, vc_depth=8),
    "narrow": LinkParams(flit_bytes=16, classes=2, vcs_per_class=5, vc_depth=8),
}
NODE = 0x25
NEVER = (1 << 48) - 1
TARGETS = 4


def registers_of(link: LinkParams) -> TrafficRegisters:
    return TrafficRegisters(TrafficParams(router=RouterParams(link=link), targets=TARGETS))


@dataclass
class Packet:
    created: int
    dst: int
    flits: int


class GeneratorModel:
    """The packets that a generator makes, from the definition of its registers."""

    def __init__(self, *, start: int, thresholds, sizes, targets, fields, state) -> None:
        self._created, self._thresholds, self._sizes = start - 1, thresholds, sizes
        self._target = TargetModel(targets, fields)
        self._times, self._places = RandomWordModel(state[:2]), RandomWordModel(state[2:])

    def next(self) -> Packet:
        while True:
            times, places = self._times.step(), self._places.step()
            passed = sum(times >> 64 - FRACTION_BITS < each for each in self._thresholds)
            self._created += min(passed + 1, GAP_STEPS)
            if passed < GAP_STEPS:
                break
        fraction = times & (1 << FRACTION_BITS) - 1
        flits = next((flits for below, flits in self._sizes[:-1] if fraction < below),
                     self._sizes[-1][1])
        return Packet(self._created, self._target.choose(
            places >> 64 - FRACTION_BITS, places & 0xFFFF_FFFF), flits)


class GeneratorBench:
    """The generator with a network that takes flits now and then."""

    def __init__(self, dut, *, skip: bool = False) -> None:
        self.link = BUILDS[os.environ["BUILD"]]
        self.registers = registers_of(self.link)
        self.dut, self.bench = dut, Bench(dut, limit=50_000)
        self.rng = self.bench.rng
        self.now, self.skip, self.ready_rate = 0, skip, 1.0
        self.writes: deque[int] = deque()
        self.open = 0
        #: (cycle, payload, head, tail, vc)
        self.sent: list[tuple[int, int, int, int, int]] = []
        self._fields = field_slices(flit(self.link))
        dut.node.value, dut.now.value, dut.write__valid.value = NODE, 0, 0
        dut.available.value = 0
        self.bench.on_drive(self._drive)
        self.bench.on_sample(self._sample)

    def write(self, offset: int, value: int) -> None:
        self.writes.append(int.from_bytes(pack(RegisterWrite, {
            "address": offset, "data": value}), "little"))

    def _drive(self) -> None:
        dut = self.dut
        self.now += 1
        if self.skip and not self.writes and int(dut.idle.value):
            wake = int(dut.wake.value)
            if wake != NEVER:
                self.now = max(self.now, wake)  # what the engine leaves out
        dut.now.value = self.now
        dut.write__valid.value = int(bool(self.writes))
        if self.writes:
            dut.write__payload.value = self.writes.popleft()
        self.open = sum((self.rng.random() < self.ready_rate) << vc for vc in range(self.link.vcs))
        dut.available.value = self.open

    def _sample(self) -> None:
        dut = self.dut
        if not int(dut.send__valid.value):
            return
        word = int(dut.send__payload.value)
        payload, head, tail, vc = (word >> self._fields[name][0] & (1 << self._fields[name][1]) - 1
                                   for name in ("payload", "head", "tail", "vc"))
        assert self.open >> vc & 1, f"cycle {self.now}: sent on VC {vc} without credit"
        self.sent.append((self.now, payload, head, tail, vc))

    async def begin(self, *, probability: float, sizes, weights, shares, measure=(0, NEVER),
                    start: int = 200) -> GeneratorModel:
        registers, rng = self.registers, self.rng
        state = [rng.getrandbits(64) | 1 for _ in range(4)]
        thresholds = gap_thresholds(probability)
        below = cumulative(weights, sum(weights), 4)
        mix = list(zip(below, (*sizes, *sizes[-1:] * 3)[:4], strict=True))
        targets = list(zip(cumulative([share for _, share in shares], 1.0, TARGETS),
                           ([node for node, _ in shares] + [0] * TARGETS)[:TARGETS], strict=True))
        fields = [(6, 0), (5, 3), (1, 0), (1, 0)]
        for index, value in enumerate(thresholds):
            self.write(registers.gap.at(index), value)
        for index, (limit, flits) in enumerate(mix):
            self.write(registers.size.at(index), _word(Size, below=limit, flits=flits))
        for index, (limit, node) in enumerate(targets):
            self.write(registers.target.at(index), _word(Target, below=limit, node=node))
        for index, (size, shift) in enumerate(fields):
            self.write(registers.field.at(index), _word(IdField, size=size, shift=shift))
        for index, word in enumerate(state):
            self.write(registers.seed.at(index), word)
        self.write(registers.measure_start.offset, measure[0])
        self.write(registers.measure_end.offset, measure[1])
        self.write(registers.start.offset, start)
        await self.bench.start()
        return GeneratorModel(start=start, thresholds=thresholds, sizes=mix, targets=targets,
                              fields=fields, state=state)

    def check(self, model: GeneratorModel, *, measure=(0, NEVER), prompt: bool) -> list[Packet]:
        """Compare all complete packets with the model's; return them."""
        packets, free, at, digest = [], 0, 0, 0
        sent = deque(self.sent)
        while sent:
            packet = model.next()
            if len(sent) < packet.flits:
                break
            measured = int(measure[0] <= packet.created < measure[1])
            name = PacketName(packet.dst, NODE, packet.created & 0xFF_FFFF, measured, packet.flits)
            for at in range(packet.flits):
                cycle, payload, head, tail, vc = sent.popleft()
                where = f"flit {at} of packet {len(packets)}, cycle {cycle}"
                assert payload == flit_model(name, at, self.link), where
                assert (head, tail) == (at == 0, at == packet.flits - 1), where
                assert vc == packet.dst % (1 << (self.link.vcs_per_class - 1).bit_length()) \
                    % self.link.vcs_per_class, where
                earliest = max(packet.created, free)
                assert cycle >= earliest, where
                if prompt:
                    # At once, but for a gap that takes several draws after a long wait.
                    assert cycle == earliest, where
                free = cycle + 1
            packets.append(packet)
            digest = (digest + digest_model(name)) % 2**64
        dut = self.dut
        if int(dut.sent__packets.value) == len(packets):
            assert int(dut.sent__digest.value) == digest
        assert int(dut.sent__flits.value) == len(self.sent)
        assert len(packets) <= int(dut.sent__packets.value) <= len(packets) + 1
        return packets


def _word(layout, **values) -> int:
    return int.from_bytes(pack(layout, values), "little")


@cocotb.test()
async def packets_are_those_of_the_model_at_their_cycle(dut):
    bench = GeneratorBench(dut)
    heads = header_flits(bench.link)
    measure = (400, 700)
    model = await bench.begin(probability=0.08, sizes=(heads, heads + 4, heads + 1),
                              weights=(5, 1, 2), shares=[(7, 0.3), (9, 0.2)], measure=measure)
    await bench.bench.cycles(1500)
    assert len(bench.check(model, measure=measure, prompt=True)) > 80


@cocotb.test()
async def a_sleeper_that_is_left_out_until_its_wake_sends_the_same(dut):
    bench = GeneratorBench(dut, skip=True)
    heads = header_flits(bench.link)
    model = await bench.begin(probability=0.01, sizes=(heads,), weights=(1,), shares=[])
    await bench.bench.cycles(600)
    packets = bench.check(model, prompt=True)
    # Most cycles were left out.
    assert len(packets) > 40 and packets[-1].created > 2000


@cocotb.test()
async def full_load_sends_a_flit_in_every_cycle(dut):
    bench = GeneratorBench(dut)
    heads = header_flits(bench.link)
    model = await bench.begin(probability=1.0, sizes=(heads,), weights=(1,), shares=[])
    await bench.bench.until(lambda: bool(bench.sent), "first flit")
    await bench.bench.cycles(300)
    cycles = [cycle for cycle, *_ in bench.sent]
    assert cycles == list(range(200, 200 + len(cycles))) and len(cycles) >= 300
    if heads == 1:
        assert [packet.created for packet in bench.check(model, prompt=True)] == cycles


@cocotb.test()
async def packets_that_had_to_wait_follow_without_loss(dut):
    bench = GeneratorBench(dut)
    heads = header_flits(bench.link)
    model = await bench.begin(probability=0.2, sizes=(heads, heads + 2), weights=(1, 1),
                              shares=[(1, 0.5)])
    for rate in (0.0, 1.0, 0.3, 0.05, 1.0):
        bench.ready_rate = rate
        await bench.bench.cycles(500)
    packets = bench.check(model, prompt=False)
    assert len(packets) > 150


@cocotb.test()
async def after_stop_no_packet_begins_and_the_generator_sleeps(dut):
    bench = GeneratorBench(dut)
    heads = header_flits(bench.link)
    model = await bench.begin(probability=0.1, sizes=(heads + 3,), weights=(1,), shares=[])
    bench.write(bench.registers.stop.offset, 600)
    await bench.bench.cycles(800)
    assert bench.check(model, prompt=True)
    begun = [cycle for cycle, _, head, _, _ in bench.sent if head]
    assert begun[-1] < 600 and bench.sent[-1][3], "a packet that has begun ends"
    assert int(dut.idle.value) and int(dut.wake.value) == NEVER


@pytest.mark.slow
def test_a_generator_makes_the_packets_that_its_registers_ask_for() -> None:
    link = BUILDS["wide"]
    run_bench(Generator(link, registers_of(link)), __name__, env={"BUILD": "wide"})


def test_a_generator_of_narrow_flits_and_odd_lanes_does_too() -> None:
    link = BUILDS["narrow"]
    run_bench(Generator(link, registers_of(link)), __name__, env={"BUILD": "narrow"})
