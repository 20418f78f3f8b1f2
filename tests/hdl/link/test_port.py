"""Bench of the link port: two of them joined by delay lines, whose signal comes and goes.

The oracle knows when each end was down and when each flit was sent. A packet whose header was sent
in an up cycle goes over the link, whole, cut, or not at all; one whose header was sent in a down
cycle comes back exactly once if it is a request, and never goes over.
"""

import os
from collections import deque
from dataclasses import dataclass, field

import cocotb
import pytest
from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import (
    LinkStatus,
    PacketHeader,
    PacketOp,
    Status,
    flit,
    link_word,
    pack,
    unpack,
)
from hdl.link.mirror import FLIGHT
from hdl.link.port import LinkPort
from hdl.nic.packets import REQUEST_CLASS, RESPONSE_CLASS, header_flits
from hdl.params import LinkParams
from hdl.ports import ValidSignature
from tests.bench import Bench, elaborated, run_bench

#: Short buffers, so that they are often full.
BUILDS = {
    "plain": LinkParams(latency=3, vc_depth=6),
    "reliable": LinkParams(latency=3, vc_depth=6, flit_bytes=16, reliable=True, refresh=64),
    "single": LinkParams(latency=1, classes=1, vcs_per_class=4, vc_depth=8),
}
PARAMS = BUILDS[os.environ.get("BENCH_BUILD", "plain")]
INDEX = {"a": 5, "b": 2}
NODE = {"a": 0x0102, "b": 0xFFFE}


