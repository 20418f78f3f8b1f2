"""BookSim's method of measuring a network under an open load.

Time is cut into samples of 1,000 cycles. Three warm the network up. Then packets are measured:
those *created* from there on, until the means of latency and of accepted rate have changed by less
than 5 % over three samples in a row, ten samples after the start at the latest. The load goes on,
unmeasured, until every measured packet has arrived. At last no more packets are sent, the network
runs empty, and what was sent is compared with what was received.

A network that cannot take its load never settles: its sources' queues, and so the latency, grow
without end. It is *unstable* once the mean latency is above 500 cycles, *not converged* if the
means still change after all samples, and has made *no progress* if packets are in the network and
none arrives for a whole sample: then it is deadlocked. The last is found in every run, because
every run ends by emptying the network.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .network import QUANTUM, Totals, TrafficNetwork
from .setup import Load

__all__ = ["Method", "Outcome", "Result", "measure"]


class Outcome(enum.Enum):
    """How a measurement ended."""

    CONVERGED = "converged"
    #: Latency grows without end.
    UNSTABLE = "unstable"
    #: Latency or accepted rate still change.
    NOT_CONVERGED = "not converged"
    #: Packets are in the network, and none arrives.
    NO_PROGRESS = "no progress"


@dataclass(frozen=True)
class Method:
    """Figures of the method; BookSim's are the defaults.

    Raises
    ------
    ValueError
        If one is out of range.
    """

    sample: int = 1000
    warmup: int = 3
    samples: int = 10
    threshold: float = 0.05
    #: Samples in a row that must change by less than the threshold.
    steady: int = 3
    #: Mean latency from which on a network is unstable.
    latency: float = 500.0
    #: Measure for exactly so many cycles, whatever they give.
    cycles: int | None = None

    def __post_init__(self) -> None:
        if self.sample < QUANTUM or self.sample % QUANTUM:
            raise ValueError(f"a sample must be a multiple of {QUANTUM} cycles, not {self.sample}")
        if self.cycles is not None and (self.cycles < self.sample or self.cycles % self.sample
                                        or self.cycles >= 1 << 23):
            raise ValueError(f"the cycles measured must be a multiple of {self.sample} below "
                             f"{1 << 23:,}, not {self.cycles}")

    @property
    def planned(self) -> int:
        """Cycles until measuring ends, unless means keep still earlier; draining comes after."""
        measured = (self.samples - self.warmup) * self.sample
        return self.warmup * self.sample + (measured if self.cycles is None else self.cycles)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a load did to a network. Rates are flits per node and cycle, latencies cycles."""

    outcome: Outcome
    offered: float
    #: Mean over all nodes, and that of the node that received least.
    accepted: float
    accepted_min: float
    #: Of measured packets, from creation to the arrival of their tail; ``None`` without any, or if
    #: a percentile lies beyond the histogram.
    latency_mean: float | None
    latency_p50: int | None
    latency_p99: int | None
    latency_max: int | None
    #: Links per flit, over the whole run.
    hops_mean: float | None
    #: Packets of the whole run.
    sent: int
    delivered: int
    measured: int
    lost: int
    duplicated: int
    #: By name of their total: packets that something was wrong with.
    faulty: dict[str, int] = field(default_factory=dict)
    #: The packets received are the packets sent, by the sums of their hashes.
    identical: bool
    #: Of the flows to nodes that the pattern does not overload; ``None`` if it overloads none.
    victims: dict[str, float | int | None] | None = None
    #: Cycles of the whole run, those measured, and wall time per cycle.
    cycles: int
    measured_cycles: int
    wall_s: float

    @property
    def cycles_per_s(self) -> float:
        return self.cycles / self.wall_s if self.wall_s else 0.0

    @property
    def verified(self) -> bool:
        """Every packet arrived once, whole, where it should."""
        return (self.outcome is not Outcome.NO_PROGRESS and self.identical and not self.lost
                and not self.duplicated and not any(self.faulty.values()))


#: Totals that count packets with something wrong.
_FAULTS = ("misrouted", "corrupt", "disordered", "cut", "returned")


def measure(network: TrafficNetwork, load: Load, method: Method | None = None, *,
            progress: Callable[[str], None] | None = None) -> Result:
    """Put a load on a fresh network and measure it. ``progress`` hears what it does."""
    return _Measurement(network, load, method or Method(), progress).run()


