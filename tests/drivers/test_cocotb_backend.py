"""The cocotb backend keeps the time and order that the protocol promises, on two mirror cards."""

from __future__ import annotations

import cocotb
import numpy as np
import pytest

from drivers.backend import Completions, StallError, WaitTimeout
from drivers.cocotb_backend import CocotbBackend
from hdl.params import preset
from hdl.topology import parse
from tests.bench import run_bench

from .mirror import BUSY, NODE, Mirror

PARAMS = preset("small")
QUANTUM, LATENCY = PARAMS.host_quantum, PARAMS.memory.latency


def words(backend, rank, flit):
    return backend.memory_read(rank, 32 * flit, 32).view(np.uint64).tolist()


async def machine(dut):
    backend = CocotbBackend(dut, parse("ring:2"), PARAMS, memory_bytes=1 << 15)
    await backend.start()
    return backend


@cocotb.test()
async def writes_of_one_instant_reach_every_card_one_per_cycle(dut):
    def driver(backend):
        for instant in (0, QUANTUM):
            assert backend.cycle == instant
            for index in range(4):
                for rank in range(2):
                    backend.register_write(rank, 8 * index, 1 << 60 | 100 * rank + index)
            backend.advance(1)
            for rank in range(2):
                for index in range(4):
                    assert words(backend, rank, index) == [
                        1 << 60 | 100 * rank + index, instant + index, 0, 0]

    backend = await machine(dut)
    await backend.run(driver)


@cocotb.test()
async def reads_see_earlier_writes_and_memory_answers_after_its_latency(dut):
    def driver(backend):
        backend.memory_write(1, 0, b"\xff" * 64)
        backend.register_write(1, 8, 0xDEAD)
        assert backend.register_read(1, 8) == 0xDEAD
        assert words(backend, 1, 1)[2:] == [(1 << 64) - 1] * 2  # byte enables
        assert words(backend, 1, 101)[0] - words(backend, 1, 100)[0] == LATENCY
        assert backend.cycle % QUANTUM == 0 and backend.cycle > LATENCY
        assert backend.register_read(0, 24) == 0
        assert backend.register_read(1, NODE) == 1 | 32768 << 16

    backend = await machine(dut)
    await backend.run(driver)


@cocotb.test()
async def waits_end_with_completions_stalls_and_timeouts(dut):
    def driver(backend):
        for rank in range(2):
            for _ in range(3):
                backend.register_write(rank, 0, 0)
        backend.wait([Completions(0, 3), Completions(1, 2)], 1000)
        assert backend.cycle == QUANTUM
        backend.wait([Completions(0, 0xFFFF_FFFF)], 0)
        with pytest.raises(StallError, match=r"all cards idle .* card 1 to complete record 4 "
                                             r"\(has 3\)"):
            backend.wait([Completions(0, 3), Completions(1, 4)], 100_000)
        assert backend.cycle < 1000
        backend.register_write(0, BUSY, 0)
        start = backend.cycle
        with pytest.raises(WaitTimeout, match="card 0 to complete record 9"):
            backend.wait([Completions(0, 9)], 500)
        assert 500 <= backend.cycle - start < 500 + QUANTUM

    backend = await machine(dut)
    await backend.run(driver)


@cocotb.test()
async def memory_outside_the_card_is_refused(dut):
    backend = await machine(dut)

    def driver(backend):
        with pytest.raises(ValueError, match="card 1 has no bytes 0x7fff to 0x8001"):
            backend.memory_read(1, 32767, 2)

    await backend.run(driver)


def test_cocotb_backend():
    run_bench(Mirror(PARAMS, cards=2), __name__, name="mirror")
