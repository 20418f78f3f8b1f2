"""Many flits over a noisy link on the engine: none is lost, doubled, reordered or corrupted, and
the counts are those of the formulas in ``bench/link.py``, within three standard deviations.

Two testers with fixed seeds: what holds once holds always.
"""

from dataclasses import replace
from math import sqrt

import pytest

from bench.link import PARAMS, Direction, bit_rate, resends, run_campaign
from emu.fabric import Fabric, NodeKind
from emu.faults import BitErrors, Faults, Outage
from hdl.link.tester import REGISTERS, LinkTester, LinkTesterParams
from hdl.params import LinkParams
from hdl.topology import Link


def check(flits: int, found: tuple[Direction, ...], word_rate: float, latency: int) -> None:
    """``found`` is what ``run_campaign`` says of independent errors, at full rate."""
    for direction in found:
        assert direction.clean, direction
        assert direction.sent == flits
        assert direction.refused == direction.struck
        expected = flits * word_rate
        assert abs(direction.hit - expected) <= 3 * sqrt(expected * (1 - word_rate)) + 1
        # A turn ends with an error, and costs a fixed number of resends.
        turns = flits * word_rate / (1 - word_rate)
        per_turn = 2 * latency + 5
        assert abs(direction.replays - flits * resends(word_rate, latency)) \
            <= 3 * per_turn * sqrt(turns / (1 - word_rate)) + per_turn
        spread = 3 * sqrt(turns / (1 - word_rate))
        low, high = (1 / (1 + per_turn * (turns + sign * spread) / flits) for sign in (1, -1))
        assert low - 1e-3 <= direction.throughput <= high + 1e-3


@pytest.mark.parametrize("word_rate", [1e-3, 1e-2])
def test_a_noisy_link_delivers_everything_at_the_cost_of_the_formula(word_rate: float) -> None:
    flits = 200_000
    found = run_campaign(flits, BitErrors(rate=bit_rate(word_rate, PARAMS)))
    check(flits, found, word_rate, PARAMS.latency)


def test_bursts_of_64_words_and_errors_in_one_field_lose_nothing() -> None:
    for fields, burst in (("all", 64), ("acks", 1), ("credits", 1)):
        errors = BitErrors(rate=bit_rate(1e-2, PARAMS, fields), fields=fields, burst=burst)
        found = run_campaign(50_000, errors, free_rate=200)
        assert all(direction.clean and direction.refused == direction.struck > 100
                   for direction in found), (fields, found)


@pytest.mark.slow
@pytest.mark.parametrize("word_rate", [1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
def test_a_hundred_million_flits_arrive_once_and_in_order(word_rate: float) -> None:
    flits = 50_000_000  # in each direction
    found = run_campaign(flits, BitErrors(rate=bit_rate(word_rate, PARAMS)))
    check(flits, found, word_rate, PARAMS.latency)


@pytest.mark.slow
@pytest.mark.parametrize("fields", ["acks", "credits", "flit"])
@pytest.mark.parametrize("word_rate", [1e-4, 1e-2])
def test_errors_in_one_field_cost_what_any_others_do(word_rate: float, fields: str) -> None:
    flits = 10_000_000
    found = run_campaign(flits, BitErrors(rate=bit_rate(word_rate, PARAMS, fields),
                                          fields=fields))
    check(flits, found, word_rate, PARAMS.latency)


@pytest.mark.slow
@pytest.mark.parametrize("word_rate", [1e-4, 1e-2])
def test_ten_million_flits_survive_bursts_of_64_words(word_rate: float) -> None:
    found = run_campaign(10_000_000, BitErrors(rate=bit_rate(word_rate, PARAMS), burst=64))
    assert all(direction.clean and direction.refused == direction.struck for direction in found)


@pytest.mark.slow
@pytest.mark.parametrize("latency", [1, 5])
def test_small_number_spaces_wrap_at_every_phase(latency: int) -> None:
    # 64 or 32 numbers: with an error in every hundredth word, each is hit thousands of times.
    params: LinkParams = replace(PARAMS, flit_bytes=16, latency=latency, vc_depth=16,
                                 seq_bits=6 if latency > 1 else 5)
    flits = 2_000_000
    found = run_campaign(flits, BitErrors(rate=bit_rate(1e-2, params)), params=params)
    check(flits, found, 1e-2, latency)


def test_skipping_a_tile_that_says_it_is_idle_changes_no_event() -> None:
    # Sparse traffic, errors, and a cable that fails and returns: every state is met at rest.
    kind = NodeKind("link tester", (("tester", LinkTester),), LinkTesterParams(link=PARAMS))
    faults = Faults(errors=BitErrors(rate=bit_rate(0.03, PARAMS)),
                    outages=[Outage(node=0, port=0, start=9_000, end=11_000)])
    logs, stepped = [], []
    for skip_idle, window in ((True, None), (False, 1)):
        fabric = Fabric([kind, kind], [Link(0, 0, 1, 0), Link(1, 0, 0, 0)], latency=[16, 16],
                        seed=7, event_log=True, skip_idle=skip_idle, window=window, faults=faults)
        try:
            fabric.start()
            fabric.advance(64)
            for node in (0, 1):
                for name, value in (("send_rate", 2), ("free_rate", 16), ("count", 1 << 20)):
                    fabric.host_write(node, REGISTERS[name], value)
            fabric.advance(7_000)
            for node in (0, 1):
                count = fabric.host_read(node, REGISTERS["sent"])
                fabric.host_write(node, REGISTERS["count"], count)
            fabric.advance(13_000)
            logs.append(fabric.event_log())
            stepped.append(int(fabric.statistics().stepped.sum()))
        finally:
            fabric.close()
    assert len(logs[0]) > 300
    assert (logs[0] == logs[1]).all()
    assert stepped[0] < stepped[1] // 2
