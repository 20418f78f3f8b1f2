"""A 16×16 array: every product of every format pair, and how much of the array works.

``pytest -s -k utilisation tests/hdl/compute/test_utilisation.py`` prints the figures.
"""

import itertools
import os

import cocotb
import numpy as np
import pytest

from hdl.compute.tile import ComputeTile
from hdl.params import CardParams
from tests.bench import elaborated, run_bench

from .gemm_bench import Gemm, GemmBench
from .test_gemm import finite

PARAMS = CardParams()
SIZE = PARAMS.compute.array


async def started(dut, **options):
    bench = GemmBench(dut, ports=PARAMS.compute.read_ports, **options)
    await bench.bench.start()
    return bench


@cocotb.test()
async def every_product_of_every_format_pair(dut):
    bench = await started(dut, latency=8)
    codes = np.arange(256, dtype=np.uint8)
    for a_format, b_format in itertools.product(("E4M3", "E5M2"), repeat=2):
        bench.post(Gemm(codes[:, None], codes[None, :], a_format, b_format))
        (cycles,) = await bench.finish()
        # K = 1: the rounding units are the limit, size ÷ 4 results per cycle, and the drain
        # registers stand empty for 4 cycles between two of the 256 tiles.
        assert cycles <= 256 * 256 // (SIZE // 4) + 4 * 256 + 150, cycles


@cocotb.test()
async def utilisation_from_request_to_done(dut):
    bench = await started(dut, latency=64)
    for (m, n, k), options, least in (
            ((256, 256, 256), {}, 0.99) if os.environ.get("LARGE") else ((128, 128, 256), {}, 0.98),
            ((64, 64, 256), {"shift": (7, 9, 3), "pad": (5, 3, 1)}, 0.88),
            ((64, 64, 256), {"shift": (7, 9, 3), "pad": (5, 3, 1), "b_transposed": True}, 0.90),
            ((16, 64, 1024), {}, 0.93), ((32, 32, 1100), {}, 0.90), ((64, 64, 64), {}, 0.70)):
        bench.post(Gemm(finite(bench.rng, (m, k), "E4M3"), finite(bench.rng, (k, n), "E4M3"),
                        **options))
        (cycles,) = await bench.finish()
        share = m * n * k / (cycles * SIZE ** 2)
        print(f"m {m} n {n} k {k} {options or 'aligned'}: {cycles} cycles, {share:.2%}")
        assert share >= least, f"{m}×{n}×{k} took {cycles} cycles: {share:.2%}"


@cocotb.test()
async def the_smallest_gemm_takes_two_memory_latencies_and_46_cycles(dut):
    bench = await started(dut, latency=64)
    bench.post(Gemm(finite(bench.rng, (1, 1), "E4M3"), finite(bench.rng, (1, 1), "E4M3")))
    (cycles,) = await bench.finish()
    assert cycles == 2 * 64 + 46, cycles


def test_16_by_16_array_is_exact_and_busy():
    run_bench(elaborated(ComputeTile, PARAMS), __name__)


@pytest.mark.slow
def test_16_by_16_array_is_busy_99_percent_of_the_time_on_large_matrices():
    run_bench(elaborated(ComputeTile, PARAMS), __name__,
              testcase="utilisation_from_request_to_done", env={"LARGE": "1"})
