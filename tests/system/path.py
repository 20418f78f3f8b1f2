"""Driver programs that must do the same on every backend: the engine, a cocotb bench, a board.

Each takes a :class:`~drivers.supernode.SuperNode`, checks the data it gets back, and returns the
cycle counts that it saw, so that backends can be compared with each other.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from drivers.supernode import SuperNode

__all__ = ["allreduce_everywhere", "gemm_on_each_card", "write_both_ways"]


def write_both_ways(sn: SuperNode) -> list[int]:
    """Write between cards 0 and 1 at sizes and alignments that exercise packets and lanes."""
    rng = np.random.default_rng(1)
    cycles = []
    for size, source_at, target_at in ((0, 0, 0), (1, 3, 31), (32, 0, 0), (33, 5, 0),
                                       (256, 0, 17), (1000, 7, 9), (4096, 0, 0)):
        for source_card, target_card in ((0, 1), (1, 0)):
            for ack in (True, False):
                source = sn.malloc(source_at + size, "u8", source_card)
                target = sn.malloc(target_at + size + 40, "u8", target_card)
                values = rng.integers(0, 256, source_at + size, dtype=np.uint8)
                before = rng.integers(0, 256, target.size, dtype=np.uint8)
                source.write(values)
                target.write(before)
                result = sn.write(source.view(source_at, size), target.view(target_at, size),
                                  ack=ack)
                expected = before.copy()
                expected[target_at:target_at + size] = values[source_at:]
                assert np.array_equal(target.read(), expected)
                assert result.cycles >= result.bound_cycles
                cycles.append(result.cycles)
                sn.free(source, target)
    return cycles


def gemm_on_each_card(sn: SuperNode) -> list[int]:
    """One GEMM per card and shape, in mixed formats; float64 holds these sums exactly."""
    rng = np.random.default_rng(2)
    cycles = []
    for m, n, k in ((4, 4, 4), (5, 7, 9), (8, 8, 32), (0, 3, 3), (3, 3, 0), (17, 3, 21)):
        for card in range(sn.cards):
            a_values = rng.standard_normal((m, k)).astype(np.float32)
            b_values = rng.standard_normal((k, n)).astype(np.float32)
            a_values = a_values.astype(ml_dtypes.float8_e4m3fn)
            b_values = b_values.astype(ml_dtypes.float8_e5m2)
            a = sn.malloc((m, k), "e4m3", card).write(a_values)
            b = sn.malloc((k, n), "e5m2", card).write(b_values)
            c = sn.malloc((m, n), "f32", card).write(np.full((m, n), np.nan, np.float32))
            result = sn.gemm(a, b, c).wait(200_000)
            expected = (a_values.astype(np.float64) @ b_values.astype(np.float64)).astype("f4")
            assert c.read().tobytes() == expected.tobytes()
            assert result.cycles >= result.bound_cycles
            cycles.append(result.cycles)
            sn.free(a, b, c)
    return cycles


def allreduce_everywhere(sn: SuperNode) -> list[int]:
    """AllReduce over all cards at awkward counts, of integers that any order adds exactly."""
    rng = np.random.default_rng(3)
    cycles = []
    for count in (0, 1, 3, 130, 1023):
        for dtype, numpy_type in (("f32", np.float32), ("bf16", ml_dtypes.bfloat16)):
            inputs = [rng.integers(-8, 8, count).astype(np.float32).astype(numpy_type)
                      for _ in range(sn.cards)]
            arrays = [sn.malloc(count, dtype, card).write(values)
                      for card, values in enumerate(inputs)]
            result = sn.allreduce(arrays).wait(500_000)
            expected = np.sum([values.astype(np.float32) for values in inputs], axis=0)
            for array in arrays:
                assert np.array_equal(array.read().astype(np.float32), expected)
            assert result.cycles >= result.bound_cycles
            cycles.append(result.cycles)
            sn.free(*arrays)
    return cycles
