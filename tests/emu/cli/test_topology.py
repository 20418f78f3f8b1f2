"""``supernode topology``: keys, figures, verdict, drawing, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from hdl.params import CardParams, LinkParams, RouterParams
from hdl.topology import allreduce_bound, parse

from .invoke import invoke

KEYS = ["topology", "cards", "switches", "links", "diameter", "hops_mean", "bisection",
        "deadlock_free"]
SPECS = ["ring:1", "ring:2", "ring:5", "ring:8", "mesh:4", "mesh:3x3", "mesh:2x2x3", "torus:3x4",
         "torus:2x2x2", "torus:1x6"]
SVG = "{http://www.w3.org/2000/svg}"


def one_lane(name: str) -> CardParams:
    """A preset whose rings have no dateline."""
    return CardParams(router=RouterParams(link=LinkParams(vcs_per_class=1)))


def neighbours(spec: str) -> list[tuple[int, int]]:
    """Directed links between cards, from the specification's text alone."""
    kind, _, text = spec.partition(":")
    sizes = [int(size) for size in text.split("x")]
    links, stride = [], 1
    for size in sizes:
        for card in range(prod(sizes)):
            x = card // stride % size
            for step in (1, -1):
                y = x + step
                if size > 1 and (kind != "mesh" or 0 <= y < size):
                    links.append((card, card + (y % size - x) * stride))
        stride *= size
    return links


def distances(cards: int, links: list[tuple[int, int]]) -> list[list[int]]:
    """Floyd and Warshall."""
    table = [[0 if a == b else cards for b in range(cards)] for a in range(cards)]
    for a, b in links:
        table[a][b] = 1
    for k in range(cards):
        for row in table:
            for b in range(cards):
                row[b] = min(row[b], row[k] + table[k][b])
    return table


