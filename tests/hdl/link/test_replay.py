"""Replay: the two blocks over a channel that loses words, against the definition of exactly once.

The number space is small, so that it wraps many times, and the window is as large as it allows.
"""

import itertools
from collections import deque

import cocotb
from amaranth.hdl import Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hdl.link.replay import ReplayReceiver, ReplaySender
from tests.bench import Bench, run_bench

SEQ_BITS, DEPTH = 4, 8
#: More replays than fit between two spells without losses, so that only silence exhausts it.
LIMIT = 40


class ReplayPair(wiring.Component):
    """One sender and one receiver, with the channel between them left to the bench."""

    def __init__(self) -> None:
        self.sender = ReplaySender(shape=unsigned(16), depth=DEPTH, seq_bits=SEQ_BITS, limit=LIMIT)
        self.receiver = ReplayReceiver(seq_bits=SEQ_BITS)
        members = {}
        for prefix, block in (("s", self.sender), ("r", self.receiver)):
            for name, member in block.signature.members.items():
                members[f"{prefix}_{name}"] = member
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for prefix, block in (("s", self.sender), ("r", self.receiver)):
            m.submodules[block.__class__.__name__.lower()] = block
            for name, member in block.signature.members.items():
                outer, inner = getattr(self, f"{prefix}_{name}"), getattr(block, name)
                pairs = [(outer, inner)] if member.is_port else \
                    [(outer.valid, inner.valid), (outer.payload, inner.payload)]
                for a, b in pairs:
                    m.d.comb += a.eq(b) if member.flow is Out else b.eq(a)
        return m


class Channel:
    """Both blocks, joined by lossy queues; sends numbers and expects them in order.

    A word that is lost arrives as refused, or, if ``silent``, not at all.
    """

    def __init__(self, bench: Bench, *, latency: int) -> None:
        self.bench, self.dut, self.latency = bench, bench.dut, latency
        self.loss = {"there": 0.0, "back": 0.0}
        self.silent = False
        self.send_rate, self.hold_rate, self.talk_rate = 1.0, 0.0, 1.0
        self.period = 64
        self.there: deque = deque([None] * latency)
        self.back: deque = deque([None] * latency)
        self.sent = self.taken = self.claims = self.again = 0
        self.departed: list[int] = []
        self.arrived: list[int] = []
        self.lead: deque[bool] = deque([False, False])
        dut = self.dut
        for name in ("s_claim", "s_send__valid", "s_hold", "s_heard__valid", "s_tick",
                     "r_word__valid", "r_lost", "r_told"):
            getattr(dut, name).value = 0
        bench.on_drive(self.drive)
        bench.on_sample(self.sample)
        bench.on_stuck(lambda: f"{self.sent - self.taken} flits under way")

    def drive(self) -> None:
        dut, rng, cycle = self.dut, self.bench.rng, self.bench.cycle
        # A place is claimed two cycles before its flit.
        claim = bool(int(dut.s_room.value)) and rng.random() < self.send_rate
        dut.s_claim.value = int(claim)
        self.lead.append(claim)
        self.offers = self.lead.popleft()
        dut.s_send__valid.value = int(self.offers)
        if self.offers:
            dut.s_send__payload.value = self.sent & 0xFFFF
        dut.s_hold.value = int(rng.random() < self.hold_rate)
        dut.s_tick.value = int(cycle % self.period == 0)
        word = self.there.popleft()
        lost = word is not None and rng.random() < self.loss["there"]
        dut.r_lost.value = int(lost and not self.silent)
        dut.r_word__valid.value = int(word is not None and not lost)
        self.word = None
        if word is not None and not lost:
            seq, turn, flit = word
            dut.r_word__payload.value = seq | turn << SEQ_BITS | (flit is not None) << SEQ_BITS + 1
            self.word = word
        answer = self.back.popleft()
        heard = answer is not None and rng.random() >= self.loss["back"]
        dut.s_heard__valid.value = int(heard)
        if heard:
            dut.s_heard__payload.value = answer[0] | answer[1] << SEQ_BITS
        self.talks = rng.random() < self.talk_rate and (
            bool(int(dut.r_due.value)) or cycle % self.period == 1 or rng.random() < 0.1)
        dut.r_told.value = int(self.talks)

    def sample(self) -> None:
        dut, cycle = self.dut, self.bench.cycle
        if self.offers:
            self.sent += 1
            self.departed.append(cycle)
        goes = bool(int(dut.s_out__valid.value))
        flit = int(dut.s_out__payload.value) if goes else None
        assert goes or not int(dut.s_again.value)
        self.again += int(dut.s_again.value)
        due = goes or cycle % self.period == 1
        self.there.append((int(dut.s_seq.value), int(dut.s_turn.value), flit) if due else None)
        self.back.append((int(dut.r_ack.value), int(dut.r_asked.value)) if self.talks else None)
        if int(dut.r_take.value):
            assert self.word[2] == self.taken & 0xFFFF, \
                f"cycle {cycle}: flit {self.word[2]} arrived in place of {self.taken}"
            self.taken += 1
            self.arrived.append(cycle)
            assert self.taken <= self.sent


