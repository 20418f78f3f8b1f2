"""Drawings: well formed, a disc per card, a line per pair of links, nothing in the way."""

from __future__ import annotations

import re
from itertools import combinations
from math import hypot
from xml.etree import ElementTree as ET

import pytest

from hdl.topology import parse
from hdl.topology.drawing import MOST_CARDS, RADIUS, draw

SPECS = ["ring:1", "ring:2", "ring:3", "ring:8", "mesh:1", "mesh:2", "mesh:5", "mesh:3x4",
         "torus:2x2", "torus:1x4", "torus:4x3", "torus:2x2x2", "mesh:1x3x2", "torus:4x2x3",
         "torus:4x4x4"]
SVG = "{http://www.w3.org/2000/svg}"


def parts(spec: str) -> tuple[list[tuple[float, float]], list[ET.Element]]:
    root = ET.fromstring(draw(parse(spec)))
    assert root.tag == f"{SVG}svg"
    discs = [(float(disc.get("cx")), float(disc.get("cy"))) for disc in root.iter(f"{SVG}circle")]
    return discs, list(root.iter(f"{SVG}path"))


@pytest.mark.parametrize("spec", SPECS)
def test_every_card_is_a_disc_with_its_rank_and_every_pair_of_links_a_line(spec):
    topology = parse(spec)
    discs, lines = parts(spec)
    assert len(discs) == topology.cards
    assert len(lines) == len(topology.links) / 2
    root = ET.fromstring(draw(topology))
    numbers = [text.text for text in root.iter(f"{SVG}text")]
    assert numbers[1:] == [str(rank) for rank in range(topology.cards)]
    assert [line.find(f"{SVG}title").text for line in lines] == [
        f"card {link.source} +{'xyz'[link.source_port // 2]} to card {link.target} "
        f"-{'xyz'[link.source_port // 2]}" for link in topology.links if link.source_port % 2 == 0]


@pytest.mark.parametrize("spec", SPECS)
def test_lines_end_at_the_cards_they_join_and_pass_over_no_other(spec):
    topology = parse(spec)
    discs, lines = parts(spec)
    pairs = [link for link in topology.links if link.source_port % 2 == 0]
    for line, link in zip(lines, pairs, strict=True):
        ends = {discs[link.source], discs[link.target]}
        strokes = [[(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", stroke)]
                   for stroke in line.get("d").split("M")[1:]]
        touched = {point for stroke in strokes for point in (stroke[0], stroke[-1])}
        assert ends <= touched
        others = [disc for disc in discs if disc not in ends]
        for stroke in strokes:
            assert all(distance(disc, stroke[0], stroke[-1]) > RADIUS for disc in others)


def distance(point, a, b) -> float:
    """From a point to a stretch of a line."""
    (px, py), (ax, ay), (bx, by) = point, a, b
    along = ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / hypot(bx - ax, by - ay) ** 2
    along = min(1.0, max(0.0, along))
    return hypot(px - ax - along * (bx - ax), py - ay - along * (by - ay))


@pytest.mark.parametrize("spec", [*SPECS, "ring:100", "torus:4x4x8"])
def test_discs_do_not_touch_and_lie_inside_the_picture(spec):
    root = ET.fromstring(draw(parse(spec)))
    left, top, width, height = map(float, root.get("viewBox").split())
    discs, _ = parts(spec)
    assert all(hypot(a[0] - b[0], a[1] - b[1]) > 2 * RADIUS for a, b in combinations(discs, 2))
    assert all(left + RADIUS <= x <= left + width - RADIUS and
               top + RADIUS <= y <= top + height - RADIUS for x, y in discs)


def test_links_that_close_a_dimension_are_dashed_outside_of_circles():
    for spec, dashed in [("ring:8", 0), ("mesh:3x3", 0), ("ring:2", 1), ("torus:3x4", 7),
                         ("torus:2x2x2", 12)]:
        assert sum(line.get("stroke-dasharray") is not None for line in parts(spec)[1]) == dashed


def test_more_cards_than_anyone_can_read_are_refused():
    assert len(parts(f"ring:{MOST_CARDS}")[0]) == MOST_CARDS
    with pytest.raises(ValueError, match=r"mesh:5x205 has 1,025 cards: .* at most 1,024"):
        draw(parse("mesh:5x205"))
