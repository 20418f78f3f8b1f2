"""Bench of a router alone: every port has a model of the far end of its link."""

import os
from dataclasses import dataclass, field

import cocotb

from hdl.fabric.adaptive import adaptive_hops
from hdl.fabric.lanes import ESCAPE, spread
from hdl.fabric.lookup import table_route
from hdl.fabric.route import next_hop, route
from hdl.fabric.router import Router
from hdl.params import LinkParams, RouterParams
from hdl.ports import DimKind, pack_dims
from tests.bench import Bench, elaborated, run_bench
from tests.hdl.fabric.fabrics import Fabric, grid
from tests.hdl.fabric.packets import Scoreboard, make_packet
from tests.hdl.fabric.tables import entry_write, level_write
from tests.hdl.link.words import LinkPeer


@dataclass(frozen=True)
class Build:
    """A router, the fabric that it is a node of, and its place there."""

    params: RouterParams
    fabric: Fabric
    place: tuple[int, ...]


BUILDS = {
    "default": Build(RouterParams(), grid((4, 3, 2), True), (1, 2, 1)),
    "ring": Build(
        RouterParams(link=LinkParams(flit_bytes=16, classes=3, vcs_per_class=3, vc_depth=5),
                     dim_ports=(2,), rails=2), grid((5,), True, dim_ports=(2,)), (4,)),
    "adaptive": Build(
        RouterParams(link=LinkParams(flit_bytes=16, classes=2, vcs_per_class=4, vc_depth=8),
                     dim_ports=(2, 3), adaptive=True, table_bits=2),
        Fabric(((DimKind.RING, 5), (DimKind.FULL, 4)), (2, 3)), (2, 1)),
}
HOP = 3


@dataclass
class Table:
    """What the router's table holds."""

    levels: list[dict[str, int]] = field(default_factory=list)
    entries: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)


class RouterBench:
    """The router with its peers, configuration and scoreboard."""

    def __init__(self, dut, **peer) -> None:
        build = BUILDS[os.environ["BUILD"]]
        self.params, self.fabric = build.params, build.fabric
        self.link, self.dims = self.params.link, self.fabric.dims
        self.node = self.fabric.node(build.place)
        dut.node.value = self.node
        dut.dims.value = pack_dims(self.dims)
        dut.now.value = 0
        self.table = Table()
        if self.params.table_bits:
            dut.table__valid.value = 0
        self.bench = bench = Bench(dut, limit=20_000)
        self.names = [f"links__{n}" for n in range(self.params.links)] + [
            f"locals__{n}" for n in range(self.params.rails)]
        self.peers = [LinkPeer(bench, name, self.link, **peer) for name in self.names]
        self.board = Scoreboard()
        self._seen = [0] * len(self.peers)
        self._index = 0
        bench.on_sample(self._collect)
        bench.on_stuck(lambda: f"{self.board.waiting} packets inside" if self.board.waiting else "")

    def _collect(self) -> None:
        for port, peer in enumerate(self.peers):
            for _, flit in peer.received[self._seen[port]:]:
                self.board.take(port, flit)
            self._seen[port] = len(peer.received)

    def somewhere(self) -> int:
        return self.bench.rng.choice(self.fabric.nodes)

    def channels(self, port: int, lane: int, dst: int, src: int, rail: int, path: int,
                 single: bool) -> list[tuple[int, int]]:
        """(port, lane) of each channel that a packet may leave by."""
        params, lanes, ports = self.params, self.link.vcs_per_class, self.params.dim_ports
        hop = table_route(self.node, dst, port, lane, rail, self.table.levels, self.table.entries,
                          table_bits=params.table_bits, links=params.links, lanes=lanes)
        if hop is None or dst == self.node:
            if not params.adaptive:
                return [route(self.node, dst, src, port, lane, rail, self.dims, dim_ports=ports,
                              rails=params.rails, lanes=lanes, path=path)]
            ahead, hop = adaptive_hops(self.node, dst, port, lane, rail, self.dims,
                                       dim_ports=ports, lanes=lanes, path=path)
            free = single or lane >= ESCAPE or port >= params.links
            more = [(to, out) for to in ahead for out in range(ESCAPE, lanes)] if free else []
        else:
            more = []
        to, allowed = hop
        to = params.links if to >= params.ports else to
        return [(to, allowed[spread(src, dst, len(allowed))]), *more]

    def inject(self, port: int, vc: int, *, dst: int, rail: int = 0, body: int,
               path: int = 0) -> list[tuple[int, int]]:
        """Queue a packet at ``port``; return the channels that it may leave by."""
        rng, lanes, src = self.bench.rng, self.link.vcs_per_class, self.somewhere()
        packet = make_packet(rng, self.link, self._index, dst=dst, src=src, rail=rail, body=body,
                             path=path, poison=rng.random() < 0.2)
        self._index += 1
        klass, lane = divmod(vc, lanes)
        targets = [(to, klass * lanes + out) for to, out in self.channels(
            port, lane, dst, src, rail, path, len(packet.payloads) == 1)]
        self.board.expect(packet, (port, vc), *targets)
        self.peers[port].send(*packet.flits(vc))
        return targets

    async def write(self, word: int) -> None:
        """Write the route table."""
        dut = self.bench.dut
        dut.table__payload.value, dut.table__valid.value = word, 1
        await self.bench.cycles(1)
        dut.table__valid.value = 0

    @property
    def done(self) -> bool:
        return not self.board.waiting and all(p.empty and p.balanced for p in self.peers)

    async def settle(self) -> None:
        """Wait until all is delivered and told; then the router must be idle and stay so."""
        for peer in self.peers:
            peer.send_rate = peer.free_rate = 1.0
        await self.bench.until(lambda: self.done, "end of traffic")
        await self.bench.cycles(2 * HOP)
        assert int(self.bench.dut.idle.value) == 1

    async def random_traffic(self, bursts: int) -> None:
        rng = self.bench.rng
        for burst in range(bursts):
            for peer in self.peers:
                peer.send_rate, peer.free_rate = rng.choice((0.3, 1.0)), rng.choice((0.1, 0.5, 1.0))
            for port in range(self.params.ports):
                for _ in range(rng.randrange(6)):
                    # A hot spot now and then.
                    dst = self.node if burst % 3 == 0 else self.somewhere()
                    self.inject(port, rng.randrange(self.link.vcs), dst=dst, path=rng.randrange(7),
                                rail=rng.randrange(3), body=rng.choice((0, 1, 2, 7)))
            await self.bench.cycles(rng.randrange(120))
        await self.settle()


