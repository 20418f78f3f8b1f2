"""Synchronisation counters: no increment is lost, whatever comes together."""

from __future__ import annotations

import cocotb

from hdl.nic.counters import Counters
from tests.bench import Bench, run_bench

COUNTERS, SOURCES, READS = 24, 3, 2


def names(kind: str, count: int, part: str) -> list[str]:
    return [f"{kind}__{index}__{part}" for index in range(count)]


@cocotb.test()
async def totals_are_right_in_the_cycle_after_every_increment(dut) -> None:
    bench = Bench(dut)
    rng = bench.rng
    payloads, valids = ([getattr(dut, name) for name in names("increments", SOURCES, part)]
                        for part in ("payload", "valid"))
    indices, totals = ([getattr(dut, name) for name in names("reads", READS, part)]
                       for part in ("index", "total"))
    expected = [0] * COUNTERS
    asked = [0] * READS
    added: list[int] = []
    hot = rng.randrange(COUNTERS)

    def drive() -> None:
        added.clear()
        for payload, valid in zip(payloads, valids, strict=True):
            # Often the same counter from all sources; sometimes one that is not there.
            counter = hot if rng.random() < 0.5 else rng.choice([*range(COUNTERS), 24, 31, 255])
            go = bench.cycle >= 0 and rng.random() < 0.8
            payload.value, valid.value = counter, int(go)
            if go and counter < COUNTERS:
                added.append(counter)
        for read, index in enumerate(indices):
            asked[read] = rng.choice([hot, rng.randrange(COUNTERS)])
            index.value = asked[read]

    def sample() -> None:
        for read, total in enumerate(totals):
            assert int(total.value) == expected[asked[read]], f"counter {asked[read]}"
        for counter in added:
            expected[counter] += 1

    for valid in valids:
        valid.value = 0
    bench.on_drive(drive)
    bench.on_sample(sample)
    await bench.start()
    await bench.cycles(4000)
    assert min(expected) > 0 and expected[hot] > 4000

    # Reset: all totals are 0, though the memories behind them remember.
    dut.rst.value = 1
    await bench.cycles(1)
    dut.rst.value = 0
    expected[:] = [0] * COUNTERS
    await bench.cycles(1000)
    assert expected[hot] > 1000


def test_counters_lose_no_increment() -> None:
    run_bench(Counters(counters=COUNTERS, sources=SOURCES, reads=READS), __name__)
