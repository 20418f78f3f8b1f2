"""Bench of the router's parts: arbiters and VC buffer, in one build."""

import cocotb
from amaranth.hdl import Module, Shape
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter, ArbiterModel
from hdl.fabric.buffer import VcBuffer, VcBufferModel, front_layout
from hdl.layouts import field_slices, unpack
from hdl.params import LinkParams, Policy
from tests.bench import Bench, run_bench

N = 5
BUFFER = LinkParams(flit_bytes=16, classes=1, vcs_per_class=3, vc_depth=5)
CHANNEL_BITS = 4
FRONT = front_layout(CHANNEL_BITS)


class Blocks(wiring.Component):
    """The blocks side by side, each with its own ports."""

    def __init__(self) -> None:
        self._buffer = VcBuffer(BUFFER, CHANNEL_BITS)
        super().__init__({
            "request": In(N), "accept": In(1), "grant": Out(N), "fixed": Out(N),
            "buffer": Out(self._buffer.signature),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.arbiter = arbiter = Arbiter(N)
        m.submodules.fixed = fixed = Arbiter(N, policy=Policy.FIXED)
        m.d.comb += [arbiter.request.eq(self.request), arbiter.accept.eq(self.accept),
                     self.grant.eq(arbiter.grant), fixed.request.eq(self.request),
                     self.fixed.eq(fixed.grant)]
        m.submodules.buffer = self._buffer
        wiring.connect(m, wiring.flipped(self.buffer), self._buffer)
        return m


async def start(dut) -> Bench:
    for name in ("request", "accept", "buffer__write__valid", "buffer__pop__valid"):
        getattr(dut, name).value = 0
    bench = Bench(dut)
    await bench.start()
    return bench


@cocotb.test()
async def arbiters_grant_as_defined_and_starve_nobody(dut):
    bench = await start(dut)
    rng, model, fixed = bench.rng, ArbiterModel(N), ArbiterModel(N, policy=Policy.FIXED)
    waited = [0] * N  # accepted grants that each persistent requester has seen go elsewhere
    request = accept = 0

    def drive() -> None:
        nonlocal request, accept
        # Requesters persist until served; new ones come at random.
        request |= rng.getrandbits(N) & rng.getrandbits(N)
        accept = int(request != 0 and rng.random() < 0.7)
        dut.request.value, dut.accept.value = request, accept

    def sample() -> None:
        nonlocal request
        grant = int(dut.grant.value)
        assert grant == model.grant(request), f"cycle {bench.cycle}: {request:05b}: {grant:05b}"
        assert int(dut.fixed.value) == fixed.grant(request)
        if accept:
            model.accept(request)
            for index in range(N):
                waits = request >> index & 1 and not grant >> index & 1
                waited[index] = waited[index] + 1 if waits else 0
                assert waited[index] < N, f"requester {index} starves"
            request &= ~grant

    bench.on_drive(drive)
    bench.on_sample(sample)
    await bench.cycles(2000)


@cocotb.test()
async def buffer_keeps_order_and_shows_fronts_one_cycle_after_the_write(dut):
    bench = await start(dut)
    rng, model = bench.rng, VcBufferModel(BUFFER)
    mark = field_slices(data.StructLayout({
        "vc": BUFFER.vc_bits, "head": 1, "tail": 1, "poison": 1, "channel": CHANNEL_BITS}))
    in_packet = [False] * BUFFER.vcs
    rates = [0.7, 0.7]
    written: tuple | None = None
    popped: int | None = None
    expected: tuple | None = None  # payload and poison popped in the cycle before
    moved = [0, 0]

    def drive() -> None:
        nonlocal written, popped
        room = [vc for vc in range(BUFFER.vcs) if len(model.queues[vc]) < BUFFER.vc_depth]
        written = None
        if room and rng.random() < rates[0]:
            vc = rng.choice(room)
            tail = rng.getrandbits(1)
            written = (vc, rng.getrandbits(BUFFER.flit_bits), int(not in_packet[vc]), tail,
                       tail & rng.getrandbits(1), rng.getrandbits(CHANNEL_BITS))
            in_packet[vc] = not tail
            fields = dict(zip(("vc", "head", "tail", "poison", "channel"), (vc, *written[2:]),
                              strict=True))
            dut.buffer__write__payload.value = sum(
                value << mark[name][0] for name, value in fields.items())
            dut.buffer__write_payload.value = written[1]
        dut.buffer__write__valid.value = int(written is not None)
        filled = [vc for vc in range(BUFFER.vcs) if model.queues[vc]]
        popped = rng.choice(filled) if filled and rng.random() < rates[1] else None
        dut.buffer__pop__valid.value = int(popped is not None)
        if popped is not None:
            dut.buffer__pop__payload.value = popped

    def sample() -> None:
        nonlocal expected
        assert int(dut.buffer__occupied.value) == model.occupied, f"cycle {bench.cycle}"
        if expected is not None:
            got = int(dut.buffer__payload.value), int(dut.buffer__poison.value)
            assert got == expected, f"cycle {bench.cycle}: payload and poison"
        fronts, tails = int(dut.buffer__front.value), int(dut.buffer__tail.value)
        for vc in range(BUFFER.vcs):
            if model.queues[vc]:
                front = unpack(FRONT, fronts >> vc * Shape.cast(FRONT).width)
                assert (front["head"], tails >> vc & 1, front["channel"]) == model.front(vc), \
                    f"cycle {bench.cycle}: front of VC {vc}"
        expected = None if popped is None else model.pop(popped)
        if written is not None:
            model.write(*written)
        moved[0] += written is not None
        moved[1] += popped is not None

    bench.on_drive(drive)
    bench.on_sample(sample)
    for rates[:] in ([0.7, 0.7], [1.0, 0.3], [0.3, 1.0], [1.0, 1.0], [0.0, 1.0]):
        await bench.cycles(600)
    assert moved[0] == moved[1] > 1000 and not model.occupied


def test_blocks_behave_as_their_models() -> None:
    run_bench(Blocks(), __name__)
