"""Names of nodes, ports and links: what messages print is what options take."""

from __future__ import annotations

import pytest

from hdl.topology import parse

from .fabric import SHAPES


@pytest.mark.parametrize("spec", SHAPES)
def test_every_link_is_found_by_its_name_and_by_its_numbers(spec):
    topology = parse(spec)
    for link in topology.links:
        assert topology.find_link(topology.link_name(link)) == link
        assert topology.find_link(f"{link.source}:{link.source_port}") == link


def test_ports_of_lines_and_rings_have_directions():
    torus = parse("torus:3x3x3")
    assert [torus.port_name(0, port) for port in range(6)] == ["+x", "-x", "+y", "-y", "+z", "-z"]
    assert torus.find_link("4:-y").target == 1
    mixed = parse("tiers:fullmesh4,mesh3,switch2")
    assert [mixed.port_name(0, port) for port in range(6)] == ["0", "1", "2", "+y", "-y", "5"]


def test_switches_are_named_after_an_s():
    topology = parse("clos:4x2")
    link = topology.find_link("s4:1")
    assert (link.source, link.source_port, link.target) == (12, 1, 9)
    assert topology.link_name(link) == "s4:1" and topology.find_link("12:1") == link


@pytest.mark.parametrize(("spec", "text", "what"), [
    ("ring:4", "", "accepted is NODE:PORT, e.g. 0:+x"), ("ring:4", "0", "NODE:PORT"),
    ("ring:4", "0:+y", "accepted are +x, -x"), ("ring:4", "0:2", "accepted are +x, -x"),
    ("ring:4", "4:+x", "no node 4: accepted are cards 0 to 3"), ("ring:4", "s0:0", "no node s0"),
    ("mesh:3", "0:-x", "accepted are +x"), ("clos:4x2", "s6:0", "switches s0 to s5"),
    ("clos:4x2", "s0:4", "accepted are 0, 1, 2, 3"), ("ring:1", "0:0", "accepted are none"),
    ("ring:4", "-1:+x", "NODE:PORT"), ("ring:4", "0:+X", "NODE:PORT")])
def test_what_names_no_link_is_refused_with_what_is_accepted(spec, text, what):
    with pytest.raises(ValueError) as caught:
        parse(spec).find_link(text)
    assert what in str(caught.value) and "\n" not in str(caught.value)
