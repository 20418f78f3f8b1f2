"""Fabrics of several kinds of nodes, and links of several latencies."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from emu.fabric import EngineError, Fabric
from emu.kinds import NodeKind
from emu.library import EventKind, Outcome
from emu.report import stuck_report
from emu.shards import default_threads, share_out
from emu.tables import write_switch_tables
from hdl.layouts import RouteEntry, RouteLevel, RouteWrite, unpack
from hdl.params import MemoryParams, SwitchParams
from hdl.topology import Link, parse

from . import toys
from .machines import LATENCY, MIXED, mixed_fabric, toy_card, toy_params, toy_switch

PARAMS = toy_params()
FLIT = PARAMS.link.flit_bytes
SWITCH = 3


@pytest.fixture
def fabric(request):
    """Cards 0 to 2 in a ring, node 3 a switch between cards 1 and 2."""
    made = mixed_fabric(event_log=True, **getattr(request, "param", {}))
    yield made
    made.close()


def events(fabric, kind, node):
    log = fabric.event_log()
    return log[(log["kind"] == kind) & (log["node"] == node)]


def test_a_flit_takes_the_latency_of_each_link_on_its_way(fabric):
    # Card 0 to card 1, to the switch, to card 2; a card passes a word on three cycles after its
    # arrival, the switch one.
    fabric.host_write(0, toys.SEND, toys.send_word(index=0, count=1, port=0, hops=1))
    fabric.advance(200)
    left = [events(fabric, EventKind.LINK, node)["cycle"] for node in (0, 1, SWITCH)]
    assert [len(cycles) for cycles in left] == [1, 1, 1]
    assert left[1][0] - left[0][0] == LATENCY[0] + 3
    assert left[2][0] - left[1][0] == LATENCY[2] + 1
    write = events(fabric, EventKind.WRITE, 2)
    # Two cycles in the queue, one in the write port's register.
    assert write["cycle"][0] - left[2][0] == LATENCY[4] + 3


def test_each_kind_of_card_has_its_memory_latency(fabric):
    for node, latency in ((0, 10), (1, 17)):
        fabric.host_write(node, toys.FETCH, 0)
        fabric.advance(100)
        asked, answered = (events(fabric, kind, node)["cycle"]
                           for kind in (EventKind.READ_REQUEST, EventKind.READ_RESPONSE))
        assert answered - asked == latency


def test_every_node_has_its_host_port(fabric):
    fabric.host_write(1, toys.BASE, 7)
    assert fabric.host_read(SWITCH, toys.NODE) == 0xFFFF
    fabric.host_write(SWITCH, toys.TURN, 1)
    requests = [(1, toys.BASE), (SWITCH, toys.NODE), (0, toys.BASE), (1, toys.RECEIVED)]
    before = fabric.cycle
    assert fabric.host_read_many(requests) == [7, 0xFFFF, 0, 0]
    assert fabric.cycle - before == 32  # one quantum for all


def test_the_host_can_rewire_a_switch(fabric):
    fabric.host_write(SWITCH, toys.TURN, 0)  # everything back to where it came from
    fabric.host_write(1, toys.SEND, toys.send_word(index=0, count=4, port=0))
    assert fabric.run([(1, 1)], 1000) is Outcome.MET
    assert fabric.host_read_many([(SWITCH, toys.PASSED), (1, toys.RECEIVED)]) == [4, 4]


def test_only_nodes_with_memory_ports_have_memory(fabric):
    assert fabric.memory_view(0).size == 1 << 20
    with pytest.raises(ValueError, match="switch 0 has no memory"):
        fabric.memory_view(SWITCH)


def test_kinds_of_equal_content_share_a_model_and_others_do_not(fabric):
    card, slow, again, switch = (made.models for made in fabric._made)
    # The memory's latency is not in the tile.
    assert card == slow == again
    other = toy_params()
    other = replace(other, router=replace(other.router, dim_ports=(2, 2)))
    mixed = Fabric([toy_card(PARAMS), toy_card(other)], [Link(1, 3, 0, 0)], latency=[5],
                   memory_bytes=4096)
    assert mixed._made[0].models[0] != mixed._made[1].models[0]
    mixed.start()
    mixed.host_write(1, toys.SEND, toys.send_word(index=0, count=3, port=3))
    assert mixed.run([(0, 1)], 1000) is Outcome.MET
    assert mixed.host_read(0, toys.RECEIVED) == 3
    mixed.close()
    assert len({card[0], switch[0]}) == 2


@pytest.mark.parametrize("fabric", [{"stall_rate": 0.999999}], indirect=True)
def test_a_report_of_what_is_stuck_names_every_kind_of_node(fabric):
    fabric.host_write(1, toys.SEND, toys.send_word(index=0, count=1, port=0))
    fabric.host_write(0, toys.COPY, 0)
    fabric.advance(64)
    fabric.host_write(SWITCH, toys.TURN, 1)
    report = stuck_report(fabric, [(SWITCH, 5), (1, 0)])
    assert "switch 0: 0 of 5 completions" in report
    assert "switch 0: 1 register operations not delivered" in report
    assert "card 1: network tile busy, 1 memory read requests not accepted" in report
    assert "card 0: compute tile busy" in report
    assert "card 2" not in report and "card 1: 0 of" not in report


def test_a_report_names_a_stream_that_is_not_taken(fabric):
    for value in (0, 64, 128):
        fabric.host_write(0, toys.COPY, value)
    fabric.advance(1)
    assert fabric.blocked_streams(0) == []
    # Three requests in a row: the last waits for the compute tile until memory has answered.
    cycles = events(fabric, EventKind.STREAM, 0)
    assert set(cycles["port"]) <= {0, 1}


def test_statistics_count_per_node_and_per_link(fabric):
    fabric.host_write(1, toys.SEND, toys.send_word(index=0, count=6, port=0))
    fabric.advance(200)
    spent = fabric.statistics()
    assert spent.cycles == fabric.cycle and len(spent.stepped) == 4
    network, compute = spent.evaluations
    assert network[SWITCH] == spent.stepped[SWITCH] < network[1] and compute[SWITCH] == 0
    carried = {(link.source, link.source_port): link.flits for link in fabric.link_statistics()}
    assert carried[1, 0] == carried[SWITCH, 1] == 6
    assert sum(carried.values()) == 12


def test_switches_have_their_tables_before_the_machine_is_handed_over():
    topology = parse("tiers:crossbar4")
    fabric = Fabric([toy_switch(PARAMS)] * topology.nodes, [], latency=[], quantum=4,
                    event_log=True)
    fabric.start()
    write_switch_tables(fabric, topology)
    writes, cycle = fabric.event_log(), fabric.cycle
    fabric.close()
    assert cycle % 4 == 0 and cycle >= len(writes) + 3  # a write counts three cycles later
    assert set(writes["node"]) == {4} and set(writes["kind"]) == {EventKind.HOST_WRITE}
    assert set(writes["value"]) == {0x100} and np.array_equal(writes["cycle"], np.arange(8))
    words = [unpack(RouteWrite, int(word)) for word in writes["digest"]]
    entries, levels = words[:4], words[4:]
    assert [word["level"] for word in levels] == [0, 1, 2, 3]
    assert [unpack(RouteLevel, word["body"])["valid"] for word in levels] == [1, 0, 0, 0]
    assert not any(word["entry"] for word in levels)
    for card, entry in enumerate(entries):
        body = unpack(RouteEntry, entry["body"])
        assert (entry["entry"], body["index"], body["port"], body["every_input"]) == (
            1, card, card, 1)


def build(kinds, links, **options):
    options = {"latency": [8] * len(links), "memory_bytes": 4096} | options
    Fabric(kinds, links, **options).close()


def test_what_does_not_fit_together_is_refused():
    card, switch = toy_card(PARAMS), toy_switch(PARAMS)
    wider = replace(PARAMS.link, flit_bytes=64)
    other = NodeKind("switch", switch.tiles, SwitchParams(link=wider, radix=4))
    with pytest.raises(EngineError, match="card 0 and switch 0 have link words of different"):
        build([card, other], [Link(0, 0, 1, 0)])
    with pytest.raises(EngineError, match="two links at port 0 of card 0"):
        build([card, switch], [Link(0, 0, 1, 0), Link(0, 0, 1, 1)])
    with pytest.raises(ValueError, match="switch 0 has no port 4: ports are 0 to 3"):
        build([card, switch], [Link(0, 0, 1, 4)])
    with pytest.raises(ValueError, match="window must be from 1 to the link latency 3, not 4"):
        build([card, card], MIXED[:2], latency=[3, 8], window=4)
    with pytest.raises(EngineError, match="card 0 needs memory"):
        build([card], [], memory_bytes=0)
    with pytest.raises(ValueError, match="a flat design has cards of one kind only, not card, sw"):
        build([card, switch], [], flat=True)
    slow = toy_card(replace(PARAMS, memory=MemoryParams(latency=20)))
    with pytest.raises(ValueError, match="cards of one kind only"):
        build([card, slow], [], flat=True)


def test_switches_alone_need_no_memory_and_no_links():
    fabric = Fabric([toy_switch(PARAMS)] * 2, [], latency=[])
    fabric.start()
    fabric.advance(1000)
    assert fabric.host_read_many([(0, toys.PASSED), (1, toys.PASSED)]) == [0, 0]
    assert np.all(fabric.statistics().stepped < 20)
    fabric.close()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_of_several_broken_rules_the_first_is_told_whoever_runs_it(threads, order):
    broken = mixed_fabric(threads=threads)
    for delay, card in enumerate(order):
        for _ in range(delay):
            broken.host_write(card, toys.RECEIVED, 0)  # of no effect but that it takes a cycle
        broken.host_write(card, toys.SEND, toys.send_word(index=(1 << 20) // FLIT, count=1, port=0))
    with pytest.raises(EngineError, match=f"card {order[0]} memory port 0.*beyond") as told:
        broken.advance(32)
    broken.close()
    assert "cycle" in str(told.value)


def test_threads_are_counted(monkeypatch):
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        mixed_fabric(threads=0)
    monkeypatch.setenv("SUPERNODE_THREADS", "many")
    with pytest.raises(ValueError, match=r"SUPERNODE_THREADS must be .*, not 'many'"):
        mixed_fabric()
    monkeypatch.setenv("SUPERNODE_THREADS", "4")
    assert default_threads(nodes=1024, window=16) == 4
    assert default_threads(nodes=1024, window=16, processes=2) == 4
    # A window of one cycle is worth a barrier only if many nodes share it.
    assert [default_threads(nodes=nodes, window=1) for nodes in (8, 127, 128, 4096)] == [1, 1, 2, 4]
    monkeypatch.delenv("SUPERNODE_THREADS")
    assert 1 <= default_threads(nodes=1024, window=16) <= len(os.sched_getaffinity(0))


def test_nodes_are_shared_out_kind_by_kind_in_blocks():
    assert share_out("cccccccc" + "ss", 2) == [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]
    assert share_out("cccsc", 2) == [0, 0, 1, 0, 1]
    for shares in (1, 2, 3, 5):
        counts = np.bincount(share_out("c" * 64, shares))
        assert counts.sum() == 64 and counts.max() - counts.min() <= 1
