"""Figures of links against a count, cycle by cycle, of what the event log says."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from emu.library import EventKind
from emu.trace.heatmap import heatmap
from emu.trace.links import LinkMeter
from emu.trace.scene import Scene
from emu.traffic import Load, measure, parse_pattern
from emu.traffic.measure import Method
from emu.traffic.setup import Sizes
from hdl.layouts import link_word, unpack

from ..traffic.networks import traffic_network

KINDS = (EventKind.LINK, EventKind.ACTIVITY)


@pytest.fixture(scope="module")
def run() -> Any:
    """A congested network: what its links did, and in which cycles."""
    with traffic_network("mesh:3x3", event_log=KINDS) as network:
        pattern = parse_pattern("uniform", network.topology, 1)
        measure(network, Load(pattern, 1.0, Sizes((1, 4), (1.0, 1.0)), 1),
                Method(sample=100, warmup=1, cycles=200))
        fabric = network.fabric
        yield Scene(fabric, network.topology), fabric.event_log(), fabric.cycle


def metered(scene: Scene, log: np.ndarray, cycles: list[int]) -> LinkMeter:
    """A meter that gets the log in pieces."""
    meter = LinkMeter(scene)
    for start, end in zip([0, *cycles], cycles, strict=False):
        meter.consume(log[(log["cycle"] >= start) & (log["cycle"] < end)], end)
    meter.finish(cycles[-1])
    return meter


def test_flits_stalls_and_queues_are_those_of_the_log(run: Any) -> None:
    scene, log, end = run
    link_params = scene.fabric.kinds[0].params.link
    layout, payload = link_word(link_params), link_params.flit_bits
    records = [tuple(record) for record in log.tolist()]
    leaves = {(link.source, link.source_port): link for link, _ in scene.routes.values()}
    latency = scene.fabric.latency[0]
    words = {(cycle, node, port): unpack(layout, value << payload)
             for cycle, node, port, kind, value, _ in records if kind == EventKind.LINK}
    sent = sorted((cycle, node, port) for (cycle, node, port), word in words.items()
                  if word["valid"])
    first = sent[0][0]
    flits, stalls, depths, most = Counter(), Counter(), Counter(), Counter()
    arrived, charged, freed, known, queue = (Counter() for _ in range(5))
    starved = Counter({(node, 0): 0 for node in range(scene.nodes)})
    changes = {(cycle, node): value for cycle, node, port, kind, value, _ in records
               if kind == EventKind.ACTIVITY
               and scene.fabric.activity(node)[port] == "starved"}
    last = first
    for cycle in range(first - 1, end):
        for node, port in leaves:
            link = leaves[node, port]
            place = node, port
            # A flit is charged two cycles before it leaves, and a credit counts a cycle late.
            if (word := words.get((cycle + 1, *place))) and word["valid"]:
                charged[place, word["vc"]] += 1
            back = link.target, link.target_port
            if (word := words.get((cycle - 1 - latency, *back))) and word["credit"]:
                known[place, word["credit_vc"]] = word["freed"]
            if (word := words.get((cycle, *place))) and word["valid"]:
                flits[place] += 1
            changed = False
            if (word := words.get((cycle - latency, *place))) and word["valid"]:
                arrived[place] += 1
                changed = True
            if (word := words.get((cycle, *back))) and word["credit"]:
                vc = place, word["credit_vc"]
                step = (word["freed"] - freed[vc]) % (1 << link_params.total_bits)
                freed[vc] += step
                arrived[place] -= step
                changed |= step > 0
            last = cycle if changed else last
            queue[place] = arrived[place]
            depths[place] += queue[place]
            most[place] = max(most[place], queue[place])
        for node in range(scene.nodes):
            starved[node] = changes.get((cycle, node), starved[node])
            for port in range(scene.topology.cards):
                if starved[node] >> port & 1 and (node, port) in leaves:
                    stalls[node, port] += 1
                    full = [vc for vc in range(link_params.vcs)
                            if (charged[(node, port), vc] - known[(node, port), vc])
                            % (1 << link_params.total_bits) == link_params.vc_depth]
                    assert full, f"node {node} port {port} has credits in cycle {cycle}"
    meter = metered(scene, log, [end])
    cycles = last + 1 - first
    assert meter.cycles == cycles and sum(stalls.values()) > 100
    for link, figures in zip(meter.links, meter.figures(), strict=True):
        place = link.source, link.source_port
        assert (figures.flits, figures.queue_most) == (flits[place], most[place])
        assert figures.utilisation == flits[place] / cycles
        assert figures.credit_stall == stalls[place] / cycles
        assert figures.queue_mean == depths[place] / cycles


@pytest.mark.parametrize("seed", [1, 2])
def test_it_does_not_matter_in_which_pieces_events_come(run: Any, seed: int) -> None:
    scene, log, end = run
    cuts = sorted(random.Random(seed).sample(range(1, end), 40))
    whole, pieces = metered(scene, log, [end]), metered(scene, log, [*cuts, end])
    assert whole.figures() == pieces.figures()
    for name in ("flits_by_period", "stalls_by_period"):
        a, b = getattr(whole, name), getattr(pieces, name)
        assert whole.period == pieces.period and np.array_equal(a, b)
    assert np.array_equal(whole.flits_by_period.sum(axis=1), whole.flits)
    assert np.array_equal(whole.stalls_by_period.sum(axis=1), whole.stalls)


def test_the_heat_map_is_a_drawing_that_depends_on_nothing_else(run: Any) -> None:
    pytest.importorskip("matplotlib")
    scene, log, end = run
    drawing = heatmap(metered(scene, log, [end]), "uniform on mesh:3x3")
    assert drawing.startswith("<?xml") and "uniform on mesh:3x3" in drawing
