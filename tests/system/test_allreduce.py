"""AllReduce on the RTL: right bits at every size, near its bound, whoever comes late."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import emu
from drivers.collectives import dimension_shape
from drivers.supernode import SuperNode
from emu.emulator import EngineBackend
from emu.oracle import allreduce_sum
from hdl.params import preset
from hdl.registers import RegisterMap
from hdl.topology import parse

TYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


def allreduce(sn, count, dtype, seed, algorithm="auto", cards=None):
    """Run one on all cards, or some, check every card's bits, return the result."""
    rng, kind = np.random.default_rng(seed), TYPES[dtype]
    # Magnitudes far apart: sums depend on their order.
    inputs = [(rng.standard_normal(count) * 2.0 ** rng.integers(-12, 12, count)).astype(kind)
              for _ in range(sn.cards)]
    arrays = [sn.malloc(count, dtype, card).write(inputs[card])
              for card in cards or range(sn.cards)]
    handle = sn.allreduce(arrays, algorithm=algorithm)
    result = handle.wait()
    assert algorithm in ("auto", handle.algorithm)
    expected = allreduce_sum(sn.topology, sn.params, inputs, handle)
    for array in arrays:
        assert array.read().tobytes() == expected.tobytes()
    assert result.cycles >= result.bound_cycles
    sn.free(*arrays)
    return result


@pytest.fixture(scope="module")
def torus():
    """The default machine: eight cards of the size that the numbers are given for."""
    with emu.open("torus:2x2x2") as sn:
        yield sn


@pytest.mark.parametrize("algorithm", ["ring", "dimensions"])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_mebibyte_over_eight_cards_is_near_its_bound(torus, dtype, algorithm):
    result = allreduce(torus, (1 << 20) // TYPES[dtype].itemsize, dtype, 1, algorithm)
    assert result.efficiency >= 0.90


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 9, 1023, 4096, 5000])
def test_counts_that_no_chunk_divides_are_right(torus, count):
    for algorithm in ("ring", "dimensions"):
        allreduce(torus, count, "f32", count, algorithm)
        allreduce(torus, count, "bf16", count, algorithm)


def test_dimensions_take_fewer_cycles_than_the_ring_where_steps_count(torus):
    ring, dimensions = (allreduce(torus, 1024, "f32", 2, algorithm).cycles
                        for algorithm in ("ring", "dimensions"))
    assert dimensions < 0.6 * ring
    with emu.open("mesh:4x4", memory_bytes=1 << 20) as mesh:
        ring, dimensions = (allreduce(mesh, 4096, "f32", 3, algorithm).cycles
                            for algorithm in ("ring", "dimensions"))
        assert dimensions < 0.7 * ring


def test_a_box_of_a_machine_can_be_summed_by_dimensions_and_other_cards_not(torus):
    allreduce(torus, 300, "f32", 4, "dimensions", cards=[0, 1, 4, 5])
    arrays = [torus.malloc(10, "f32", card).write(np.ones(10, np.float32)) for card in (0, 1, 6)]
    with pytest.raises(ValueError, match="these 3 cards of torus:2x2x2 are none"):
        torus.allreduce(arrays, algorithm="dimensions")
    handle = torus.allreduce(arrays)
    handle.wait()
    assert "dimensions" not in handle.reason
    assert all((array.read() == 3).all() for array in arrays)
    torus.free(*arrays)


@pytest.mark.parametrize("size", [1 << 10, 64 << 10, 1 << 20])
def test_the_model_that_shapes_are_chosen_by_is_near_the_machine(torus, size):
    shape = dimension_shape(torus.topology, torus.params, tuple(range(8)), size // 4, 4,
                            counters=64, entries=256)
    result = allreduce(torus, size // 4, "f32", 5, "dimensions")
    assert abs(result.cycles - shape.cycles) < 0.1 * result.cycles


@pytest.mark.parametrize("cards", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_rings_of_every_size_are_right(cards, count):
    with emu.open(f"ring:{cards}", preset="small", memory_bytes=1 << 20) as sn:
        for dtype in TYPES:
            allreduce(sn, count, dtype, seed=count)


@pytest.mark.parametrize("seed", range(3))
def test_random_memory_stalls_change_no_bit(seed):
    with emu.open("ring:4", preset="small", memory_bytes=1 << 20, seed=seed,
                  stall_rate=0.3) as sn:
        allreduce(sn, 777, "f32", seed)


class LateCard(EngineBackend):
    """A machine of which one card hears its first doorbell ``LATE`` cycles after the others."""

    LATE = 10_000
    rank = 0
    held: list[tuple[int, int, int]]

    def register_write(self, rank: int, offset: int, value: int) -> None:
        if rank == self.rank and offset == RegisterMap(self.params.nic).queue_tail.at(0):
            self.held.append((rank, offset, value))
        else:
            super().register_write(rank, offset, value)

    def wait(self, conditions, timeout: int) -> None:
        if self.held:
            self.advance(self.LATE)
            for write in self.held:
                super().register_write(*write)
            self.held.clear()
        super().wait(conditions, timeout)


@pytest.mark.parametrize("rank", range(4))
def test_a_neighbour_that_starts_late_is_waited_for_and_nothing_of_it_touched(rank):
    backend = LateCard(parse("ring:4"), preset("small"), memory_bytes=1 << 20)
    backend.rank, backend.held = rank, []
    with SuperNode(backend) as sn:
        # Until its own list runs, nobody may touch the late card's buffer.
        guard = np.full(1000, 5, np.float32)
        inputs = [np.full(1000, card, np.float32) for card in range(4)]
        arrays = [sn.malloc(1000, "f32", card).write(values)
                  for card, values in enumerate(inputs)]
        arrays[rank].write(guard)
        handle = sn.allreduce(arrays)
        backend.advance(LateCard.LATE // 2)
        assert np.array_equal(arrays[rank].read(), guard)
        arrays[rank].write(inputs[rank])
        result = handle.wait()
        assert result.cycles > LateCard.LATE
        for array in arrays:
            assert np.array_equal(array.read(), np.full(1000, 6, np.float32))
