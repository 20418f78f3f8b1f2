"""``supernode traffic``: what it refuses, what it tells, and one real run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import emu.traffic
from emu.traffic import Outcome, Result

from .invoke import invoke

RESULT = Result(
    outcome=Outcome.CONVERGED, offered=0.2, accepted=0.199, accepted_min=0.18, latency_mean=14.25,
    latency_p50=13, latency_p99=28, latency_max=31, hops_mean=2.5, sent=1000, delivered=1000,
    measured=500, lost=0, duplicated=0, faulty={"misrouted": 0, "corrupt": 0, "disordered": 0,
                                                "cut": 0, "returned": 0},
    identical=True, victims=None, cycles=9000, measured_cycles=4000, wall_s=0.5)
#: Keys that the contract names.
KEYS = ("topology", "pattern", "offered", "accepted", "latency_mean", "latency_p50", "latency_p99",
        "hops_mean", "delivered", "lost", "duplicated", "cycles_per_s")


class NoNetwork:
    """In place of a network: remembers what it was to be."""

    made: list[NoNetwork] = []

    def __init__(self, topology: Any, params: Any, card: Any, **options: Any) -> None:
        self.topology, self.params, self.card, self.options = topology, params, card, options
        self.made.append(self)

    def close(self) -> None:
        pass


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[NoNetwork]:
    """Networks that are not built, and settle below a rate of 0.35."""
    def measure(network: Any, load: Any, method: Any, progress: Any = None) -> Result:
        network.load, network.method = load, method
        outcome = Outcome.CONVERGED if load.rate <= 0.35 else Outcome.UNSTABLE
        return replace(RESULT, offered=load.rate, accepted=min(load.rate, 0.35), outcome=outcome)
    NoNetwork.made = []
    monkeypatch.setattr(emu.traffic, "TrafficNetwork", NoNetwork)
    monkeypatch.setattr(emu.traffic, "measure", measure)
    return NoNetwork.made


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("line", "named"), [
    ("", ["--topology"]),
    ("--topology ring:4", ["--rate", "--sweep"]),
    ("--topology star:4 --rate 0.1", ["'star:4'", "ring"]),
    ("--topology ring:4 --rate 0", ["0", "x>0"]),
    ("--topology ring:4 --rate 1.5", ["--rate", "1.5", "at most 1"]),
    ("--topology ring:4 --rate 0.1 --pattern star", ["'star'", "uniform", "incast"]),
    ("--topology ring:5 --rate 0.1 --pattern bitcomp", ["'bitcomp'", "power of two", "5"]),
    ("--topology ring:4 --rate 0.1 --pattern hotspot(9)", ["no node 9", "0 to 3"]),
    ("--topology ring:4 --rate 0.1 --packet-flits x", ["'x'", "1:9,16:1"]),
    ("--topology ring:4 --rate 0.1 --packet-flits 500", ["500", "1 to 129"]),
    ("--topology ring:4 --rate 0.1 --packet-flits 1,2,3,4,5", ["1 to 4", "5"]),
    ("--topology ring:4 --rate 0.1 --cycles 1234", ["1234", "multiple of 1000"]),
    ("--topology ring:4 --rate 0.1 --svg x.svg", ["--svg", "--sweep"]),
    ("--topology ring:4 --rate 0.1 --preset huge", ["'huge'", "booksim"]),
    ("--topology ring:4 --rate 0.1 --ber 0.1 --link plain", ["'plain'", "--ber"]),
    ("--topology ring:4 --rate 0.1 --fail 9:+x@5", ["no node 9", "0 to 3"]),
])
def test_a_bad_request_is_one_line_that_names_the_value(line: str, named: list[str],
                                                        capsys: Any) -> None:
    outcome = invoke(capsys, f"traffic {line}")
    assert outcome.status == 2 and outcome.out == ""
    for text in named:
        assert text in outcome.error
    assert not NoNetwork.made


def test_one_point_has_the_keys_of_the_contract(measured: list[NoNetwork], capsys: Any) -> None:
    outcome = invoke(capsys, "traffic --topology mesh:4x4 --preset booksim --pattern tornado "
                             "--rate 0.2 --seed 7 --packet-flits 1:3,5:1 --json -")
    assert outcome.status == 0
    result = json.loads(outcome.out)
    assert list(result)[:len(KEYS) + 3] != [] and set(KEYS) <= set(result)
    assert (result["topology"], result["pattern"], result["offered"]) == ("mesh:4x4", "tornado",
                                                                          0.2)
    assert result["cycles_per_s"] == 18_000 and result["outcome"] == "converged"
    network, = measured
    assert network.load.seed == 7 and network.load.sizes.mean == 2.0
    assert network.method.cycles is None
    assert not network.params.link.reliable and network.options["seed"] == 7


def test_a_table_names_the_figures(measured: list[NoNetwork], capsys: Any) -> None:
    outcome = invoke(capsys, "traffic --topology mesh:4x4 --rate 0.2 --cycles 3000")
    assert outcome.status == 0
    for text in ("uniform on mesh:4x4", "latency p99", "converged", "1,000 packets sent"):
        assert text in outcome.out
    assert measured[0].method.cycles == 3000


def test_bit_errors_need_reliable_links(measured: list[NoNetwork], capsys: Any) -> None:
    assert invoke(capsys, "traffic --topology ring:4 --rate 0.2 --ber 1e-6").status == 0
    assert measured[0].params.link.reliable and measured[0].card.link.reliable


def test_routing_is_adaptive_if_asked_for(measured: list[NoNetwork], capsys: Any) -> None:
    invoke(capsys, "traffic --topology ring:4 --rate 0.2 --preset booksim --adaptive")
    assert measured[0].params.router.adaptive


def test_a_sweep_finds_saturation_and_writes_table_and_plot(
        measured: list[NoNetwork], capsys: Any, tmp_path: Any) -> None:
    outcome = invoke(capsys, "traffic --topology ring:4 --sweep --resolution 0.01 "
                             f"--csv {tmp_path}/c.csv --svg {tmp_path}/c.svg "
                             f"--json {tmp_path}/c.json")
    assert outcome.status == 0, outcome.err
    result = json.loads((tmp_path / "c.json").read_text())
    assert result["saturation"] == pytest.approx(0.35) and result["peak"] == pytest.approx(0.35)
    rates = [point["offered"] for point in result["points"]]
    assert rates == sorted(rates) and rates[-1] == 1.0
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert lines[0].startswith("offered,accepted") and len(lines) == len(rates) + 1
    assert "<svg" in (tmp_path / "c.svg").read_text()
    assert "saturation: 0.350" in outcome.out


@pytest.mark.parametrize(("change", "named"), [
    ({"outcome": Outcome.NO_PROGRESS, "delivered": 990, "lost": 10}, ["no progress", "10 packets"]),
    ({"lost": 3}, ["3 lost"]),
    ({"identical": False}, ["names differ"]),
    ({"faulty": {"corrupt": 2}}, ["2 corrupt"]),
])
def test_a_run_that_went_wrong_fails(change: dict[str, Any], named: list[str], capsys: Any,
                                     measured: list[NoNetwork],
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emu.traffic, "measure",
                        lambda *arguments, **options: replace(RESULT, **change))
    outcome = invoke(capsys, "traffic --topology ring:4 --rate 0.2 --json -")
    assert outcome.status == 1
    assert json.loads(outcome.out)["verified"] is False
    for text in named:
        assert text in outcome.error


def test_a_saturated_network_is_a_result_and_no_failure(measured: list[NoNetwork],
                                                        capsys: Any) -> None:
    outcome = invoke(capsys, "traffic --topology ring:4 --rate 0.9 --json -")
    assert outcome.status == 0
    assert json.loads(outcome.out)["outcome"] == "unstable"


def test_a_real_network_settles(capsys: Any) -> None:
    outcome = invoke(capsys, "traffic --topology mesh:4x4 --preset booksim --rate 0.2 --json -")
    assert outcome.status == 0
    result = json.loads(outcome.out)
    assert result["outcome"] == "converged" and result["verified"]
    # 5/2 hops of 4 cycles, 4 cycles for the nodes, and hardly any waiting.
    assert 14 < result["latency_mean"] < 15
    assert result["hops_mean"] == pytest.approx(2.5, rel=0.02)