async def start(dut, *, latency: int) -> tuple[Bench, Channel]:
    bench = Bench(dut, limit=4_000)
    channel = Channel(bench, latency=latency)
    await bench.start()
    return bench, channel


async def drain(bench: Bench, channel: Channel) -> None:
    channel.send_rate, channel.hold_rate = 0.0, 0.0
    channel.talk_rate = 1.0
    channel.loss = dict.fromkeys(channel.loss, 0.0)
    await bench.cycles(3)
    await bench.until(lambda: channel.taken == channel.sent, "delivery")
    await bench.until(lambda: not int(bench.dut.s_waiting.value), "the last ack")
    assert not int(bench.dut.s_behind.value)


@cocotb.test()
async def without_losses_a_flit_goes_out_in_its_cycle_and_none_goes_twice(dut):
    bench, channel = await start(dut, latency=1)
    channel.send_rate = 0.7
    await bench.cycles(500)
    await drain(bench, channel)
    assert channel.again == 0
    assert [there + 1 for there in channel.departed] == channel.arrived


@cocotb.test()
async def every_flit_arrives_once_and_in_order_whatever_is_lost(dut):
    bench, channel = await start(dut, latency=3)
    for _ in range(60):
        channel.send_rate = bench.rng.choice((0.05, 0.5, 1.0))
        channel.hold_rate = bench.rng.choice((0.0, 0.0, 0.3))
        channel.talk_rate = bench.rng.choice((0.2, 1.0))
        channel.silent = bench.rng.random() < 0.5
        channel.loss = {way: bench.rng.choice((0.0, 0.02, 0.3)) for way in channel.loss}
        await bench.cycles(200)
        channel.loss = dict.fromkeys(channel.loss, 0.0)
        await bench.cycles(2 * channel.period)
        assert not int(dut.s_exhausted.value)
    await drain(bench, channel)
    assert channel.taken > 16 << SEQ_BITS
    assert channel.again > 100


@cocotb.test()
async def a_loss_at_every_number_is_made_good(dut):
    bench, channel = await start(dut, latency=2)
    for phase in range(2 << SEQ_BITS):
        target = channel.sent + phase % (1 << SEQ_BITS) + 1
        channel.send_rate = 1.0
        await bench.until(lambda target=target: channel.sent >= target, "flits")
        channel.loss["there"] = 1.0
        await bench.cycles(1)
        channel.loss["there"] = 0.0
        await bench.cycles(bench.rng.randrange(40))
    await drain(bench, channel)


@cocotb.test()
async def a_gap_is_asked_for_once(dut):
    bench, channel = await start(dut, latency=3)
    channel.send_rate = 1.0
    await bench.cycles(40)
    asked: list[int] = []
    bench.on_sample(lambda: asked.append(int(dut.r_asked.value)))
    again = channel.again
    channel.loss["there"] = 1.0
    await bench.cycles(1)
    channel.loss["there"] = 0.0
    await bench.cycles(100)
    assert sum(a != b for a, b in itertools.pairwise(asked)) <= 1
    assert 0 < channel.again - again <= DEPTH
    await drain(bench, channel)


@cocotb.test()
async def replays_without_progress_exhaust_the_sender(dut):
    bench, channel = await start(dut, latency=1)
    channel.send_rate = 1.0
    await bench.cycles(40)
    channel.loss = {"there": 0.0, "back": 1.0}
    await bench.cycles((LIMIT - 1) * channel.period)
    assert not int(dut.s_exhausted.value)
    await bench.cycles(3 * channel.period)
    assert int(dut.s_exhausted.value)


def test_every_flit_is_delivered_in_order_exactly_once() -> None:
    run_bench(ReplayPair(), __name__)
