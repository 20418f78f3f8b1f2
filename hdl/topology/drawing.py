"""Topologies as SVG: a disc per card, a line per pair of links.

A ring is a circle and a line of cards a line. Two dimensions are a grid; a third one sets planes
back, one behind the other, each a little aside of the one before. Two cards share an abscissa only
within a column of one plane and an ordinate only within a row of one plane, so no line passes over
a card that it does not join.

Outside of circles, a link that closes a dimension is dashed: two stubs that point away from each
other, or, where a dimension has two cards, a bow beside the link that it runs parallel to.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, hypot, pi, sin
from xml.etree import ElementTree as ET

from .base import Link, Topology

__all__ = ["MOST_CARDS", "draw"]

#: Cards that a drawing can hold and still be read.
MOST_CARDS = 1024

RADIUS = 11
#: Room between planes' cards that are neighbours in a row or column, beyond the planes' depth.
PITCH = 60
#: One plane further back: further than a disc or a stub reaches.
DEPTH = (34, -28)
#: From the middle of a card to the end of a stub.
STUB = 25
BOW = 18
MARGIN = 48
AXES = "xyz"
COLOURS = ("#2563eb", "#d97706", "#059669")
# Presentation attributes, not a style sheet: plain viewers and converters know them.
TEXT = {"font-family": "sans-serif", "fill": "#1f2937"}
LINKS = {"fill": "none", "stroke-width": "1.5"}
CARDS = {"fill": "#ffffff", "stroke": "#1f2937", "stroke-width": "1.5"}
RANKS = {**TEXT, "font-size": "9", "text-anchor": "middle"}

Point = tuple[float, float]


def draw(topology: Topology) -> str:
    """Return an SVG document that shows ``topology``.

    Raises
    ------
    ValueError
        If it has more than ``MOST_CARDS`` cards.
    """
    if topology.cards > MOST_CARDS:
        raise ValueError(f"{topology.spec} has {topology.cards:,} cards: a drawing shows at most "
                         f"{MOST_CARDS:,}")
    # Cards count upwards along each dimension: a link up that leads to a lower card closes it.
    coordinates = [topology.coordinates(rank) for rank in range(topology.cards)]
    # What leaves upwards returns downwards: one of each two is drawn.
    links = [link for link in topology.links if link.source_port % 2 == 0]
    sizes = [max(axis) + 1 for axis in zip(*coordinates, strict=True)]
    circle = len(sizes) == 1 and len(links) == topology.cards > 2
    points = ([_on_circle(rank, topology.cards) for rank in range(topology.cards)] if circle
              else [_on_grid(place, sizes) for place in coordinates])

    left, top = (min(point[axis] for point in points) - MARGIN for axis in (0, 1))
    width = max(max(x for x, _ in points) + MARGIN - left, 360)
    height = max(y for _, y in points) + MARGIN - top + 40
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", width=f"{width:.0f}",
                     height=f"{height:.0f}",
                     viewBox=f"{left:.1f} {top - 40:.1f} {width:.1f} {height:.1f}")
    ET.SubElement(svg, "title").text = topology.spec
    ET.SubElement(svg, "rect", x=f"{left:.1f}", y=f"{top - 40:.1f}", width="100%", height="100%",
                  fill="#ffffff")
    _caption(svg, topology, len(links), (left + 16, top - 14))
    lines = ET.SubElement(svg, "g", LINKS)
    for link in links:
        _draw_link(lines, link, [points[end] for end in (link.source, link.target)],
                   closing=not circle and link.target < link.source,
                   parallel=sizes[link.source_port // 2] == 2)
    discs, ranks = ET.SubElement(svg, "g", CARDS), ET.SubElement(svg, "g", RANKS)
    for rank, (x, y) in enumerate(points):
        disc = ET.SubElement(discs, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=str(RADIUS))
        place = ", ".join(map(str, coordinates[rank]))
        ET.SubElement(disc, "title").text = (f"card {rank} at ({place}), node "
                                             f"{topology.node_id(rank):#x}")
        ET.SubElement(ranks, "text", x=f"{x:.1f}", y=f"{y + 3.2:.1f}").text = str(rank)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _caption(svg: ET.Element, topology: Topology, links: int, at: Point) -> None:
    text = ET.SubElement(svg, "text", TEXT, x=f"{at[0]:.1f}", y=f"{at[1]:.1f}")
    text.set("font-size", "14")
    text.text = (f"{topology.spec}: {_count(topology.cards, 'card')}, "
                 f"{_count(links, 'pair')} of links ")
    for dim in range(topology.dim_count):
        ET.SubElement(text, "tspan", fill=COLOURS[dim]).text = f" {AXES[dim]}"


def _draw_link(lines: ET.Element, link: Link, ends: Sequence[Point], *, closing: bool,
               parallel: bool) -> None:
    dim = link.source_port // 2
    axis = AXES[dim]
    way = (_bow if parallel else _stubs) if closing else _line
    path = ET.SubElement(lines, "path", d=way(*ends), stroke=COLOURS[dim])
    if closing:
        path.set("stroke-dasharray", "4 3")
    ET.SubElement(path, "title").text = f"card {link.source} +{axis} to card {link.target} -{axis}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _on_circle(rank: int, cards: int) -> Point:
    radius = max(60.0, cards * 3.2 * RADIUS / (2 * pi))
    angle = 2 * pi * rank / cards - pi / 2
    return radius * cos(angle), radius * sin(angle)


def _on_grid(place: tuple[int, ...], sizes: list[int]) -> Point:
    x, y, z = (*place, 0, 0)[:3]
    planes = sizes[2] if len(sizes) > 2 else 1
    return (x * (PITCH + (planes - 1) * DEPTH[0]) + z * DEPTH[0],
            y * (PITCH - (planes - 1) * DEPTH[1]) + z * DEPTH[1])


def _line(a: Point, b: Point) -> str:
    return f"M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"


def _bow(a: Point, b: Point) -> str:
    ux, uy = _direction(b, a)
    x, y = (a[0] + b[0]) / 2 + BOW * uy, (a[1] + b[1]) / 2 - BOW * ux
    return f"M{a[0]:.1f} {a[1]:.1f}Q{x:.1f} {y:.1f} {b[0]:.1f} {b[1]:.1f}"


def _stubs(last: Point, first: Point) -> str:
    ux, uy = _direction(first, last)
    return (_line(last, (last[0] + STUB * ux, last[1] + STUB * uy))
            + _line(first, (first[0] - STUB * ux, first[1] - STUB * uy)))


def _direction(a: Point, b: Point) -> Point:
    x, y = b[0] - a[0], b[1] - a[1]
    return x / hypot(x, y), y / hypot(x, y)
