"""Routing functions with one mistake each are refused, and the right cycle is named."""

from __future__ import annotations

import pytest

from hdl.params import LinkParams
from hdl.topology import DeadlockError, Tiered, check_deadlock_free, parse
from hdl.topology.deadlock import Channel

from .model import next_hop_of

LINK = LinkParams()


def refusal(topology: Tiered, route) -> tuple[Channel, ...]:
    """The cycle that a routing function is refused with, after a look at whether it is one."""
    with pytest.raises(DeadlockError) as caught:
        check_deadlock_free(topology, LINK, next_hop=route)
    cycle, message = caught.value.cycle, str(caught.value)
    assert message.startswith(f"{topology.spec} can deadlock: ")
    assert message.removeprefix(f"{topology.spec} can deadlock: ").split(" -> ") == [
        channel.name(topology) for channel in (*cycle, cycle[0])]
    assert len(set(cycle)) == len(cycle)
    waits = taken_in_a_row(topology, route)
    assert all(pair in waits for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return cycle


def taken_in_a_row(topology: Tiered, route) -> set[tuple[Channel, Channel]]:
    """Every two channels that some packet takes one after the other."""
    found = set()
    count = topology.dim_count
    for source, target in topology.all_pairs():
        ways = [((), source, 2 * count, 0)]
        while ways:
            way, card, in_port, in_lane = ways.pop()
            port, lanes = route(topology.node_id(card), topology.node_id(target), in_port, in_lane,
                                0, topology.dims(card, count))
            if port >= 2 * count:
                continue
            neighbour = topology.link_at[card, port].target
            for lane in lanes:
                channel = Channel(card, port, lane)
                if way:
                    found.add((way[-1], channel))
                if channel not in way:
                    ways.append(((*way, channel), neighbour, port ^ 1, lane))
    return found


def test_a_ring_without_a_dateline_waits_all_around_in_one_direction():
    topology = parse("ring:5")
    cycle = refusal(topology, next_hop_of(topology, dateline=False))
    assert set(cycle) in [{Channel(card, port, 0) for card in range(5)} for port in (0, 1)]


def test_a_lane_that_is_kept_in_the_next_dimension_closes_a_ring_there_behind_the_dateline():
    topology = parse("torus:5x5")
    cycle = refusal(topology, next_hop_of(topology, reset=False))
    columns = {topology.coordinates(channel.node)[0] for channel in cycle}
    assert len(cycle) == 5 and len(columns) == 1
    assert {(channel.port // 2, channel.lane) for channel in cycle} == {(1, 1)}
    assert len({channel.port for channel in cycle}) == 1


def test_routes_that_turn_back_wait_for_each_other():
    topology = parse("mesh:3")

    def route(node, dst, in_port, in_lane, rail, dims, **_):
        if node == dst:
            return 2, [0]
        plus = dst > node
        # The middle card sends its own packets the wrong way first.
        return int(not plus if (node, in_port) != (1, 2) else plus), [0]

    assert set(refusal(topology, route)) == {
        Channel(1, 1, 0), Channel(0, 0, 0), Channel(1, 0, 0), Channel(2, 1, 0)}


def test_a_packet_that_goes_to_and_fro_for_ever_waits_for_itself():
    topology = parse("mesh:2")
    cycle = refusal(topology, lambda node, *_, **__: (node, [0]))
    assert set(cycle) == {Channel(0, 0, 0), Channel(1, 1, 0)}


@pytest.mark.parametrize(("spec", "low", "high"), [
    ("mesh:3x3", 0, 1), ("mesh:3x3x3", 1, 2), ("mesh:3x2x3", 0, 2)])
def test_packets_that_cross_two_dimensions_in_either_order_wait_in_a_square(spec, low, high):
    topology = parse(spec)

    def route(node, dst, in_port, in_lane, rail, dims, **_):
        here, there = (topology.coordinates(topology.rank(n)) for n in (node, dst))
        order = list(range(len(dims)))
        if sum(there) % 2:
            order[low], order[high] = order[high], order[low]
        for dim in order:
            if here[dim] != there[dim]:
                return 2 * dim + (here[dim] > there[dim]), [0]
        return 2 * len(dims) + rail, [0]

    cycle = refusal(topology, route)
    assert {low, high} <= {channel.port // 2 for channel in cycle}
    # Who comes back has gone each way as often as the opposite one.
    for dim in range(topology.dim_count):
        ports = [channel.port for channel in cycle]
        assert ports.count(2 * dim) == ports.count(2 * dim + 1)


def test_a_cycle_of_many_channels_is_named_by_its_first_ones_and_their_number():
    with pytest.raises(DeadlockError) as caught:
        check_deadlock_free(parse("ring:100"), LinkParams(vcs_per_class=1))
    assert len(caught.value.cycle) == 100
    first = caught.value.cycle[0]
    message, first = str(caught.value), first.name(parse("ring:100"))
    assert message.startswith(f"ring:100 can deadlock: {first} -> ")
    assert message.endswith(f"-> ... (100 channels) -> {first}")
    assert len(message) < 600
