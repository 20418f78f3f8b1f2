"""Bench of what a switch decides with: iSLIP and the arbiters of its lanes, in one build."""

from functools import reduce
from operator import or_

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import ArbiterModel
from hdl.fabric.islip import Islip, IslipModel
from hdl.fabric.scheduler import LaneArbiter
from hdl.params import Policy
from tests.bench import Bench, run_bench

N = 6
#: Outputs of the matchers that are not square.
FEW = 3
LANES, CLASSES = 5, 3
#: Matchers built side by side: outputs, iterations and policy.
BUILDS = {"one": (N, 1, Policy.ROUND_ROBIN), "two": (N, 2, Policy.ROUND_ROBIN),
          "few": (FEW, 2, Policy.ROUND_ROBIN), "fixed": (N, 3, Policy.FIXED)}


class Blocks(wiring.Component):
    """The blocks side by side; all matchers see the same requests, as far as they have outputs."""

    def __init__(self) -> None:
        super().__init__({
            "request": In(N).array(N),
            **{name: Out(outputs).array(N) for name, (outputs, *_) in BUILDS.items()},
            "lane_request": In(LANES).array(CLASSES), "lane_grant": Out(LANES).array(CLASSES),
            "lane_accept": In(LANES),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, (outputs, iterations, policy) in BUILDS.items():
            m.submodules[f"islip_{name}"] = islip = Islip(
                N, outputs, iterations=iterations, policy=policy)
            for port in range(N):
                m.d.comb += [islip.request[port].eq(self.request[port][:outputs]),
                             getattr(self, name)[port].eq(islip.match[port])]
        m.submodules.lanes = lanes = LaneArbiter(LANES, CLASSES)
        m.d.comb += lanes.accept.eq(self.lane_accept)
        for klass in range(CLASSES):
            m.d.comb += [lanes.request[klass].eq(self.lane_request[klass]),
                         self.lane_grant[klass].eq(lanes.grant[klass])]
        return m


async def start(dut) -> Bench:
    for port in range(N):
        getattr(dut, f"request__{port}").value = 0
    for klass in range(CLASSES):
        getattr(dut, f"lane_request__{klass}").value = 0
    dut.lane_accept.value = 0
    bench = Bench(dut)
    await bench.start()
    return bench


def bits(mask: int) -> set[int]:
    return {index for index in range(mask.bit_length()) if mask >> index & 1}


def matching(dut, name: str) -> list[int | None]:
    masks = [int(getattr(dut, f"{name}__{port}").value) for port in range(N)]
    assert all(mask.bit_count() <= 1 for mask in masks), f"{name}: two outputs for an input"
    taken = [mask for mask in masks if mask]
    assert len(taken) == len(set(taken)), f"{name}: two inputs for an output"
    return [mask.bit_length() - 1 if mask else None for mask in masks]


@cocotb.test()
async def matches_equal_the_model_and_each_iteration_finds_more(dut):
    bench = await start(dut)
    rng = bench.rng
    models = {name: IslipModel(N, outputs, iterations=iterations, policy=policy)
              for name, (outputs, iterations, policy) in BUILDS.items()}
    found = dict.fromkeys(BUILDS, 0)
    requests = [0] * N
    density = 0.0

    def drive() -> None:
        nonlocal density
        if bench.cycle % 100 == 0:
            density = rng.choice((0.05, 0.3, 0.7, 1.0))
        for port in range(N):
            requests[port] = sum(1 << to for to in range(N) if rng.random() < density)
            getattr(dut, f"request__{port}").value = requests[port]

    def sample() -> None:
        wants = [bits(request) for request in requests]
        for name, model in models.items():
            match = matching(dut, name)
            asked = set(range(BUILDS[name][0]))
            assert match == model.step([want & asked for want in wants]), \
                f"cycle {bench.cycle}: {name}"
            found[name] += sum(output is not None for output in match)

    bench.on_drive(drive)
    bench.on_sample(sample)
    await bench.cycles(4000)
    assert found["two"] > found["one"] > 2000


@cocotb.test()
async def under_full_load_every_pair_is_matched_once_in_n_cycles(dut):
    bench = await start(dut)
    for port in range(N):
        getattr(dut, f"request__{port}").value = (1 << N) - 1
    # Pointers drift apart within N cycles per output.
    await bench.cycles(N * N)
    seen = []
    bench.on_sample(lambda: seen.append(matching(dut, "one")))
    await bench.until(lambda: len(seen) == N, "matches")
    assert {(port, match[port]) for match in seen for port in range(N)} == {
        (port, output) for port in range(N) for output in range(N)}


@cocotb.test()
async def each_lane_is_an_arbiter(dut):
    bench = await start(dut)
    rng, models = bench.rng, [ArbiterModel(CLASSES) for _ in range(LANES)]
    requests, accept = [0] * CLASSES, 0

    def drive() -> None:
        nonlocal accept
        for klass in range(CLASSES):
            requests[klass] = rng.getrandbits(LANES)
            getattr(dut, f"lane_request__{klass}").value = requests[klass]
        accept = rng.getrandbits(LANES) & reduce(or_, requests)
        dut.lane_accept.value = accept

    def sample() -> None:
        grants = [int(getattr(dut, f"lane_grant__{klass}").value) for klass in range(CLASSES)]
        for lane, model in enumerate(models):
            request = sum((word >> lane & 1) << klass for klass, word in enumerate(requests))
            grant = sum((word >> lane & 1) << klass for klass, word in enumerate(grants))
            assert grant == model.grant(request), f"cycle {bench.cycle}: lane {lane}"
            if accept >> lane & 1:
                model.accept(request)

    bench.on_drive(drive)
    bench.on_sample(sample)
    await bench.cycles(2000)


def test_matchers_and_lane_arbiters_equal_their_models() -> None:
    run_bench(Blocks(), __name__)