class PortPair(wiring.Component):
    """Two link ports, ``a`` and ``b``, ``latency`` cycles apart."""

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        members = {"now": In(48), "up": In(1)}
        for end in "ab":
            members |= {
                f"reserve_{end}": In(params.vcs),
                f"send_{end}": In(ValidSignature(flit(params))),
                f"available_{end}": Out(params.vcs),
                f"receive_{end}": Out(ValidSignature(flit(params))),
                f"free_{end}": In(ValidSignature(unsigned(params.vc_bits))),
                f"status_{end}": Out(LinkStatus),
                f"idle_{end}": Out(1),
                f"wake_{end}": Out(48),
                f"strobe_{end}": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ends = {}
        for end in "ab":
            ends[end] = port = m.submodules[end] = LinkPort(self._params, index=INDEX[end])
            send, receive, free = (getattr(self, f"{name}_{end}")
                                   for name in ("send", "receive", "free"))
            m.d.comb += [
                port.now.eq(self.now), port.node.eq(NODE[end]), port.link.up.eq(self.up),
                port.send.valid.eq(send.valid), port.send.payload.eq(send.payload),
                port.free.valid.eq(free.valid), port.free.payload.eq(free.payload),
                port.reserve.eq(getattr(self, f"reserve_{end}")),
                receive.valid.eq(port.receive.valid), receive.payload.eq(port.receive.payload),
                getattr(self, f"available_{end}").eq(port.available),
                getattr(self, f"status_{end}").eq(port.status),
                getattr(self, f"idle_{end}").eq(port.idle),
                getattr(self, f"wake_{end}").eq(port.wake),
                getattr(self, f"strobe_{end}").eq(port.link.rx.strobe),
            ]
        for source, target in ("ab", "ba"):
            word = ends[source].link.tx
            for step in range(self._params.latency):
                later = Signal(link_word(self._params), name=f"{source}{step}")
                m.d.sync += later.eq(word)
                word = later
            m.d.comb += ends[target].link.rx.eq(word)
        return m


@dataclass
class Packet:
    """A packet and what became of it."""

    vc: int
    fields: dict
    flits: list[int]
    #: It was cut before this link: its last flit is a poisoned tail.
    poisoned: bool
    #: Cycle in which each flit was sent, and whether its end was down then.
    sent: list[tuple[int, bool]] = field(default_factory=list)
    #: Flits that came over the link, the closing tail of a cut packet not counted.
    crossed: int = 0
    closed: bool = False
    answers: list[int] = field(default_factory=list)

    @property
    def request(self) -> bool:
        return self.vc // PARAMS.vcs_per_class == REQUEST_CLASS


class End:
    """A router at one end: sends packets under ``available``, keeps what it receives in buffers,
    takes flits out of them at random."""

    def __init__(self, bench: Bench, name: str, *, rate: float = 0.9, take: float = 0.6,
                 delay: int = 1) -> None:
        self.bench, self.name, self.rate, self.take, self.delay = bench, name, rate, take, delay
        self.vcs = range(PARAMS.vcs)
        self.ports = {port: getattr(bench.dut, f"{port}_{name}")
                      for port in ("reserve", "available", "status", "idle", "wake", "strobe")}
        self.ports |= {f"{port}.{part}": getattr(bench.dut, f"{port}_{name}__{part}")
                       for port in ("send", "receive", "free") for part in ("payload", "valid")}
        #: Packets to send, by VC; the first may be on its way.
        self.queues: list[deque[Packet]] = [deque() for _ in self.vcs]
        self.started = [0] * PARAMS.vcs
        self.pipeline: deque[tuple[Packet, int] | None] = deque([None] * delay)
        self.buffers: list[deque[int]] = [deque() for _ in self.vcs]
        self.packets: dict[int, Packet] = {}
        self.crossing: list[Packet | None] = [None] * PARAMS.vcs
        self.answering: list[int] = []
        self.down: list[bool] = []
        self.answer_log: list[tuple[int, int]] = []
        self.closings = 0
        self.rested: int | None = None
        self.count = 0
        for port in ("send.valid", "free.valid", "reserve"):
            self.ports[port].value = 0
        bench.on_drive(self.drive)
        bench.on_sample(self.sample)
        bench.on_stuck(lambda: f"{name}: to send {list(map(len, self.queues))}, in buffers "
                               f"{list(map(len, self.buffers))}, available "
                               f"{int(self.ports['available'].value):#x}")

    def read(self, port: str) -> int:
        return int(self.ports[port].value)

    def make(self, *, vc: int | None = None, size: int | None = None, poison: float = 0.1
             ) -> Packet:
        """Queue a packet of random contents."""
        rng = self.bench.rng
        vc = rng.choice(self.vcs) if vc is None else vc
        self.count += 1
        response = vc // PARAMS.vcs_per_class == RESPONSE_CLASS
        fields = {name: rng.getrandbits(bits) for name, bits in (
            ("dst", 16), ("src", 16), ("rail", 3), ("slot", 4), ("address", 48), ("length", 12),
            ("path", 8), ("route", 16), ("sequence", 24), ("key", 32), ("counter", 8),
            ("generation", 3))}
        fields |= {"tag": self.count, "flags": {"ack": rng.getrandbits(1), "poison": 0},
                   "klass": vc // PARAMS.vcs_per_class,
                   "op": PacketOp.RESPONSE if response else rng.choice(
                       [PacketOp.WRITE, PacketOp.REDUCE])}
        bits = PARAMS.flit_bits
        header = int.from_bytes(pack(PacketHeader, fields), "little")
        words = [header >> bits * beat & (1 << bits) - 1 for beat in range(header_flits(PARAMS))]
        payload = rng.choice((0, 1, 2, 9)) if size is None else size
        words += [rng.getrandbits(bits) for _ in range(payload)]
        poisoned = len(words) > 1 and rng.random() < poison
        if poisoned:
            words = [*words[:rng.randrange(1, len(words))], 0]
        packet = Packet(vc, fields, [
            int.from_bytes(pack(flit(PARAMS), {
                "payload": word, "vc": vc, "head": place == 0, "tail": place == len(words) - 1,
                "poison": poisoned and place == len(words) - 1}), "little")
            for place, word in enumerate(words)], poisoned)
        self.queues[vc].append(packet)
        self.packets[self.count] = packet
        return packet

    def drive(self) -> None:
        rng, available = self.bench.rng, self.read("available")
        ready = [vc for vc in self.vcs if available >> vc & 1 and self.queues[vc]]
        chosen = None
        if ready and rng.random() < self.rate:
            vc = rng.choice(ready)
            packet, place = self.queues[vc][0], self.started[vc]
            chosen = packet, place
            self.started[vc] = place + 1
            if place + 1 == len(packet.flits):
                self.queues[vc].popleft()
                self.started[vc] = 0
        self.ports["reserve"].value = 1 << chosen[0].vc if chosen else 0
        self.pipeline.append(chosen)
        self.sending = self.pipeline.popleft()
        self.ports["send.valid"].value = int(self.sending is not None)
        if self.sending is not None:
            packet, place = self.sending
            self.ports["send.payload"].value = packet.flits[place]
        held = [vc for vc in self.vcs if self.buffers[vc]]
        self.freeing = rng.choice(held) if held and rng.random() < self.take else None
        self.ports["free.valid"].value = int(self.freeing is not None)
        if self.freeing is not None:
            self.ports["free.payload"].value = self.freeing
            self.buffers[self.freeing].popleft()
        self.acted = bool(chosen or self.sending or self.freeing is not None)

    def sample(self) -> None:
        cycle, down = self.bench.cycle, self.read("status") & 1
        visible = self.read("available"), self.read("status")
        if self.rested is not None:
            assert visible == self.rested, f"cycle {cycle}: {self.name} changed while idle"
        quiet = (self.read("idle") and not self.acted and not self.read("strobe")
                 and self.bench.cycle < self.read("wake") and not self.bench.signal_moved)
        self.rested = visible if quiet else None
        if quiet:
            assert not self.read("receive.valid"), f"cycle {cycle}: {self.name} moves while idle"
        self.down.append(bool(down))
        if self.sending is not None:
            self.sending[0].sent.append((cycle, bool(down)))
        if self.read("receive.valid"):
            self.receive(unpack(flit(PARAMS), self.read("receive.payload")))

    def receive(self, arrived: dict) -> None:
        cycle, vc = self.bench.cycle, arrived["vc"]
        assert len(self.buffers[vc]) < PARAMS.vc_depth, f"cycle {cycle}: VC {vc} overflows"
        self.buffers[vc].append(arrived["payload"])
        if self.down[-1] and not (arrived["poison"] and arrived["tail"] and not arrived["head"]):
            self.answer(arrived)
        elif arrived["head"]:
            assert self.crossing[vc] is None, f"cycle {cycle}: VC {vc} interleaves packets"
            sent = self.peer.sent_on(vc, arrived)
            self.crossing[vc] = sent
            self.cross(vc, arrived)
        else:
            assert self.crossing[vc] is not None, f"cycle {cycle}: VC {vc} goes on without a head"
            self.cross(vc, arrived)

    def cross(self, vc: int, arrived: dict) -> None:
        packet = self.crossing[vc]
        if self.down[-1]:
            assert arrived["poison"] and not arrived["payload"]
            packet.closed = True
            self.closings += 1
        else:
            raw = int.from_bytes(pack(flit(PARAMS), arrived), "little")
            assert raw == packet.flits[packet.crossed], f"VC {vc}: another flit than was sent"
            packet.crossed += 1
        if arrived["tail"]:
            self.crossing[vc] = None

    def sent_on(self, vc: int, head: dict) -> Packet:
        raw = int.from_bytes(pack(flit(PARAMS), head), "little")
        for packet in self.packets.values():
            if packet.vc == vc and packet.flits[0] == raw and not packet.crossed and packet.sent:
                return packet
        raise AssertionError(f"cycle {self.bench.cycle}: a head that nobody sent")

    def answer(self, arrived: dict) -> None:
        assert PARAMS.classes > 1 and arrived["vc"] == RESPONSE_CLASS * PARAMS.vcs_per_class
        assert self.crossing[arrived["vc"]] is None, "an answer within a cut packet"
        beats = header_flits(PARAMS)
        assert arrived["head"] == (not self.answering) and not arrived["poison"]
        self.answering.append(arrived["payload"])
        assert arrived["tail"] == (len(self.answering) == beats)
        if not arrived["tail"]:
            return
        word = sum(part << PARAMS.flit_bits * beat for beat, part in enumerate(self.answering))
        self.answering = []
        fields = unpack(PacketHeader, word & (1 << 256) - 1)
        packet = self.packets[fields["tag"]]
        asked = packet.fields
        expected = unpack(PacketHeader, pack(PacketHeader, {
            "dst": asked["src"], "src": NODE[self.name], "klass": RESPONSE_CLASS,
            "op": PacketOp.RESPONSE, "status": Status.LINK_DOWN, "counter": INDEX[self.name],
            "flags": {"ack": asked["flags"]["ack"]},
            **{name: asked[name] for name in ("rail", "slot", "generation", "tag", "address",
                                              "length")}}))
        assert fields == expected
        packet.answers.append(self.bench.cycle)

    @property
    def rests(self) -> bool:
        return (not any(self.queues) and not any(self.pipeline) and not any(self.buffers)
                and bool(self.read("idle")))

    def check(self) -> None:
        """Hold what became of every packet against when its flits were sent."""
        beats = header_flits(PARAMS)
        for tag, packet in self.packets.items():
            header = packet.sent[:beats]
            whole = len(header) == beats and not (packet.poisoned and len(packet.flits) <= beats
                                                  and beats > 1)
            back = packet.request and whole and PARAMS.classes > 1 and all(
                down for _, down in header)
            assert len(packet.answers) == back, f"{self.name}: packet {tag} {packet}"
            if packet.sent[0][1]:
                assert not packet.crossed, f"{self.name}: packet {tag} crossed a dead link"
            if packet.crossed and packet.crossed < len(packet.flits):
                assert packet.closed, f"{self.name}: packet {tag} was cut and not closed"
            if PARAMS.reliable is False and all(not down for _, down in packet.sent):
                end = packet.sent[-1][0] + PARAMS.latency + 1
                if end < len(self.peer.down) and not self.peer.down[end] and not self.down[end]:
                    assert packet.crossed == len(packet.flits), f"packet {tag} was lost"


class PortBench(Bench):
    """Two ends and the signal between them."""

    def __init__(self, dut, **settings) -> None:
        super().__init__(dut, limit=6_000)
        self.signal_moved = True
        self.signal = 1
        self._moved = 0
        dut.up.value = 1
        self.on_drive(self._tick)
        self.a, self.b = End(self, "a", **settings), End(self, "b", **settings)
        self.a.peer, self.b.peer = self.b, self.a

    def _tick(self) -> None:
        self.dut.now.value = self.cycle
        if int(self.dut.up.value) != self.signal:
            self.dut.up.value = self.signal
            self._moved = 4
        self.signal_moved = self._moved > 0
        self._moved = max(0, self._moved - 1)

    async def running(self, state: bool) -> None:
        await self.until(lambda: all(end.down and end.down[-1] is not state and (
            not state or end.read("available")) for end in (self.a, self.b)),
            "start of the link" if state else "end of the link")

    async def rest(self) -> None:
        for end in (self.a, self.b):
            end.take = 1.0
        await self.until(lambda: self.a.rests and self.b.rests, "end of all packets")
        await self.cycles(4)


@cocotb.test()
async def every_packet_goes_over_or_comes_back_once(dut):
    """The link dies at every phase of traffic on all VCs, both ways, with buffers often full."""
    bench = PortBench(dut, delay=bench_delay(dut))
    ends = (bench.a, bench.b)
    await bench.start()
    await bench.running(True)
    times = 25 if PARAMS.reliable else 1
    for _ in range(times):
        for end in ends:
            end.rate, end.take = (bench.rng.choice(rates) for rates in (
                (0.3, 0.9, 1.0), (0.05, 0.3, 0.7, 1.0)))
            for _ in range(60):
                end.make()
        await bench.cycles(bench.rng.randrange(15, 120))
        bench.signal = 0
        await bench.running(False)
        await bench.cycles(bench.rng.randrange(60))
        for end in ends:
            for _ in range(20):
                end.make()
        if PARAMS.reliable:
            # Back while packets still come, or after all have gone.
            if bench.rng.random() < 0.5:
                await bench.rest()
            bench.signal = 1
            await bench.running(True)
            for end in ends:
                end.make(poison=0)
    await bench.rest()
    for end in ends:
        end.check()
        assert sum(bool(p.answers) for p in end.packets.values()) > 10 * times or (
            PARAMS.classes == 1)
    if PARAMS.reliable:
        assert bench.a.closings and bench.b.closings
        last = bench.a.make(poison=0)
        await bench.rest()
        assert last.crossed == len(last.flits)


@cocotb.test()
async def a_request_comes_back_two_cycles_later(dut):
    bench = PortBench(dut, take=1.0)
    await bench.start()
    await bench.running(True)
    bench.signal = 0
    await bench.running(False)
    await bench.cycles(20)
    assert int(dut.idle_a.value) and int(dut.idle_b.value)
    packet = bench.a.make(vc=0, size=0, poison=0)
    await bench.rest()
    if PARAMS.classes > 1:
        # A header of two flits leaves whole.
        assert packet.answers == [packet.sent[-1][0] + 1 + header_flits(PARAMS)]
    # A stream of them keeps its rate: no more than the flits take.
    many = [bench.a.make(vc=0, size=2, poison=0) for _ in range(30)]
    bench.a.rate = 1.0
    await bench.rest()
    spent = many[-1].sent[-1][0] - many[0].sent[0][0] + 1
    assert spent <= sum(len(p.flits) for p in many) + 4


@cocotb.test()
async def responses_never_wait_on_a_dead_link(dut):
    """With the own response buffer full, requests wait and all else is dropped."""
    if PARAMS.classes == 1:
        return
    bench = PortBench(dut, take=0.0)
    await bench.start()
    await bench.running(True)
    bench.signal = 0
    await bench.running(False)
    for _ in range(40):
        bench.a.make(vc=0, size=1, poison=0)
    await bench.cycles(300)
    answer = PARAMS.vcs_per_class
    assert len(bench.a.buffers[answer]) == PARAMS.vc_depth and bench.a.queues[0]
    assert int(dut.idle_a.value), "waiting for room is rest"
    replies = [bench.a.make(vc=vc, size=0) for vc in (answer, answer + 1) for _ in range(20)]
    await bench.until(lambda: all(reply.sent for reply in replies), "responses")
    assert bench.a.queues[0]
    await bench.rest()
    bench.a.check()


def bench_delay(dut) -> int:
    return FLIGHT if PARAMS.classes == 2 and not PARAMS.reliable else 1


@pytest.mark.parametrize("build", BUILDS)
def test_no_packet_stays_on_a_dead_link(build: str) -> None:
    run_bench(elaborated(PortPair, BUILDS[build]), __name__, env={"BENCH_BUILD": build})
