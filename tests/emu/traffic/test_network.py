"""Traffic on real routers: what arrives, when, and what the engine may leave out."""

from __future__ import annotations

import numpy as np
import pytest

from emu.faults import Faults, Outage
from emu.traffic import Load, Outcome, TrafficNetwork, measure, parse_pattern
from emu.traffic.measure import Method
from emu.traffic.network import QUANTUM
from emu.traffic.setup import Sizes
from hdl.topology.base import ROUTER_CYCLES
from hdl.traffic.gap import GAP_STEPS
from hdl.traffic.random import FRACTION_BITS

from .networks import traffic_network

ALWAYS = 1 << FRACTION_BITS
#: Cycles from the creation of a packet to the pins of its router, and through that router.
CONSTANT = 1 + ROUTER_CYCLES


def send_one(network: TrafficNetwork, source: int, target: int) -> None:
    """Have ``source`` send one measured packet of one flit to ``target``."""
    registers, fabric = network.registers, network.fabric
    fabric.host_write(source, registers.target.at(0),
                      ALWAYS | network.topology.node_id(target) << 32)
    start = fabric.cycle + QUANTUM // 2
    fabric.host_write(source, registers.stop.offset, start + 1)
    fabric.host_write(source, registers.start.offset, start)


def latencies(network: TrafficNetwork, pairs: list[tuple[int, int]]) -> list[int]:
    """Latency of a lone packet from source to target, for each pair."""
    registers, fabric = network.registers, network.fabric
    for node in range(network.topology.cards):
        for index in range(2):
            # The state of a random stream must not be zero.
            fabric.host_write(node, registers.seed.at(2 * index), 1)
        for index in range(GAP_STEPS):
            fabric.host_write(node, registers.gap.at(index), 0)
        for index in range(1, registers.target.count):
            fabric.host_write(node, registers.target.at(index), ALWAYS)
        fabric.host_write(node, registers.size.at(3), 1 << 32)
        fabric.host_write(node, registers.measure_start.offset, 0)
    fabric.advance(QUANTUM)
    sums = [0] * network.topology.cards
    found = []
    for source, target in pairs:
        send_one(network, source, target)
        fabric.advance(QUANTUM)
        total = fabric.host_read(target, registers.received_latency_sum.offset)
        found.append(total - sums[target])
        sums[target] = total
    return found


def test_a_lone_packet_takes_its_hops_times_router_and_link_and_a_constant() -> None:
    with traffic_network("torus:4x4") as network:
        shape = network.topology
        pairs = [(a, b) for a in range(shape.cards) for b in range(shape.cards)]
        hop = ROUTER_CYCLES + network.params.link.latency
        assert latencies(network, pairs) == [shape.hops(a, b) * hop + CONSTANT for a, b in pairs]
        totals = network.read_all()
        assert totals.received_measured.tolist() == [shape.cards] * shape.cards
        assert totals.sum("sent_packets") == len(pairs)


@pytest.mark.slow
def test_all_pairs_of_a_torus_of_64_obey_the_law() -> None:
    with traffic_network("torus:4x4x4") as network:
        shape = network.topology
        pairs = [(a, b) for a in range(shape.cards) for b in range(shape.cards) if a != b]
        hop = ROUTER_CYCLES + network.params.link.latency
        assert latencies(network, pairs) == [shape.hops(a, b) * hop + CONSTANT for a, b in pairs]


@pytest.mark.parametrize(("spec", "pattern", "rate", "sizes"), [
    ("torus:4x4", "uniform", 0.3, Sizes()),
    ("mesh:4x4", "diagonal", 0.5, Sizes((1, 7), (3.0, 1.0))),
    ("torus:3x5", "incast(7,10)", 0.15, Sizes((3,), (1.0,))),
])
def test_every_packet_arrives_once_and_whole(spec: str, pattern: str, rate: float,
                                             sizes: Sizes) -> None:
    with traffic_network(spec) as network:
        flows = parse_pattern(pattern, network.topology)
        result = measure(network, Load(flows, rate, sizes, seed=3))
        totals = network.read_all()
    assert result.verified and result.outcome is Outcome.CONVERGED
    assert result.sent == result.delivered > 1000
    assert result.accepted == pytest.approx(rate, rel=0.08)
    assert result.measured == totals.sum("received_measured") == totals.sum("sent_measured")
    if pattern == "uniform":
        assert result.hops_mean == pytest.approx(network.topology.hops_mean, rel=0.03)
        counts = totals.received_packets.astype(float)
        assert (abs(counts - counts.mean()) < 5 * np.sqrt(counts.mean())).all()
    if result.victims is not None:
        assert result.victims["latency_mean"] < result.latency_mean


def test_an_overloaded_network_delivers_all_that_it_took() -> None:
    with traffic_network("mesh:4x4") as network:
        flows = parse_pattern("bitcomp", network.topology)
        result = measure(network, Load(flows, 1.0), Method(cycles=3000))
    assert result.verified and result.outcome is Outcome.UNSTABLE
    assert 0.4 < result.accepted < 0.7


def test_a_cable_that_fails_loses_packets_and_the_rest_goes_on() -> None:
    # With one class there is no way back for the packets of the dead link.
    with traffic_network("mesh:4x4", faults=Faults(outages=(
            Outage(node=5, port=0, start=4000),))) as network:
        flows = parse_pattern("uniform", network.topology)
        result = measure(network, Load(flows, 0.1))
        totals = network.read_all()
    assert result.outcome is Outcome.CONVERGED and not result.verified
    assert 0 < result.lost < 0.2 * result.sent
    assert result.sent == result.delivered + result.lost and not any(result.faulty.values())
    assert totals.received_packets.min() > 0.5 * totals.received_packets.max()


def test_what_is_left_out_changes_nothing() -> None:
    logs = []
    for skip_idle in (True, False):
        with traffic_network("torus:3x2", event_log=True, skip_idle=skip_idle) as network:
            network.load(Load(parse_pattern("uniform", network.topology), 0.04, Sizes(
                (1, 3), (1.0, 1.0))), measure_from=0)
            network.fabric.advance(2000)
            network.stop()
            network.fabric.advance(500)
            logs.append(network.fabric.event_log())
            stepped = int(network.fabric.statistics().stepped.sum())
            assert (stepped < 0.7 * network.cycle * network.topology.nodes) == skip_idle
    assert len(logs[0]) > 500 and np.array_equal(*logs)


def test_different_seeds_give_different_traffic_and_equal_ones_the_same() -> None:
    digests = []
    for seed in (1, 1, 2):
        with traffic_network("torus:3x2") as network:
            network.load(Load(parse_pattern("uniform", network.topology), 0.2, seed=seed),
                         measure_from=0)
            network.fabric.advance(500)
            digests.append(network.read("sent_digest").sent_digest.tolist())
    assert digests[0] == digests[1]
    assert not set(digests[0]) & set(digests[2])
