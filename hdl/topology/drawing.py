"""Topologies as SVG: a disc per card, a square per switch, a line per pair of links."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree as ET

from .base import Link
from .placing import RADIUS, Placing
from .tiered import Tiered

__all__ = ["MOST_NODES", "draw"]

#: Nodes that a drawing can hold and still be read.
MOST_NODES = 1024

_MARGIN = 48
_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2")
# Presentation attributes, not a style sheet: plain viewers and converters know them.
_TEXT = {"font-family": "sans-serif", "fill": "#1f2937"}
_LINKS = {"fill": "none", "stroke-width": "1.5"}
_NODES = {"fill": "#ffffff", "stroke": "#1f2937", "stroke-width": "1.5"}
_NAMES = {**_TEXT, "font-size": "9", "text-anchor": "middle"}


def draw(topology: Tiered) -> str:
    """Return an SVG document that shows ``topology``.

    Raises
    ------
    ValueError
        If it has more than ``MOST_NODES`` nodes.
    """
    if topology.nodes > MOST_NODES:
        raise ValueError(f"{topology.spec} has {topology.nodes:,} nodes: a drawing shows at most "
                         f"{MOST_NODES:,}")
    placing = Placing(topology)
    points = placing.points
    links = [link for link in topology.links if placing.shown(link)]

    lines = ET.Element("g", _LINKS)
    twins: Counter[tuple[int, int]] = Counter()
    for link in links:
        ends = (min(link.source, link.target), max(link.source, link.target))
        path = ET.SubElement(lines, "path", d=placing.way(link, twins[ends]),
                             stroke=_COLOURS[link.tier % len(_COLOURS)])
        twins[ends] += 1
        if placing.closing(link):
            path.set("stroke-dasharray", "4 3")
        ET.SubElement(path, "title").text = _title(topology, link)

    top = min(y for _, y in points)
    left, right = (extreme(x for x, _ in points) for extreme in (min, max))
    left, right = left - _MARGIN, max(right + _MARGIN, left - _MARGIN + 360)
    # Bows of a row stand above it.
    top -= _MARGIN + (200 if topology.switches else 0)
    bottom = max(y for _, y in points) + _MARGIN
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", width=f"{right - left:.0f}",
                     height=f"{bottom - top + 40:.0f}",
                     viewBox=f"{left:.1f} {top - 40:.1f} {right - left:.1f} "
                             f"{bottom - top + 40:.1f}")
    ET.SubElement(svg, "title").text = topology.spec
    ET.SubElement(svg, "rect", x=f"{left:.1f}", y=f"{top - 40:.1f}", width="100%", height="100%",
                  fill="#ffffff")
    _caption(svg, topology, len(links), left + 16, top - 14)
    svg.append(lines)
    _nodes(svg, topology, points)
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _title(topology: Tiered, link: Link) -> str:
    back = topology.link_at[link.target, link.target_port]
    return f"{topology.link_name(link)} to {topology.link_name(back)}"


def _caption(svg: ET.Element, topology: Tiered, links: int, x: float, y: float) -> None:
    text = ET.SubElement(svg, "text", _TEXT, x=f"{x:.1f}", y=f"{y:.1f}")
    text.set("font-size", "14")
    switches = f"{_count(topology.switches, 'switch', 'switches')}, " if topology.switches else ""
    text.text = (f"{topology.spec}: {_count(topology.cards, 'card', 'cards')}, {switches}"
                 f"{_count(links, 'pair', 'pairs')} of links ")
    for t, tier in enumerate(topology.tiers):
        ET.SubElement(text, "tspan", fill=_COLOURS[t % len(_COLOURS)]).text = (
            f" {tier.kind.value}{tier.size}")


def _nodes(svg: ET.Element, topology: Tiered, points: list[tuple[float, float]]) -> None:
    shapes, names = ET.SubElement(svg, "g", _NODES), ET.SubElement(svg, "g", _NAMES)
    for node, (x, y) in enumerate(points):
        name = topology.node_name(node)
        if node < topology.cards:
            shape = ET.SubElement(shapes, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=str(RADIUS))
            what = f"card {name}"
        else:
            shape = ET.SubElement(shapes, "rect", x=f"{x - RADIUS:.1f}", y=f"{y - RADIUS:.1f}",
                                  width=str(2 * RADIUS), height=str(2 * RADIUS))
            what = f"switch {name}"
        place = ", ".join("*" if c is None else str(c) for c in topology.place(node))
        ET.SubElement(shape, "title").text = (f"{what} at ({place}), node "
                                              f"{topology.node_id(node):#x}")
        ET.SubElement(names, "text", x=f"{x:.1f}", y=f"{y + 3.2:.1f}").text = name


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"
