"""The compute tile against exact arithmetic: every product, shapes, strides, stalls, refusals."""

import itertools
import math
import os

import cocotb
import numpy as np
import pytest

from hdl.compute.tile import ComputeTile
from hdl.layouts import Format, Status
from hdl.params import CardParams, ComputeParams, MemoryParams
from tests.bench import elaborated, run_bench

from .gemm_bench import Gemm, GemmBench

PARAMS = CardParams(compute=ComputeParams(array=4), memory=MemoryParams(latency=64))
SIZES = (0, 1, 7, 15, 16, 17, 31, 64, 129)
PAIRS = tuple(itertools.product(("E4M3", "E5M2"), repeat=2))


def finite(rng, shape, name):
    """Random codes without NaN and infinity."""
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    top = 0x7F if name == "E4M3" else 0x7C
    return np.where(codes & 0x7F >= top, codes & 0x80 | 0x20, codes).astype(np.uint8)


def random_gemm(rng, m, n, k, *, special=0.0):
    a_format, b_format = PAIRS[rng.integers(4)]
    a, b = finite(rng, (m, k), a_format), finite(rng, (k, n), b_format)
    for codes in (a, b):
        hit = rng.random(codes.shape) < special
        codes[hit] = rng.choice(np.array([0x7F, 0xFF, 0x7C, 0xFC, 0, 0x80], dtype=np.uint8),
                                int(hit.sum()))
    aligned = rng.random() < 0.3
    return Gemm(
        a, b, a_format, b_format, bool(rng.integers(2)),
        shift=(0, 0, 0) if aligned else (*map(int, rng.integers(0, 32, 2)), int(rng.integers(8))),
        pad=tuple(int(x) for x in rng.integers(0, 40, 3)) if rng.random() < 0.5 else (0, 0, 0))


async def started(dut, **options):
    bench = GemmBench(dut, ports=PARAMS.compute.read_ports, **options)
    await bench.bench.start()
    return bench


@cocotb.test()
async def specials_and_signs_meet_in_sums(dut):
    bench = await started(dut, latency=8)
    for _ in range(12):
        m, n, k = bench.rng.integers(1, 20, 3)
        bench.post(random_gemm(bench.rng, m, n, k, special=0.03))
    await bench.finish()


@cocotb.test()
async def shapes(dut):
    slow = os.environ.get("GEMM_ALL_SHAPES")
    bench = await started(dut, latency=20)
    everything = list(itertools.product(SIZES, repeat=3))
    if slow:
        part, parts = map(int, slow.split("/"))
        sample = everything[part::parts]
    else:
        # Every size in every place, in random company that is not too big, and some more.
        sample = [(129, 129, 129)]
        while sum(map(math.prod, sample)) > 150_000:
            places = [bench.rng.permutation(SIZES) for _ in range(3)]
            sample = [tuple(map(int, sizes)) for sizes in zip(*places, strict=True)]
        small = [sizes for sizes in everything if math.prod(sizes) <= 20_000]
        sample += [small[index] for index in bench.rng.choice(len(small), 12, replace=False)]
    for sizes in sample:
        bench.post(random_gemm(bench.rng, *sizes))
        await bench.finish()


@cocotb.test()
async def panels_are_reused_refilled_and_streamed(dut):
    bench = await started(dut, latency=30)
    for m, n, k in ((40, 70, 50), (5, 9, 1024), (37, 5, 1000), (5, 6, 1025), (9, 5, 2100)):
        gemm = random_gemm(bench.rng, m, n, k)
        bench.post(gemm)
        await bench.finish()


@cocotb.test()
async def stalls_change_nothing(dut):
    bench = await started(dut, latency=12, rate=0.6)
    for _ in range(10):
        m, n, k = bench.rng.integers(1, 45, 3)
        bench.post(random_gemm(bench.rng, m, n, k, special=0.002))
    await bench.finish()


@cocotb.test()
async def refused_descriptors_write_nothing(dut):
    bench = await started(dut, latency=8)
    end = GemmBench.SIZE
    for override in (
            {"a_format": Format.F32}, {"b_format": 7}, {"c_format": Format.E4M3},
            {"accumulate": 1}, {"reserved0": 1}, {"reserved1": 1 << 31}, {"reserved2": 1},
            {"reserved3": 1 << 511}, {"c": 1026}, {"ldc": 42}, {"k": (1 << 30) + 1},
            {"a": end - 10}, {"lda": 1 << 31}, {"b": 1 << 48}, {"b": (1 << 64) - 4},
            {"ldb": 0xFFFFFFFF}, {"c": end - 4 * 12}, {"ldc": 0xFFFFFFFC}, {"m": 0xFFFFFFFF},
            {"n": 0xFFFFFFFF}):
        gemm = random_gemm(bench.rng, 5, 6, 7)
        gemm.override, gemm.status = override, Status.BAD_DESCRIPTOR
        bench.post(gemm)
        bench.post(random_gemm(bench.rng, 2, 2, 2))
    await bench.finish()
    # What is not touched may lie anywhere.
    for sizes, override in (((0, 3, 3), {"a": end, "c": end}), ((3, 0, 3), {"b": end, "c": end}),
                            ((3, 3, 0), {"a": 1 << 60, "b": end})):
        gemm = random_gemm(bench.rng, *sizes)
        gemm.override = override
        bench.post(gemm)
    await bench.finish()


def test_compute_tile_is_exact():
    run_bench(elaborated(ComputeTile, PARAMS), __name__)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_compute_tile_is_exact_for_all_shapes(part):
    run_bench(elaborated(ComputeTile, PARAMS), __name__, testcase="shapes",
              env={"GEMM_ALL_SHAPES": f"{part}/4"})