@pytest.mark.parametrize("spec", SPECS)
def test_json_has_the_contract_s_keys_and_brute_force_s_values(spec: str, capsys: Any) -> None:
    outcome = invoke(capsys, f"topology {spec} --json -")
    assert outcome.status == 0, outcome.err
    assert outcome.err == ""
    result = json.loads(outcome.out)
    assert list(result) == KEYS
    links, cards = neighbours(spec), parse(spec).cards
    table = distances(cards, links)
    assert result["topology"] == spec
    assert (result["cards"], result["switches"], result["links"]) == (cards, 0, len(links))
    assert result["diameter"] == max(map(max, table))
    assert result["hops_mean"] == pytest.approx(sum(map(sum, table)) / cards ** 2)
    assert result["bisection"] == min(sum(a in half and b not in half for a, b in links)
                                      for half in map(set, combinations(range(cards), cards // 2)))
    assert result["deadlock_free"] is True


def test_the_table_tells_bandwidth_ring_order_and_the_terms_of_the_bound(capsys: Any) -> None:
    outcome = invoke(capsys, "topology torus:4x4x4")
    assert outcome.status == 0, outcome.err
    rows = dict(line.strip().rsplit("  ", 1) for line in outcome.out.splitlines()[1:])
    table = {name.strip(): value for name, value in rows.items()}
    assert table["cards"] == "64"
    assert table["links"] == "384"
    assert table["bisection, links"] == "32"
    # 32 links of 32 bytes per cycle at 1 GHz.
    assert table["bisection, GB/s per direction"] == "1,024.00"
    assert table["deadlock free"] == "yes"
    assert table["ring order"].endswith("neighbours throughout")
    bound = allreduce_bound(parse("torus:4x4x4"), CardParams(), range(64), 1 << 20)
    for term, cycles in bound.terms.items():
        assert table[f"1 MiB AllReduce, {term}, cycles"] == f"{cycles:,}"
    assert table["1 MiB AllReduce, bound, cycles"] == f"{bound.cycles:,} ({bound.limit})"


def test_a_ring_order_that_is_no_cycle_says_how_far_it_steps(capsys: Any) -> None:
    assert "0, 1, 2, 3, 4: 1 of 5 steps go further, up to 4 hops" in invoke(
        capsys, "topology mesh:5").out


@pytest.mark.parametrize("spec", ["ring:6", "torus:4x4", "mesh:2x3x2", "torus:2x2x2"])
def test_the_drawing_is_xml_with_a_disc_per_card_and_a_line_per_pair_of_links(
        spec: str, capsys: Any, tmp_path: Path) -> None:
    outcome = invoke(capsys, f"topology {spec} --json - --svg {tmp_path / 'x.svg'}")
    assert outcome.status == 0, outcome.err
    result = json.loads(outcome.out)
    root = ET.parse(tmp_path / "x.svg").getroot()
    assert root.tag == f"{SVG}svg"
    assert len(list(root.iter(f"{SVG}circle"))) == result["cards"]
    assert len(list(root.iter(f"{SVG}path"))) * 2 == result["links"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.svg"]


def test_json_and_drawing_go_to_files_and_the_table_to_standard_output(
        capsys: Any, tmp_path: Path) -> None:
    outcome = invoke(capsys, f"topology ring:4 --json {tmp_path / 'x.json'} "
                             f"--svg {tmp_path / 'x.svg'} --seed 3")
    assert outcome.status == 0, outcome.err
    assert list(json.loads((tmp_path / "x.json").read_text())) == KEYS
    assert "ring:4, preset default" in outcome.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.svg"]


@pytest.mark.parametrize(("spec", "channels"), [("ring:5", 5), ("torus:2x5", 5), ("ring:40", 40)])
def test_routes_that_can_deadlock_give_status_1_a_named_cycle_and_a_json_that_says_so(
        spec: str, channels: int, capsys: Any, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdl.params.preset", one_lane)
    outcome = invoke(capsys, f"topology {spec} --json {tmp_path / 'x.json'}")
    assert outcome.status == 1
    assert f"{spec} can deadlock: " in outcome.error
    named = outcome.error.strip().split(" -> ")
    assert named[0].removeprefix(f"supernode: error: {spec} can deadlock: ") == named[-1]
    if channels <= 16:
        assert len(named) == channels + 1
    else:
        assert named[-2] == f"... ({channels} channels)"
    assert "deadlock free" in outcome.out and "NO" in outcome.out
    result = json.loads((tmp_path / "x.json").read_text())
    assert list(result) == KEYS
    assert result["deadlock_free"] is False


@pytest.mark.parametrize("option", ["--svg", "--json"])
@pytest.mark.parametrize("output", ["missing/folder/x", ".", "/proc/x", "file/x"])
def test_an_unwritable_output_is_refused_and_nothing_is_left_behind(
        option: str, output: str, capsys: Any, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    other = "--json" if option == "--svg" else "--svg"
    outcome = invoke(capsys, f"topology ring:4 {other} whole {option} {output}")
    assert outcome.status == 2
    assert f"'{output}'" in outcome.error
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fills_up_leaves_neither_drawing_nor_json(
        capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(Path, "write_bytes", full)
    outcome = invoke(capsys, f"topology ring:4 --svg {tmp_path / 'x.svg'} "
                             f"--json {tmp_path / 'x.json'}")
    assert outcome.status == 1
    assert "No space left on device" in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_options(capsys: Any) -> None:
    outcome = invoke(capsys, "topology --help")
    assert outcome.status == 0
    for option in ("SPEC", "--links", "--route", "--adaptive", "--svg", "--json", "--preset",
                   "--seed"):
        assert option in outcome.out


MEASURE = """
import atexit, resource, sys
def tell():
    use = resource.getrusage(resource.RUSAGE_SELF)
    print(use.ru_utime + use.ru_stime, use.ru_maxrss, file=sys.stderr)
atexit.register(tell)
from emu.cli import main
main()
"""


@pytest.mark.parametrize(("spec", "figures"), [
    ("torus:16x16x32", {"cards": 8192, "switches": 0, "links": 49152, "diameter": 32,
                        "hops_mean": 16.0, "bisection": 512}),
    ("ring:8192", {"cards": 8192, "switches": 0, "links": 16384, "diameter": 4096,
                   "hops_mean": 2048.0, "bisection": 2}),
    ("ubmesh:8x8x8x16", {"cards": 8192, "switches": 0, "links": 8192 * 36, "diameter": 4,
                         "hops_mean": 3 * 7 / 8 + 15 / 16, "bisection": 16384}),
    ("tiers:crossbar48,fullmesh8,switch21", {
        "cards": 8064, "switches": 176, "links": 17640, "diameter": 5, "bisection": 96,
        "hops_mean": 2 * (1 - 1 / 8064) + 7 / 8 + 2 * 20 / 21}),
    pytest.param("clos:48x3", {
        "cards": 27648, "switches": 2880, "links": 165888, "diameter": 6, "bisection": 13824,
        "hops_mean": 2 * (1 - 1 / 27648) + 2 * (1 - 1 / 1152) + 2 * 47 / 48},
        marks=pytest.mark.slow)])
def test_thousands_of_cards_take_less_than_a_minute_and_4_gibibytes(
        spec: str, figures: dict[str, Any]) -> None:
    run = subprocess.run([sys.executable, "-c", MEASURE, "topology", spec, "--json", "-"],
                         capture_output=True, text=True, check=True)
    seconds, kibibytes = map(float, run.stderr.split())
    assert seconds < 60 and kibibytes < 4 << 20
    result = json.loads(run.stdout)
    assert result.pop("hops_mean") == pytest.approx(figures.pop("hops_mean"))
    assert result == {"topology": spec, **figures, "deadlock_free": True}


def test_the_route_between_two_cards_is_told_link_by_link(capsys: Any) -> None:
    outcome = invoke(capsys, "topology tiers:crossbar4@10,fullmesh3@40 --route 0 11 --json -")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["route"] == [
        {"link": "0:0", "to": "s0", "tier": 1, "lanes": [0], "cycles": 3 + 10},
        {"link": "s0:5", "to": "s2", "tier": 2, "lanes": [0], "cycles": 4 + 40},
        {"link": "s2:3", "to": "11", "tier": 1, "lanes": [0], "cycles": 4 + 10}]
    assert "route from card 0 to card 11, 3 hops, 71 cycles" in invoke(
        capsys, "topology tiers:crossbar4@10,fullmesh3@40 --route 0 11").out


def test_the_tiers_are_told_with_links_width_latency_and_the_depth_that_they_need(
        capsys: Any) -> None:
    outcome = invoke(capsys, "topology tiers:crossbar4,fullmesh3*2@40 --links --json -")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out)["tiers"] == [
        {"tier": 1, "kind": "switch", "size": 4, "links": 24, "width": 1, "latency": 16,
         "vc_depth": 38},
        {"tier": 2, "kind": "fullmesh", "size": 3, "links": 12, "width": 2, "latency": 40,
         "vc_depth": 86}]


def test_a_figure_that_is_the_best_known_says_so(capsys: Any) -> None:
    assert "96 (narrowest known)" in invoke(
        capsys, "topology tiers:crossbar48,fullmesh8,switch21").out
    assert "narrowest known" not in invoke(capsys, "topology clos:8x2").out


def test_adaptive_routers_are_judged_by_their_escape_channels(capsys: Any) -> None:
    outcome = invoke(capsys, "topology torus:4x4 --adaptive --preset booksim")
    assert outcome.status == 0, outcome.err
    outcome = invoke(capsys, "topology torus:4x4 --adaptive")
    assert outcome.status == 2
    assert "at least 3 virtual channels per class" in outcome.error


@pytest.mark.parametrize(("arguments", "what"), [
    ("ring:4 --route 0 4", "no card 4"), ("ring:4 --route -1 0", "no card -1"),
    ("fullmesh:65", "at most 63"), ("tiers:star4", "'star4'"), ("clos:7x2", "folded Clos")])
def test_what_does_not_exist_is_refused(arguments: str, what: str, capsys: Any) -> None:
    outcome = invoke(capsys, f"topology {arguments}")
    assert outcome.status == 2 and what in outcome.error


def test_a_ring_of_switches_is_refused_and_named(capsys: Any) -> None:
    outcome = invoke(capsys, "topology tiers:crossbar4,ring5")
    assert outcome.status == 1
    named = outcome.error.removeprefix("supernode: error: tiers:crossbar4,ring5 can deadlock: ")
    assert [name.split(":")[0] for name in named.strip().split(" -> ")] in (
        ["s0", "s1", "s2", "s3", "s4", "s0"], ["s0", "s4", "s3", "s2", "s1", "s0"])