class _Measurement:
    def __init__(self, network: TrafficNetwork, load: Load, method: Method,
                 progress: Callable[[str], None] | None) -> None:
        self.network, self.load, self.method = network, load, method
        self._progress = progress or (lambda text: None)
        #: Flits that had arrived, and the cycle since when there are not more of them.
        self._arrived, self._since = -1, 0

    def run(self) -> Result:
        network, method = self.network, self.method
        begin = network.load(self.load, measure_from=method.warmup * method.sample)
        for _ in range(method.warmup):
            begin += method.sample
            first = self._look(begin, "warming up")
        outcome = self._settle(begin, first)
        last = self._look(network.end_measurement(), "measured")
        if outcome in (Outcome.CONVERGED, Outcome.NOT_CONVERGED) and not self._drain(last.cycle):
            outcome = Outcome.UNSTABLE
        network.stop()
        if not self._empty():
            outcome = Outcome.NO_PROGRESS
        return self._result(outcome, first, last)

    def _settle(self, begin: int, first: Totals) -> Outcome:
        """Measure until the means keep still."""
        method = self.method
        samples = method.planned // method.sample - method.warmup
        before, steady = (0.0, 0.0), 0
        mean = 0.0
        for number in range(1, samples + 1):
            totals = self._look(begin + number * method.sample, "measuring")
            if self._stuck(totals):
                return Outcome.NO_PROGRESS
            mean = _mean_latency(totals) or 0.0
            now = mean, self._accepted(first, totals)
            still = all(abs(new - old) < method.threshold * new
                        for new, old in zip(now, before, strict=True))
            before, steady = now, steady + 1 if still else 0
            if method.cycles is None and (steady == method.steady or mean > method.latency):
                break
        if mean > method.latency:
            return Outcome.UNSTABLE
        return Outcome.CONVERGED if steady >= method.steady else Outcome.NOT_CONVERGED

    def _drain(self, end: int) -> bool:
        """Keep up the load until all measured packets have arrived; whether the network can.

        Once all of them have been sent, a sample in which none arrives ends it too: what is still
        missing is lost, or so late that it comes when the load has stopped.
        """
        before = (-1, -1)
        while True:
            totals = self._look(self.network.cycle + self.method.sample, "draining")
            arrived, slowest = totals.sum("received_measured"), int(totals.next.min())
            if slowest >= end:
                if arrived in (totals.sum("sent_measured"), before[0]):
                    return True
            elif slowest == before[1]:
                return False  # a source has been held up for all of the sample
            if self._stuck(totals) or (_mean_latency(totals) or 0.0) > self.method.latency:
                return False
            before = arrived, slowest

    def _empty(self) -> bool:
        """Wait until the network is empty; whether it became so."""
        while True:
            totals = self._look(self.network.cycle + self.method.sample, "emptying")
            if not _outstanding(totals):
                return True
            if self._stuck(totals):
                return self.network.at_rest()

    def _look(self, cycle: int, doing: str) -> Totals:
        """The totals that progress is judged by, at ``cycle`` or now."""
        self._progress(doing)
        self.network.advance_to(cycle)
        return self.network.read("next", "sent_packets", "sent_measured", "received_packets",
                                 "received_flits", "received_measured", "received_latency_sum",
                                 "received_cut", "received_returned")

    def _stuck(self, totals: Totals) -> bool:
        """Packets are in the network, and none has arrived for longer than any should take."""
        arrived = totals.sum("received_flits")
        if arrived != self._arrived or not _outstanding(totals):
            self._arrived, self._since = arrived, totals.cycle
        return totals.cycle - self._since >= self.method.sample + self.network.longest_flight

    def _accepted(self, first: Totals, last: Totals) -> float:
        flits = last.sum("received_flits") - first.sum("received_flits")
        return flits / (last.cycle - first.cycle) / self.network.topology.cards

    def _result(self, outcome: Outcome, first: Totals, last: Totals) -> Result:
        network = self.network
        statistics = network.fabric.statistics()
        links = network.link_flits()
        totals = network.read_all()
        sent, received = totals.sum("sent_packets"), totals.sum("received_packets")
        duplicated = totals.sum("received_duplicated")
        flits = totals.sum("received_flits")
        accepted = (last.received_flits - first.received_flits) / (last.cycle - first.cycle)
        counts = network.histogram(int(totals.received_latency_max.max()))
        hot = self.load.pattern.hot
        cold = np.array([node not in hot for node in range(network.topology.cards)])
        return Result(
            outcome=outcome, offered=self.load.rate,
            accepted=self._accepted(first, last), accepted_min=float(accepted.min()),
            latency_mean=_mean_latency(totals), latency_p50=_percentile(counts, 0.50, network),
            latency_p99=_percentile(counts, 0.99, network),
            latency_max=int(totals.received_latency_max.max()) if counts.sum() else None,
            hops_mean=links / flits if flits else None,
            sent=sent, delivered=received, measured=totals.sum("received_measured"),
            lost=max(0, _outstanding(totals) + duplicated),
            duplicated=max(duplicated, -_outstanding(totals)),
            faulty={name: totals.sum(f"received_{name}") for name in _FAULTS},
            identical=(totals.sum("sent_digest") - totals.sum("received_digest")) % 2**64 == 0,
            victims=_victims(totals, accepted, counts, cold, network)
            if hot and cold.any() else None,
            cycles=statistics.cycles, measured_cycles=last.cycle - first.cycle,
            wall_s=statistics.wall_s)


def _outstanding(totals: Totals) -> int:
    """Packets sent of which nothing has been heard."""
    return totals.sum("sent_packets") - sum(
        totals.sum(f"received_{name}") for name in ("packets", "cut", "returned"))


def _mean_latency(totals: Totals) -> float | None:
    measured = totals.sum("received_measured")
    return totals.sum("received_latency_sum") / measured if measured else None


def _percentile(counts: np.ndarray, share: float, network: TrafficNetwork) -> int | None:
    """The latency that this share of the packets does not exceed."""
    merged = counts.sum(axis=0).cumsum()
    if not merged[-1]:
        return None
    latency = int(np.searchsorted(merged, share * merged[-1]))
    return latency if latency < network.params.bins - 1 else None


def _victims(totals: Totals, accepted: np.ndarray, counts: np.ndarray, cold: np.ndarray,
             network: TrafficNetwork) -> dict[str, float | int | None]:
    """Figures of the nodes that are not overloaded."""
    measured = sum(map(int, totals.received_measured[cold]))
    latency = sum(map(int, totals.received_latency_sum[cold]))
    return {
        "accepted": float(accepted[cold].mean()), "accepted_min": float(accepted[cold].min()),
        "latency_mean": latency / measured if measured else None,
        "latency_p50": _percentile(counts[cold], 0.50, network),
        "latency_p99": _percentile(counts[cold], 0.99, network)}
