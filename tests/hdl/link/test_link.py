"""Bench of a link: two endpoints joined by delay lines of the link's latency."""

from collections import deque

import cocotb
from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import field_slices, flit, link_word
from hdl.link.credit import CreditReceiverModel, CreditSenderModel
from hdl.link.link import LinkEndpoint
from hdl.params import LinkParams
from hdl.ports import ValidSignature
from tests.bench import Bench, run_bench
from tests.hdl.link.words import Flit, Words

PARAMS = LinkParams(flit_bytes=16)


class LinkPair(wiring.Component):
    """Two endpoints, ``a`` and ``b``, ``latency`` cycles apart, with their tx pins tapped."""

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        members = {"up": In(1)}
        for end in "ab":
            members |= {
                f"send_{end}": In(ValidSignature(flit(params))),
                f"available_{end}": Out(params.vcs),
                f"receive_{end}": Out(ValidSignature(flit(params))),
                f"free_{end}": In(ValidSignature(unsigned(params.vc_bits))),
                f"idle_{end}": Out(1),
                f"tx_{end}": Out(link_word(params)),
                f"rx_{end}": Out(link_word(params)),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ends = {}
        for end in "ab":
            ends[end] = endpoint = m.submodules[end] = LinkEndpoint(self._params)
            send, receive, free = (getattr(self, f"{name}_{end}")
                                   for name in ("send", "receive", "free"))
            m.d.comb += [
                endpoint.link.up.eq(self.up),
                endpoint.send.valid.eq(send.valid),
                endpoint.send.payload.eq(send.payload),
                receive.valid.eq(endpoint.receive.valid),
                receive.payload.eq(endpoint.receive.payload),
                endpoint.free.valid.eq(free.valid),
                endpoint.free.payload.eq(free.payload),
                getattr(self, f"available_{end}").eq(endpoint.available),
                getattr(self, f"idle_{end}").eq(endpoint.idle),
                getattr(self, f"tx_{end}").eq(endpoint.link.tx),
                getattr(self, f"rx_{end}").eq(endpoint.link.rx),
            ]
        for source, target in ("ab", "ba"):
            word = ends[source].link.tx
            for step in range(self._params.latency):
                later = Signal(link_word(self._params), name=f"{source}{step}")
                m.d.sync += later.eq(word)
                word = later
            m.d.comb += ends[target].link.rx.eq(word)
        return m


class End:
    """One end of the pair: sends and frees at random; every output is compared with the models
    every cycle, words bit by bit."""

    def __init__(self, bench: Bench, name: str, params: LinkParams, *, send_rate: float,
                 free_rate: float, vcs: list[int] | None = None) -> None:
        self.bench, self.params, self.words = bench, params, Words(params)
        self.send_rate, self.free_rate = send_rate, free_rate
        self.vcs = vcs or list(range(params.vcs))
        self.ports = {port: getattr(bench.dut, f"{port}_{name}")
                      for port in ("tx", "rx", "available", "idle")}
        self.ports |= {f"{port}.{part}": getattr(bench.dut, f"{port}_{name}__{part}")
                       for port in ("send", "receive", "free") for part in ("payload", "valid")}
        self.flits = field_slices(flit(params))
        self.sender, self.receiver = CreditSenderModel(params), CreditReceiverModel(params)
        self.sent: deque[Flit] = deque()  # and not yet received
        self.arrived = [0] * params.vcs
        self.total = 0
        # What was on the tx pins in the last ``latency`` cycles, newest first.
        self.line: deque[Flit | None] = deque([None] * params.latency)
        self.offer: Flit | None = None
        self.freeing: int | None = None
        self.expected = 0
        for port in ("send.valid", "free.valid"):
            self.ports[port].value = 0
        bench.on_drive(self.drive)
        bench.on_sample(self.sample)
        bench.on_stuck(lambda: f"{name}: {len(self.sent)} flits not received" if self.sent else "")

    def read(self, port: str) -> int:
        return int(self.ports[port].value)

    def pack(self, flit: Flit) -> int:
        return sum(value << self.flits[field][0] for field, value in flit._asdict().items())

    def drive(self) -> None:
        rng = self.bench.rng
        available = self.read("available")
        assert available == (self.sender.available if int(self.bench.dut.up.value) else 0), \
            f"cycle {self.bench.cycle}: available is {available:#x}"
        ready = [vc for vc in self.vcs if available >> vc & 1]
        self.offer = None
        if ready and rng.random() < self.send_rate:
            self.offer = Flit(rng.getrandbits(self.params.flit_bits), rng.getrandbits(1),
                              rng.getrandbits(1), rng.choice(ready))
            self.ports["send.payload"].value = self.pack(self.offer)
        self.ports["send.valid"].value = int(self.offer is not None)
        held = [vc for vc in range(self.params.vcs)
                if self.arrived[vc] > self.receiver.freed[vc]]
        self.freeing = rng.choice(held) if held and rng.random() < self.free_rate else None
        self.ports["free.valid"].value = int(self.freeing is not None)
        if self.freeing is not None:
            self.ports["free.payload"].value = self.freeing

    def sample(self) -> None:
        cycle = self.bench.cycle
        word = self.read("tx")
        assert word == self.expected, f"cycle {cycle}: tx is {word:#x}, not {self.expected:#x}"
        idle = word == 0 and self.receiver.tell is None
        assert self.read("idle") == idle, f"cycle {cycle}: idle should be {idle}"
        self.line.pop()
        self.line.appendleft(self.words.unpack(word)[0])

        arriving, told = self.words.unpack(self.read("rx"))
        assert self.read("receive.valid") == (arriving is not None)
        if arriving is not None:
            assert self.read("receive.payload") == self.pack(arriving)
            self.arrived[arriving.vc] += 1
            assert self.peer.sent.popleft() == arriving, f"cycle {cycle}: another flit than sent"
        if told is not None:
            self.sender.learn(*told)

        tell = self.receiver.tell if int(self.bench.dut.up.value) else None
        if tell is not None:
            self.receiver.told()
        self.expected = self.words.pack(self.offer, tell)
        if self.freeing is not None:
            self.receiver.free(self.freeing)
        if self.offer is not None:
            self.sender.charge(self.offer.vc)
            self.sent.append(self.offer)
            self.total += 1

    def check_invariants(self) -> None:
        """Of the direction in which this end sends, at the end of every cycle."""
        peer, cycle = self.peer, self.bench.cycle
        for vc in range(self.params.vcs):
            sent, known, freed = (self.sender.sent[vc], self.sender.freed[vc],
                                  peer.receiver.freed[vc])
            flight = sum(flit is not None and flit.vc == vc for flit in (self.offer, *self.line))
            occupancy = peer.arrived[vc] - freed
            assert sent - known <= self.params.vc_depth, f"cycle {cycle}: VC {vc} overdrawn"
            assert known <= freed, f"cycle {cycle}: VC {vc} knows credits that nobody freed"
            assert sent - freed == flight + occupancy, f"cycle {cycle}: VC {vc} lost count"


async def start(dut, **rates) -> tuple[Bench, End, End]:
    bench = Bench(dut, limit=5_000)
    dut.up.value = 1
    a, b = End(bench, "a", PARAMS, **rates), End(bench, "b", PARAMS, **rates)
    a.peer, b.peer = b, a
    bench.on_sample(a.check_invariants)
    bench.on_sample(b.check_invariants)
    await bench.start()
    return bench, a, b


async def drain(bench: Bench, *ends: End) -> None:
    for end in ends:
        end.send_rate, end.free_rate = 0.0, 1.0
    await bench.until(lambda: all(not end.sent and end.sender.sent == end.sender.freed
                                  and end.read("idle") for end in ends), "end of all credits")


@cocotb.test()
async def credits_hold_every_cycle_under_random_traffic(dut):
    bench, a, b = await start(dut, send_rate=0.8, free_rate=0.5)
    for _ in range(16):
        await bench.cycles(250)
        for end in (a, b):
            end.send_rate = bench.rng.choice((0.1, 0.7, 1.0))
            end.free_rate = bench.rng.choice((0.05, 0.4, 1.0))
    await drain(bench, a, b)
    assert min(a.total, b.total) > 500


@cocotb.test()
async def one_vc_fills_the_link(dut):
    bench, a, b = await start(dut, send_rate=1.0, free_rate=1.0, vcs=[2])
    await bench.cycles(200)
    before = a.total, b.total
    await bench.cycles(1000)
    assert min(a.total - before[0], b.total - before[1]) >= 990
    await drain(bench, a, b)


@cocotb.test()
async def nothing_passes_while_the_link_is_down_or_in_reset(dut):
    bench = Bench(dut)
    dut.up.value = 0
    for end in "ab":
        getattr(dut, f"free_{end}__valid").value = 0
        getattr(dut, f"send_{end}__valid").value = 1
        getattr(dut, f"send_{end}__payload").value = 1

    def silent() -> None:
        for end in "ab":
            assert int(getattr(dut, f"tx_{end}").value) == 0
            assert int(getattr(dut, f"receive_{end}__valid").value) == 0
            assert int(getattr(dut, f"available_{end}").value) == 0 or int(dut.up.value)

    bench.on_sample(silent)
    await bench.start()
    await bench.cycles(2 * PARAMS.latency)
    dut.rst.value = 1
    dut.up.value = 1
    await bench.cycles(2 * PARAMS.latency)


def test_credits_are_never_minted_nor_lost_and_one_vc_fills_the_link() -> None:
    run_bench(LinkPair(PARAMS), __name__)
