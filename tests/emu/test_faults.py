"""Bit errors follow their law, and links lose what they must, in exactly the cycles they must."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from emu.fabric import Fabric
from emu.faults import FIELDS, BitErrors, Faults, Outage
from emu.library import EventKind
from hdl.layouts import field_slices, link_word

from . import toys
from .machines import cable, toy_card, toy_params

PARAMS = toy_params()
LINK = PARAMS.link
WIDTH = max(first + width for first, width in field_slices(link_word(LINK)).values())


def pair(faults, *, seed=0, latency=8, **options):
    """Two toy cards with two cables, started."""
    links = [*cable(0, 0, 1, 1), *cable(0, 1, 1, 0)]
    fabric = Fabric([toy_card(PARAMS)] * 2, links, latency=[latency] * 4, quantum=32,
                    memory_bytes=1 << 16, faults=faults, seed=seed, event_log=True, **options)
    fabric.start()
    return fabric


def struck(fabric, cycles, port=0):
    """The flipped bits of words that leave in each of these cycles: cycle, and positions."""
    for cycle in cycles:
        bits = fabric.error_bits(0, port, cycle)
        if bits:
            yield cycle, [bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def within(found, expected, sigma, factor=4.0):
    assert abs(found - expected) <= factor * sigma, (found, expected, sigma)


@pytest.mark.parametrize(("rate", "fields"), [(1e-4, "all"), (3e-3, "flit"), (0.05, "acks"),
                                              (0.02, "credits"), (0.5, "acks")])
def test_words_and_bits_are_struck_as_often_as_the_rate_says(rate, fields):
    errors = BitErrors(rate=rate, fields=fields)
    fabric = pair(Faults(errors=errors))
    positions = {bit for first, width in errors.bits(LINK) for bit in range(first, first + width)}
    trials = 20_000 if rate > 1e-3 else 200_000
    hits = list(struck(fabric, range(trials)))
    fabric.close()
    p = errors.word_rate(LINK)
    assert p == pytest.approx(1 - (1 - rate) ** len(positions))
    within(len(hits), trials * p, sqrt(trials * p * (1 - p)))
    flips = np.zeros(WIDTH)
    for _, bits in hits:
        flips[bits] += 1
    assert set(np.flatnonzero(flips)) <= positions
    # Bits are independent: their number is binomial, and each position is hit alike.
    within(flips.sum(), trials * rate * len(positions),
           sqrt(trials * rate * (1 - rate) * len(positions)))
    each = flips[sorted(positions)]
    expected = trials * rate
    chi2 = ((each - expected) ** 2 / (expected * (1 - rate))).sum()
    within(chi2, len(positions), sqrt(2 * len(positions)), factor=6)
    pairs = sum(len(bits) * (len(bits) - 1) for _, bits in hits)
    mean = trials * rate ** 2 * len(positions) * (len(positions) - 1)
    within(pairs, mean, 4 * sqrt(mean) + 2)


def test_the_strobe_is_never_struck_and_everything_else_may_be():
    slices = field_slices(link_word(LINK))
    covered = set(FIELDS["all"])
    assert covered == set(slices) - {"strobe"}
    assert all(set(names) <= covered for names in FIELDS.values())


def test_bursts_strike_all_words_of_a_slot_and_as_many_words_as_single_errors():
    burst, slots = 64, 6000
    errors = BitErrors(rate=2e-4, burst=burst)
    fabric = pair(Faults(errors=errors))
    hits = [cycle for cycle, _ in struck(fabric, range(burst * slots))]
    fabric.close()
    phases = {cycle % burst for before, cycle in pairwise(hits) if cycle > before + 1}
    assert len(phases) == 1  # slots of one link start in one phase
    p = errors.word_rate(LINK)
    within(len(hits) / burst, slots * p, sqrt(slots * p * (1 - p)))


def test_errors_depend_on_seed_link_and_cycle_alone():
    def pattern(seed, port, **options):
        fabric = pair(Faults(errors=BitErrors(rate=1e-3)), seed=seed, **options)
        fabric.host_write(0, toys.SEND, toys.send_word(index=0, count=5, port=0))
        fabric.advance(100)
        found = list(struck(fabric, range(3000), port))
        fabric.close()
        return found

    reference = pattern(1, 0)
    assert reference == pattern(1, 0, window=3) == pattern(1, 0, latency=5)
    assert reference != pattern(2, 0) and reference != pattern(1, 1)


def test_a_struck_word_arrives_with_exactly_these_bits_flipped():
    data = np.random.default_rng(0).integers(0, 256, 40 * LINK.flit_bytes, dtype=np.uint8)
    # Payload errors alone: everything arrives, some of it wrong.
    errors = BitErrors(rate=2e-3, fields="flit")
    fabric = pair(Faults(errors=errors), seed=1)
    fabric.memory_view(0)[:data.size] = data
    fabric.host_write(0, toys.SEND, toys.send_word(index=0, count=40, port=0))
    fabric.advance(300)
    log = fabric.event_log()
    words = log[log["kind"] == EventKind.LINK]["cycle"]
    expected = []
    for flit, cycle in zip(data.reshape(40, -1), words, strict=True):
        bits = fabric.error_bits(0, 0, int(cycle))
        slices = field_slices(link_word(LINK))
        if bits >> slices["valid"][0] & 1 or bits >> slices["seq"][0] & (1 << LINK.seq_bits) - 1:
            continue  # lost, or sent on
        payload = int.from_bytes(flit.tobytes(), "little") ^ bits & (1 << LINK.flit_bits) - 1
        expected.append(payload.to_bytes(LINK.flit_bytes, "little"))
    link = fabric.link_statistics()[0]
    memory = fabric.memory_view(1)
    received = fabric.host_read(1, toys.RECEIVED)
    assert link.corrupted == link.corrupted_flits == sum(log["kind"] == EventKind.CORRUPT) > 5
    assert received == len(expected) < 40
    written = memory[:received * LINK.flit_bytes].reshape(received, -1)
    whole = np.arange(received) % 4 != 3  # the toy writes some flits in part
    found = [row.tobytes() for row, kept in zip(written, whole, strict=True) if kept]
    assert found == [flit for flit, kept in zip(expected, whole, strict=True) if kept]
    fabric.close()


@pytest.mark.parametrize("flat", [False, True])
def test_a_cable_loses_what_is_on_it_and_its_pins_fall_and_rise_in_these_cycles(flat):
    start, end, latency = 60, 70, 8
    fabric = pair(Faults(outages=[Outage(node=0, port=0, start=start, end=end)]), flat=flat)
    for node in (0, 1):  # the second one sends by the same cable and by the other one
        fabric.host_write(node, toys.SEND, toys.send_word(index=0, count=60, port=node))
    fabric.advance(64)
    registers = [(node, toys.SIGNAL) for node in (0, 1)]
    during = fabric.host_read_many(registers)  # from cycle 64 on
    fabric.advance(300)
    after = fabric.host_read_many(registers)
    assert during == [0b10 << 48 | start, 0b01 << 48 | start]
    assert after == [0b11 << 48 | end, 0b11 << 48 | end]
    log = fabric.event_log()
    sent = log[(log["kind"] == EventKind.LINK) & (log["node"] == 0)]["cycle"]
    lost = log[(log["kind"] == EventKind.LOST) & (log["node"] == 0)]["cycle"]
    assert sent[0] < start - latency < end < sent[-1]
    assert np.array_equal(lost, sent[(sent + latency >= start) & (sent < end)])
    assert fabric.host_read(1, toys.RECEIVED) == 60 - len(lost)
    there, back, *others = fabric.link_statistics()
    assert there.lost == len(lost) and there.words == there.flits == 60
    assert back.lost == len(lost) and all(link.lost == 0 for link in others)
    signals = log[log["kind"] == EventKind.SIGNAL]
    assert [(each["cycle"], each["node"], each["port"], each["value"]) for each in signals] == [
        (start, 0, 0, 0), (start, 1, 1, 0), (end, 0, 0, 1), (end, 1, 1, 1)]
    fabric.close()


@pytest.mark.parametrize(("make", "message"), [
    (lambda: BitErrors(rate=1.0), "at least 0 and below 1, not 1.0"),
    (lambda: BitErrors(rate=-0.1), "at least 0 and below 1"),
    (lambda: BitErrors(rate=0.1, fields="crc"), "'crc': accepted are all, flit, credits, acks"),
    (lambda: BitErrors(rate=0.1, burst=0), "at least 1 cycle, not 0"),
    (lambda: Outage(node=0, port=0, start=5, end=5), "from 5 to 5"),
    (lambda: Outage(node=0, port=0, start=-1), "from -1"),
    (lambda: pair(Faults(outages=[Outage(node=0, port=2, start=5)])),
     "no link leaves port 2 of node 0"),
    (lambda: pair(Faults(links={(5, 0): BitErrors(rate=0.1)})), "no link leaves port 0 of node 5"),
    (lambda: pair(Faults(outages=[Outage(node=0, port=0, start=5),
                                  Outage(node=1, port=1, start=9, end=12)])),
     "the cable at port 1 of node 1 fails in cycle 9, but is down already"),
])
def test_wrong_faults_are_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