@cocotb.test()
async def random_packets_arrive_whole_once_and_in_order(dut):
    router = RouterBench(dut, send_rate=0.9, free_rate=0.6)
    await router.bench.start()
    await router.random_traffic(12)


@cocotb.test()
async def a_hop_takes_three_cycles_unloaded(dut):
    router = RouterBench(dut)
    bench, params = router.bench, router.params
    await bench.start()
    pairs = set()
    for port in range(params.ports):
        for dst in {router.node, *(router.somewhere() for _ in range(8))}:
            rail = bench.rng.randrange(params.rails)
            before = [len(peer.received) for peer in router.peers]
            targets = router.inject(port, 0, dst=dst, rail=rail, body=3)
            await bench.until(lambda: router.done, "packet")
            flits = 3 + 32 // router.link.flit_bytes
            to = next(to for to, peer in enumerate(router.peers)
                      if len(peer.received) > before[to])
            assert to in {port for port, _ in targets}
            sent = [cycle for cycle, _ in router.peers[port].sent[-flits:]]
            got = [cycle for cycle, _ in router.peers[to].received[-flits:]]
            assert [b - a for a, b in zip(sent, got, strict=True)] == [HOP] * flits
            assert sent[-1] - sent[0] == flits - 1, "a lone packet must not stall"
            pairs.add((port, to))
    assert len(pairs) >= params.ports * 2


@cocotb.test()
async def a_lone_flow_fills_a_link_at_default_latency(dut):
    if os.environ["BUILD"] != "default":
        return
    # One more cycle each way than the link takes, for a far end as quick as a wire.
    router = RouterBench(dut, latency=17)
    bench = router.bench
    await bench.start()
    dst = router.node ^ 1 << router.fabric.width * 2
    for _ in range(60):
        [(to, _)] = router.inject(6, 2, dst=dst, body=32)
    await bench.cycles(400)
    received = router.peers[to].received
    before = len(received)
    await bench.cycles(1000)
    assert len(received) - before >= 990
    await router.settle()


@cocotb.test()
async def a_blocked_class_does_not_hold_up_another(dut):
    router = RouterBench(dut)
    bench, lanes = router.bench, router.link.vcs_per_class
    await bench.start()
    local = router.params.links
    # The local sink takes nothing of class 0 after this fills up.
    for peer in router.peers:
        peer.free_rate = 0.0
    for port in range(router.params.links):
        router.inject(port, 0, dst=router.node, body=2 * router.link.vc_depth)
    await bench.cycles(4 * router.link.vc_depth)
    blocked = router.board.waiting
    assert blocked == router.params.links
    port, _ = next_hop(router.node, router.node, 0, 0, 0, router.dims,
                       dim_ports=router.params.dim_ports)
    assert port == local
    # As many headers as the sink has room for.
    room = router.link.vc_depth * router.link.flit_bytes // 32
    for port in range(min(router.params.links, room)):
        router.inject(port, lanes, dst=router.node, body=0)
        await bench.until(lambda: router.board.waiting == blocked, "packet of the free class")
    await router.settle()


