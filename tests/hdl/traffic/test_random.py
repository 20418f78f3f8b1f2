"""Random numbers of traffic nodes, in their models: what is drawn is what was asked for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hdl.traffic.gap import GAP_STEPS, gap_thresholds
from hdl.traffic.random import FRACTION_BITS, RandomWordModel, cumulative
from hdl.traffic.registers import STREAMS
from hdl.traffic.target import TargetModel

#: Standard deviations that a figure may be off: 1e-6 of all honest runs are beyond.
SIGMAS = 5
DRAWS = 20_000


def stream(seed: int, node: int, which: int = 0) -> RandomWordModel:
    state = np.random.SeedSequence([seed, node]).generate_state(2 * STREAMS, np.uint64)
    return RandomWordModel([int(word) for word in state[2 * which:2 * which + 2]])


def fractions(words: RandomWordModel, count: int) -> np.ndarray:
    """The fractions that gaps are drawn from."""
    return np.array([words.step() >> 64 - FRACTION_BITS for _ in range(count)])


def close(found: float, share: float, draws: int) -> bool:
    return abs(found - share) <= SIGMAS * np.sqrt(share * (1 - share) / draws) + 1e-9


def test_the_generator_is_xoroshiro128_plus_plus() -> None:
    words = RandomWordModel([1, 2])  # the first values of the published generator
    assert [words.step() for _ in range(5)] == [
        393217, 669327710093319, 1732421326133921491, 11394790081659126983, 9555452776773192676]


def test_every_bit_is_set_half_of_the_time_and_follows_no_other() -> None:
    words = stream(1, 2)
    bits = np.array([[word >> bit & 1 for bit in range(64)]
                     for word in (words.step() for _ in range(DRAWS // 4))], dtype=float)
    assert (abs(bits.mean(axis=0) - 0.5) < SIGMAS * 0.5 / np.sqrt(len(bits))).all()
    signs = 2 * bits - 1
    for later in (signs, np.roll(signs, 1, axis=0)):
        related = signs.T @ later / len(bits)
        if later is signs:
            np.fill_diagonal(related, 0)
        assert (abs(related) < 1.2 * SIGMAS / np.sqrt(len(bits))).all()


def test_streams_of_neighbours_and_of_neighbouring_seeds_are_independent() -> None:
    streams = [fractions(stream(seed, node, which), 2000) / 2**FRACTION_BITS - 0.5
               for seed in (0, 1) for node in range(6) for which in range(STREAMS)]
    related = np.corrcoef(streams)
    np.fill_diagonal(related, 0)
    assert abs(related).max() < SIGMAS / np.sqrt(2000)


@pytest.mark.parametrize("probability", [0.003, 0.05, 0.2, 0.5, 0.9])
def test_gaps_are_geometric(probability: float) -> None:
    thresholds = gap_thresholds(probability)
    gaps, words = [], stream(7, 3)
    while len(gaps) < DRAWS // 4:
        gap = 0
        while True:
            below = int(words.step() >> 64 - FRACTION_BITS)
            passed = sum(below < threshold for threshold in thresholds)
            gap += passed + (passed < GAP_STEPS)
            if passed < GAP_STEPS:
                break
        gaps.append(gap)
    mean = np.mean(gaps)
    deviation = np.sqrt(1 - probability) / probability
    assert abs(mean - 1 / probability) < SIGMAS * deviation / np.sqrt(len(gaps))
    for cycles in (1, 2, 15, 16, 17, 33, 100):
        beyond = np.mean([gap > cycles for gap in gaps])
        assert close(beyond, (1 - probability) ** cycles, len(gaps)), cycles


def test_a_probability_of_one_makes_a_packet_in_every_cycle() -> None:
    assert gap_thresholds(1.0) == [0] * GAP_STEPS


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_an_impossible_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=str(probability)):
        gap_thresholds(probability)


def test_listed_targets_get_their_shares_and_all_nodes_the_rest() -> None:
    shares = [0.5, 0.0, 0.125]
    targets = list(zip(cumulative(shares, 1.0, 8), [900, 901, 902] + [999] * 5, strict=True))
    model, words = TargetModel(targets, [(3, 0), (5, 2), (1, 0), (1, 0)]), stream(3, 4)
    count = Counter()
    for _ in range(DRAWS):
        word = words.step()
        count[model.choose(word >> 33, word & 0xFFFF_FFFF)] += 1
    assert close(count[900] / DRAWS, 0.5, DRAWS)
    assert count[901] == count[999] == 0
    assert close(count[902] / DRAWS, 0.125, DRAWS)
    others = {x | y << 2 for x in range(3) for y in range(5)}
    assert set(count) == others | {900, 902}
    assert all(close(count[node] / DRAWS, 0.375 / 15, DRAWS) for node in others)


def test_more_choices_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="room for 2"):
        cumulative([0.1, 0.2, 0.3], 1.0, 2)
    with pytest.raises(ValueError, match="add up"):
        cumulative([0.6, 0.6], 1.0, 2)
