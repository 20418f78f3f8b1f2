"""What ``idle`` promises: a tile that is not clocked while idle without input is the same tile."""

import cocotb
from amaranth.hdl import EnableInserter, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hdl.compute.tile import ComputeTile
from hdl.params import CardParams, ComputeParams
from hdl.ports import ComputeSignature
from tests.bench import elaborated, run_bench

from .gemm_bench import GemmBench
from .test_gemm import random_gemm

PARAMS = CardParams(compute=ComputeParams(array=4))


class Twins(wiring.Component):
    """Two tiles with the same inputs, one of which sleeps when it may; ``differ`` compares all
    their outputs, ``slept`` counts."""

    def __init__(self):
        members = dict(ComputeSignature(PARAMS).members.items())
        super().__init__({**members, "differ": Out(1), "slept": Out(32)})

    def elaborate(self, platform):
        m = Module()
        awake, sleeper = ComputeTile(PARAMS), ComputeTile(PARAMS)
        m.submodules.awake = awake
        run = Signal()
        m.submodules.sleeper = EnableInserter(run)(sleeper)
        inputs = [self.gemm.valid] + [port.response.valid for port in self.read]
        valid = Signal()
        for signal in inputs:
            with m.If(signal):
                m.d.comb += valid.eq(1)
        m.d.comb += run.eq(~sleeper.idle | valid)
        m.d.sync += self.slept.eq(self.slept + ~run)
        same = []
        for path, member, value in ComputeSignature(PARAMS).flatten(self):
            ours, theirs = (_follow(tile, path) for tile in (awake, sleeper))
            if member.flow is Out:
                m.d.comb += value.eq(ours)
                same.append(_bits(ours) == _bits(theirs))
            else:
                m.d.comb += [ours.eq(value), theirs.eq(value)]
        for equal in same:
            with m.If(~equal):
                m.d.comb += self.differ.eq(1)
        return m


def _follow(tile, path):
    for part in path:
        tile = tile[part] if isinstance(part, int) else getattr(tile, part)
    return tile


def _bits(value):
    return value.as_value() if hasattr(value, "as_value") else value


@cocotb.test()
async def sleeping_changes_nothing(dut):
    bench = GemmBench(dut, ports=1, latency=40, rate=0.7)

    def compare():
        assert not int(dut.differ.value), f"cycle {bench.bench.cycle}: the sleeping tile differs"

    await bench.bench.start()
    bench.bench.on_sample(compare)
    for round_ in range(3):
        bench.memory.rate = (1.0, 0.7, 0.3)[round_]
        for sizes in ((5, 6, 33), (9, 3, 0), (0, 2, 2), (4, 40, 70)):
            bench.post(random_gemm(bench.rng, *sizes, special=0.01))
        await bench.finish()
    assert int(dut.slept.value) > 300, "the tile hardly slept"


def test_idle_tile_may_be_skipped():
    run_bench(elaborated(Twins), __name__)
