"""Routes that software chooses: tables written by commands, and packets that name their way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.routes import RouteTable
from drivers.supernode import SuperNode
from emu.emulator import EngineBackend
from hdl.fabric.route import next_hop
from hdl.params import preset
from hdl.topology import DeadlockError, parse
from hdl.topology.base import TableEntry

SMALL = preset("small")
PARAMS = replace(SMALL, router=replace(SMALL.router, dim_ports=(3,), table_bits=2))
TOPOLOGY = parse("fullmesh:4")
#: Cycles of a router and of a link.
HOP = 3 + PARAMS.link.latency
#: A level that looks every destination up by its whole id.
ALL = {"mask": 0, "value": 0, "shift": 0}


@pytest.fixture(scope="module")
def sn():
    with SuperNode(EngineBackend(TOPOLOGY, PARAMS, memory_bytes=1 << 20)) as machine:
        yield machine


def port(card: int, to: int) -> int:
    return next_hop(card, to, 3, 0, 0, TOPOLOGY.dims(card, 1), dim_ports=(3,))[0]


def table(card: int, ways: dict[int, int]) -> RouteTable:
    """Destinations and the neighbours over which ``card`` sends to them; others straight."""
    return RouteTable([ALL], [TableEntry(0, to, port(card, ways.get(to, to)), lane=0)
                              for to in range(4) if to != card])


def write(sn: SuperNode, source: int, target: int, path: int = 0) -> tuple[int, np.ndarray]:
    """Cycles of an acknowledged write, and the flits that each link carried for it."""
    values = np.random.default_rng(source * 4 + target).integers(0, 256, 320, dtype=np.uint8)
    there = sn.malloc(320, "u8", target)
    before = np.array([link.flits for link in sn.backend.link_statistics()])
    result = sn.write(sn.malloc(320, "u8", source).write(values), there, path=path)
    assert there.read().tobytes() == values.tobytes()
    after = np.array([link.flits for link in sn.backend.link_statistics()])
    return result.cycles, after - before


def used(flits: np.ndarray) -> set[tuple[int, int]]:
    return {(link.source, link.target)
            for link, count in zip(TOPOLOGY.links, flits, strict=True) if count}


def test_a_table_sends_packets_another_way_and_an_empty_one_gives_the_computed_way_back(sn):
    straight, flits = write(sn, 0, 1)
    assert used(flits) == {(0, 1), (1, 0)}
    sn.set_routes({0: table(0, {1: 2})})
    around, flits = write(sn, 0, 1)
    assert used(flits) == {(0, 2), (2, 1), (1, 0)}
    assert around == straight + HOP
    other, flits = write(sn, 3, 1)
    assert used(flits) == {(3, 1), (1, 3)}
    sn.set_routes({0: RouteTable()})
    again, flits = write(sn, 0, 1)
    assert used(flits) == {(0, 1), (1, 0)}
    assert again == straight == other


def test_a_packet_that_names_its_path_takes_it(sn):
    straight, _ = write(sn, 1, 3)
    for over in (0, 2):
        around, flits = write(sn, 1, 3, path=over + 1)
        assert used(flits) == {(1, over), (over, 3), (3, 1)}
        assert around == straight + HOP
    for nowhere in (1, 3):
        assert write(sn, 1, 3, path=nowhere + 1)[0] == straight


def test_tables_that_could_deadlock_or_miss_are_refused_and_nothing_is_written(sn):
    circle = {card: table(card, {3: (card + 1) % 3}) for card in range(3)}
    with pytest.raises(DeadlockError, match="0:0 lane 0 -> 1:1 lane 0 -> 2:0 lane 0 -> 0:0"):
        sn.set_routes(circle)
    with pytest.raises(ValueError, match="no entry 3 in level 0"):
        sn.set_routes({0: RouteTable([ALL], [TableEntry(0, to, 0) for to in (1, 2)])})
    assert used(write(sn, 0, 3)[1]) == {(0, 3), (3, 0)}


def test_tables_change_only_while_the_machine_is_idle(sn):
    arrays = [sn.malloc(64, "f32", card).write(np.ones(64, np.float32)) for card in range(4)]
    handle = sn.allreduce(arrays)
    with pytest.raises(ValueError, match="is not finished"):
        sn.set_routes({0: RouteTable()})
    handle.wait()
