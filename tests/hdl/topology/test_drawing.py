"""Drawings: well formed, a disc per card, a line per pair of links, nothing in the way."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from math import hypot
from xml.etree import ElementTree as ET

import pytest

from hdl.topology import parse
from hdl.topology.drawing import MOST_NODES, RADIUS, draw

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
        f"{link.source}:+{'xyz'[link.source_port // 2]} to {link.target}:"
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
    assert len(parts(f"ring:{MOST_NODES}")[0]) == MOST_NODES
    with pytest.raises(ValueError, match=r"mesh:5x205 has 1,025 nodes: .* at most 1,024"):
        draw(parse("mesh:5x205"))


MESHES = ["fullmesh:2", "fullmesh:3", "fullmesh:8", "fullmesh:3x4", "fullmesh:8x8", "fullmesh:2x20",
          "tiers:fullmesh5,torus3"]
SWITCHED = ["clos:4x2", "clos:8x2", "clos:4x3", "tiers:crossbar48", "tiers:fullmesh4,switch4",
            "tiers:crossbar4,fullmesh3*2,switch2", "tiers:switch4^2,mesh3"]


@pytest.mark.parametrize("spec", [*MESHES, *SWITCHED, "ubmesh:4x4x2x2"])
def test_every_shape_has_a_disc_per_card_a_square_per_switch_and_a_line_per_pair_of_links(spec):
    topology = parse(spec)
    root = ET.fromstring(draw(topology))
    discs, lines = parts(spec)
    squares = list(root.iter(f"{SVG}rect"))[1:]
    assert (len(discs), len(squares)) == (topology.cards, topology.switches)
    assert len(lines) == len(topology.links) / 2
    drawn = {line.find(f"{SVG}title").text for line in lines}
    for link in topology.links:
        back = topology.link_at[link.target, link.target_port]
        names = topology.link_name(link), topology.link_name(back)
        assert len(drawn & {" to ".join(names), " to ".join(reversed(names))}) == 1
    # Parallel links are drawn side by side.
    assert len({line.get("d") for line in lines}) == len(lines)


@pytest.mark.parametrize("spec", [*MESHES, *SWITCHED, "ubmesh:4x4x2x2", "ubmesh:8x8x4x4",
                                  "clos:24x2"])
def test_nodes_do_not_touch_and_all_lies_inside_the_picture(spec):
    root = ET.fromstring(draw(parse(spec)))
    left, top, width, height = map(float, root.get("viewBox").split())
    names = list(root.iter(f"{SVG}text"))[1:]
    places = sorted((float(text.get("y")), float(text.get("x"))) for text in names)
    rows: dict[float, list[float]] = {}
    for y, x in places:
        rows.setdefault(y, []).append(x)
    assert all(b - a > 2 * RADIUS for row in rows.values() for a, b in pairwise(row))
    for path in root.iter(f"{SVG}path"):
        for x, y in curve(path.get("d")):
            assert left <= x <= left + width and top <= y <= top + height


@pytest.mark.parametrize("spec", MESHES)
def test_full_meshes_bow_over_the_cards_between(spec):
    topology = parse(spec)
    discs, lines = parts(spec)
    pairs = {topology.link_name(link): link for link in topology.links}
    for line in lines:
        link = pairs[line.find(f"{SVG}title").text.split(" to ")[0]]
        if line.get("stroke-dasharray"):
            continue
        others = [disc for card, disc in enumerate(discs) if card not in (link.source, link.target)]
        for point in curve(line.get("d")):
            assert all(hypot(point[0] - x, point[1] - y) > RADIUS for x, y in others)


def curve(way: str) -> list[tuple[float, float]]:
    """Points of a path of straight lines or of one quadratic curve."""
    strokes = [[(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", stroke)]
               for stroke in way.split("M")[1:]]
    points = []
    for stroke in strokes:
        a, c, b = (stroke[0], stroke[1], stroke[-1])
        if len(stroke) == 2:
            c = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
        for k in range(41):
            t = k / 40
            points.append(tuple((1 - t) ** 2 * p + 2 * t * (1 - t) * q + t ** 2 * r
                                for p, q, r in zip(a, c, b, strict=True)))
    return points
