"""Adaptive routing under loads that no network could take, on the engine: torus of 8 × 8, links of
one cycle, four lanes of eight flits."""

import pytest

from emu.traffic import (
    Load,
    Outcome,
    Result,
    TrafficNetwork,
    measure,
    parse_pattern,
    traffic_params,
)
from emu.traffic.measure import Method
from emu.traffic.setup import Sizes
from hdl.params import preset
from hdl.topology import parse


def run(pattern: str, *, adaptive: bool, rate: float, sizes: Sizes = Sizes(),
        cycles: int | None = None) -> Result:
    shape, card = parse("torus:8x8"), preset("booksim")
    network = TrafficNetwork(shape, traffic_params(shape, card, adaptive=adaptive), card, seed=1)
    try:
        return measure(network, Load(parse_pattern(pattern, shape, 1), rate, sizes, 1),
                       Method(cycles=cycles))
    finally:
        network.close()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["tornado", "uniform"])
def test_a_million_cycles_of_full_load_do_not_deadlock(pattern: str) -> None:
    result = run(pattern, adaptive=True, rate=1.0, cycles=1_000_000)
    assert result.outcome is not Outcome.NO_PROGRESS
    assert result.identical and not result.lost and not result.duplicated


@pytest.mark.slow
def test_packets_longer_than_buffers_do_not_deadlock_either() -> None:
    result = run("uniform", adaptive=True, rate=1.0, sizes=Sizes((1, 5, 17), (2, 1, 1)),
                 cycles=100_000)
    assert result.outcome is not Outcome.NO_PROGRESS
    assert result.identical and not result.lost and not result.duplicated


@pytest.mark.slow
def test_transpose_saturates_at_half_as_much_again_and_tornado_no_earlier() -> None:
    assert run("transpose", adaptive=False, rate=0.28).outcome is not Outcome.CONVERGED
    assert run("transpose", adaptive=True, rate=0.50).outcome is Outcome.CONVERGED
    assert run("tornado", adaptive=False, rate=0.25).outcome is not Outcome.CONVERGED
    assert run("tornado", adaptive=True, rate=0.23).outcome is Outcome.CONVERGED
