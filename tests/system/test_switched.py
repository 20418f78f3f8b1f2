"""Cards behind crossbar switches: one switch, and a Clos of six, do what rings and tori do."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from hdl.layouts import LinkStatus, unpack
from hdl.switch_registers import SWITCH_IDENT, SwitchRegisterMap
from tests.system.path import allreduce_everywhere, write_both_ways

#: Hops of the second and third card from the first.
FABRICS = {"tiers:crossbar4": (2, 2), "clos:4x2": (2, 4)}
#: Cycles from the rx pins of a switch to its tx pins, and on a link.
SWITCH, LINK = 4, 16


@pytest.fixture(scope="module", params=FABRICS)
def sn(request):
    with emu.open(request.param, preset="small", memory_bytes=1 << 20) as machine:
        yield machine


def write_cycles(sn, source: int, target: int) -> int:
    """Cycles of an acknowledged write of 32 bytes."""
    values = np.random.default_rng(source * 64 + target).integers(0, 256, 32, dtype=np.uint8)
    there = sn.malloc(32, "u8", target)
    result = sn.write(sn.malloc(32, "u8", source).write(values), there, ack=True)
    assert there.read().tobytes() == values.tobytes()
    return result.cycles


def test_writes_and_allreduces_are_right_through_switches(sn):
    write_both_ways(sn)
    allreduce_everywhere(sn)


def test_all_pairs_reach_each_other_and_a_switch_adds_four_cycles_and_a_link(sn):
    topology = sn.topology
    cycles = {(a, b): write_cycles(sn, a, b) for a, b in topology.all_pairs()}
    hops = {pair: topology.hops(*pair) for pair in cycles}
    assert tuple(hops[0, card] for card in (1, 2)) == FABRICS[topology.spec]
    least = cycles[0, 1]
    for pair, taken in cycles.items():
        # There and back again.
        assert taken - least == 2 * (SWITCH + LINK) * (hops[pair] - hops[0, 1]), f"cards {pair}"


def test_the_host_sees_switches_and_their_links_up(sn):
    fabric, topology = sn.backend.fabric, sn.topology
    for node in range(topology.cards, topology.nodes):
        radix = fabric.host_read(node, SwitchRegisterMap(1).radix.at())
        registers = SwitchRegisterMap(radix)
        assert fabric.host_read(node, registers.ident.at()) == SWITCH_IDENT
        assert fabric.host_read(node, registers.node.at()) == topology.node_id(node)
        for port in range(radix):
            if (node, port) in topology.link_at:
                status = fabric.host_read(node, registers.link.at(port)).to_bytes(8, "little")
                assert unpack(LinkStatus, status)["down"] == 0