@cocotb.test()
async def an_idle_router_changes_nothing(dut):
    router = RouterBench(dut)
    bench = router.bench
    await bench.start()
    router.inject(0, 0, dst=router.node, body=4)
    await bench.until(lambda: router.done, "packet")
    await router.settle()
    outputs = [getattr(dut, f"{name}__tx") for name in router.names]
    for _ in range(50):
        await bench.cycles(1)
        assert int(dut.idle.value) == 1
        assert not any(int(output.value) for output in outputs)
    # Not idle from the cycle after a word came in until its own words have left.
    router.inject(1, 0, dst=router.node, body=0)
    busy = []
    bench.on_sample(lambda: busy.append(int(dut.idle.value)))
    await bench.until(lambda: router.done, "packet")
    await bench.cycles(2 * HOP)
    assert busy[0] == 1 and busy.count(0) >= HOP and busy[-1] == 1


@cocotb.test()
async def heads_choose_by_credits_and_escape_when_nothing_else_is_free(dut):
    if os.environ["BUILD"] != "adaptive":
        return
    router = RouterBench(dut)
    bench, link = router.bench, router.link
    await bench.start()
    # One up in the ring and to coordinate 0 of the full mesh, from a local port.
    dst = router.fabric.node((3, 0))
    ring, mesh, local = 0, 2, router.params.links

    async def leaves(port: int, vc: int, flits: int = 2) -> tuple[int, int]:
        before = router.board.taken.copy()
        router.inject(port, vc, dst=dst, body=flits - 2)
        await bench.cycles(12)
        [channel] = router.board.taken - before
        return channel

    # Ties alternate between the ports, and nobody escapes.
    first, second = await leaves(local, 0), await leaves(local, 0)
    assert {first[0], second[0]} == {ring, mesh} and first[1] >= ESCAPE <= second[1]
    # The far ends free nothing: both adaptive lanes of a port fill up to half, then beyond.
    for peer in router.peers:
        peer.free_rate = 0.0
    half, used = link.vc_depth // 2, []
    while (channel := await leaves(local, 0))[1] >= ESCAPE:
        used.append(channel)
    # From a local port only lanes with half their buffer free: then the escape channel.
    assert channel == (ring, 1)
    for port in (ring, mesh):
        for lane in range(ESCAPE, link.vcs_per_class):
            flits = 2 * used.count((port, lane))
            assert half <= flits <= half + 4, f"port {port} lane {lane}: {flits} flits"
    # Who is under way takes what is left, unless it came by an escape lane.
    assert (await leaves(4, 3))[1] >= ESCAPE
    assert (await leaves(4, 0)) == (ring, 1)
    await router.settle()


@cocotb.test()
async def a_table_overrides_routes_and_leaves_nothing_to_choose(dut):
    if os.environ["BUILD"] != "adaptive":
        return
    router = RouterBench(dut, send_rate=0.9, free_rate=0.6)
    bench, params = router.bench, router.params
    await bench.start()
    # Destinations in the own column of the ring are looked up by their mesh coordinate.
    level = {"mask": 7, "value": router.fabric.place(router.node)[0], "shift": router.fabric.width}
    await router.write(level_write(1, **level))
    # Levels before it are not valid; the model is given those that are.
    router.table.levels = [level]
    for index in range(1 << params.table_bits):
        entry = {"port": bench.rng.randrange(params.links), "lane": bench.rng.randrange(4),
                 "fixed": index % 2}
        await router.write(entry_write(1, index, **entry))
        router.table.entries[0, index] = entry
    await router.random_traffic(8)


def run_build(build: str, name: str) -> None:
    run_bench(elaborated(Router, BUILDS[build].params, name=name), __name__, env={"BUILD": build})


def test_a_seven_port_router_delivers_in_three_cycles_and_at_full_rate() -> None:
    run_build("default", "router")


def test_a_router_of_three_classes_and_lanes_delivers_in_order() -> None:
    run_build("ring", "router1d")


def test_an_adaptive_router_with_a_table_takes_allowed_channels_alone() -> None:
    run_build("adaptive", "router_adaptive")
