"""The method of measurement on a network made of numbers: how runs end, and what they report."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.traffic.measure import Method, Outcome, measure
from emu.traffic.network import QUANTUM, Totals
from emu.traffic.patterns import parse_pattern
from emu.traffic.setup import Load
from emu.traffic.sweep import sweep
from hdl.topology import parse

NODES = 4
_NAMES = ("sent_packets", "sent_flits", "sent_measured", "sent_digest", "received_packets",
          "received_flits", "received_measured", "received_digest", "received_latency_sum",
          "received_latency_max", "received_misrouted", "received_corrupt", "received_disordered",
          "received_duplicated", "received_cut", "received_returned")


class Numbers:
    """A network that takes ``accept`` flits per node and cycle with the latency of a function of
    time, and holds ``stuck`` packets for ever from a cycle on."""

    def __init__(self, *, offered: float, accept: float, latency: Callable[[int], float],
                 stuck_from: int | None = None, lost: int = 0, **faults: int) -> None:
        self.topology = parse("ring:4")
        self.params = SimpleNamespace(bins=1024)
        self.longest_flight = 50
        self.fabric: Any = SimpleNamespace(
            statistics=lambda: SimpleNamespace(cycles=self.cycle, wall_s=0.5))
        self.cycle = 0
        self._offered, self._accept, self._latency = offered, accept, latency
        self._stuck, self._lost, self._faults = stuck_from, lost, faults
        self._begin = self._end = self._stop = 1 << 40
        self._sums = dict.fromkeys(_NAMES, 0.0)
        self._virtual = 0.0

    def load(self, load: Load, *, measure_from: int) -> int:
        self.cycle += 2 * QUANTUM
        self._begin = self.cycle + measure_from
        self._virtual = self.cycle
        return self.cycle

    def end_measurement(self) -> int:
        self._end = self.cycle + QUANTUM
        return self._end

    def stop(self) -> None:
        self._stop = self.cycle + QUANTUM
        self.advance_to(self._stop)

    def at_rest(self) -> bool:
        return self._stuck is None

    def link_flits(self) -> int:
        return 2 * NODES * int(self._sums["received_flits"])

    def advance_to(self, cycle: int) -> None:
        while self.cycle < cycle:
            self.cycle += QUANTUM
            if self.cycle > self._stop:
                continue
            moving = self._stuck is None or self.cycle < self._stuck
            flits = min(self._offered, self._accept) * QUANTUM
            self._virtual += flits / self._offered if moving else 0
            sent = flits if moving else 0.0
            measured = sent if self._begin <= self._virtual < self._end else 0.0
            for name, amount in (("packets", sent), ("flits", sent), ("measured", measured)):
                self._sums[f"sent_{name}"] += amount
                self._sums[f"received_{name}"] += amount
            self._sums["received_latency_sum"] += measured * self._latency(self.cycle)

    def read(self, *names: str) -> Totals:
        totals = {name: np.full(NODES, round(value), np.uint64)
                  for name, value in self._sums.items()}
        totals["next"] = np.full(NODES, round(self._virtual), np.uint64)
        if self._stuck is not None and self.cycle >= self._stuck:
            totals["sent_packets"] += np.uint64(3)
        totals["sent_packets"][0] += np.uint64(self._lost)
        totals["sent_measured"][0] += np.uint64(self._lost)
        for name, count in self._faults.items():
            totals[f"received_{name}"][0] += np.uint64(count)
        found = Totals(self.cycle, {name: totals[name] for name in names})
        self.advance_to(self.cycle + QUANTUM)
        return found

    def read_all(self) -> Totals:
        return self.read("next", *_NAMES)

    def histogram(self, longest: int) -> np.ndarray:
        counts = np.zeros((NODES, 1024), np.int64)
        counts[:, 10], counts[0, 90], counts[0, 1023] = 50, 2, 1
        return counts


def run(method: Method | None = None, **options: Any):
    network = Numbers(**{"offered": 0.2, "accept": 1.0, "latency": lambda cycle: 20.0} | options)
    pattern = parse_pattern("uniform", network.topology)
    return measure(network, Load(pattern, network._offered), method), network  # type: ignore


def test_a_steady_network_converges_after_the_samples_it_takes() -> None:
    result, _ = run()
    assert result.outcome is Outcome.CONVERGED and result.verified
    assert result.measured_cycles == 4000 + 2 * QUANTUM
    assert result.accepted == result.accepted_min == pytest.approx(0.2)
    assert result.latency_mean == pytest.approx(20.0)
    assert (result.latency_p50, result.latency_p99, result.hops_mean) == (10, 90, 2)
    assert result.cycles_per_s == result.cycles / 0.5


def test_a_network_above_its_capacity_is_unstable() -> None:
    result, _ = run(offered=0.5, accept=0.3, latency=lambda cycle: 0.4 * cycle)
    assert result.outcome is Outcome.UNSTABLE and result.verified
    assert result.accepted == pytest.approx(0.3)


def test_a_latency_that_still_changes_has_not_converged() -> None:
    result, _ = run(latency=lambda cycle: 20 + 0.015 * cycle)
    assert result.outcome is Outcome.NOT_CONVERGED and result.verified
    assert result.measured_cycles == 7000 + 2 * QUANTUM


@pytest.mark.parametrize("cycle", [1500, 5500, 7700])
def test_packets_that_do_not_move_are_no_progress(cycle: int) -> None:
    result, _ = run(stuck_from=cycle)
    assert result.outcome is Outcome.NO_PROGRESS and not result.verified


def test_lost_packets_are_not_taken_for_a_deadlock() -> None:
    result, _ = run(lost=2)
    assert result.outcome is Outcome.CONVERGED and result.lost == 2 and not result.verified


@pytest.mark.parametrize("name", ["misrouted", "corrupt", "disordered", "cut", "returned",
                                  "duplicated", "digest"])
def test_whatever_is_wrong_spoils_the_result(name: str) -> None:
    lost = 1 if name in ("cut", "returned") else 0
    result, _ = run(lost=lost, **{name: 1})
    assert not result.verified
    if name in ("cut", "returned"):
        assert result.lost == 0 and result.faulty[name] == 1


def test_a_fixed_number_of_cycles_is_measured_whatever_it_gives() -> None:
    result, _ = run(Method(cycles=20_000), offered=0.9, accept=0.3,
                    latency=lambda cycle: 0.6 * cycle)
    assert result.outcome is Outcome.UNSTABLE
    assert result.measured_cycles == 20_000 + 2 * QUANTUM


def test_methods_that_make_no_sense_are_refused() -> None:
    for options in ({"sample": 150}, {"cycles": 500}, {"cycles": 1 << 24}):
        with pytest.raises(ValueError):
            Method(**options)


@pytest.mark.parametrize("capacity", [0.013, 0.337, 0.5, 0.999, 2.0])
def test_a_sweep_finds_the_highest_rate_that_is_taken(capacity: float) -> None:
    rates = []

    def point(rate: float) -> Any:
        rates.append(rate)
        outcome = Outcome.CONVERGED if rate <= capacity else Outcome.UNSTABLE
        return SimpleNamespace(offered=rate, outcome=outcome, accepted=min(rate, capacity))
    curve = sweep(point, resolution=0.01)
    expected = min(1.0, int(capacity * 100 + 1e-6) / 100)
    assert curve.saturation == pytest.approx(expected)
    assert [each.offered for each in curve.points] == sorted(set(rates))
    assert curve.overload.offered == 1.0 and len(rates) == len(set(rates))
