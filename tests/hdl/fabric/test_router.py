"""Bench of a router alone: every port has a model of the far end of its link."""

import os

import cocotb

from hdl.fabric.route import next_hop, route
from hdl.fabric.router import Router
from hdl.layouts import field_slices
from hdl.params import LinkParams, RouterParams
from hdl.ports import DimConfig
from tests.bench import Bench, run_bench
from tests.hdl.fabric.packets import Scoreboard, make_packet
from tests.hdl.link.words import LinkPeer

#: name: (router, sizes of the torus it is a node of, its place)
BUILDS = {
    "default": (RouterParams(), (4, 3, 2), (1, 2, 1)),
    "ring": (RouterParams(link=LinkParams(flit_bytes=16, classes=3, vcs_per_class=3, vc_depth=5),
                          dims=1, rails=2), (5,), (4,)),
}
WIDTH = 3  # bits per coordinate
HOP = 3


class RouterBench:
    """The router with its peers, configuration and scoreboard."""

    def __init__(self, dut, **peer) -> None:
        self.params, sizes, place = BUILDS[os.environ["BUILD"]]
        self.link = self.params.link
        self.dims = [{"mask": (1 << WIDTH) - 1 << WIDTH * d, "size": size << WIDTH * d, "wrap": 1}
                     for d, size in enumerate(sizes)]
        self.sizes = sizes
        self.node = sum(x << WIDTH * d for d, x in enumerate(place))
        dut.node.value = self.node
        slices = field_slices(DimConfig)
        stride = sum(width for _, width in slices.values())
        dut.dims.value = sum(value << slices[name][0] + stride * d
                             for d, dim in enumerate(self.dims) for name, value in dim.items())
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

    def coordinates(self, rng) -> int:
        return sum(rng.randrange(size) << WIDTH * d for d, size in enumerate(self.sizes))

    def inject(self, port: int, vc: int, *, dst: int, rail: int = 0, body: int) -> tuple[int, int]:
        """Queue a packet at ``port``; return the channel that it must leave by."""
        rng, lanes = self.bench.rng, self.link.vcs_per_class
        src = self.coordinates(rng)
        packet = make_packet(rng, self.link, self._index, dst=dst, src=src, rail=rail, body=body)
        self._index += 1
        klass, lane = divmod(vc, lanes)
        to, out = route(self.node, dst, src, port, lane, rail, self.dims,
                        rails=self.params.rails, lanes=lanes)
        self.board.expect(packet, (port, vc), (to, klass * lanes + out))
        self.peers[port].send(*packet.flits(vc))
        return to, klass * lanes + out

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


@cocotb.test()
async def random_packets_arrive_whole_once_and_in_order(dut):
    router = RouterBench(dut, send_rate=0.9, free_rate=0.6)
    bench, rng = router.bench, router.bench.rng
    await bench.start()
    for burst in range(12):
        for peer in router.peers:
            peer.send_rate, peer.free_rate = rng.choice((0.3, 1.0)), rng.choice((0.1, 0.5, 1.0))
        for port in range(router.params.ports):
            for _ in range(rng.randrange(6)):
                # A hot spot now and then.
                dst = router.node if burst % 3 == 0 else router.coordinates(rng)
                router.inject(port, rng.randrange(router.link.vcs), dst=dst,
                              rail=rng.randrange(3), body=rng.choice((0, 1, 2, 7)))
        await bench.cycles(rng.randrange(120))
    await router.settle()


@cocotb.test()
async def a_hop_takes_three_cycles_unloaded(dut):
    router = RouterBench(dut)
    bench, params = router.bench, router.params
    await bench.start()
    pairs = set()
    for port in range(params.ports):
        for dst in {router.node, *(router.coordinates(bench.rng) for _ in range(8))}:
            rail = bench.rng.randrange(params.rails)
            to, _ = router.inject(port, 0, dst=dst, rail=rail, body=3)
            await bench.until(lambda: router.done, "packet")
            flits = 3 + 32 // router.link.flit_bytes
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
    dst = router.node ^ 1 << WIDTH * 2
    for _ in range(60):
        to, _ = router.inject(6, 2, dst=dst, body=32)
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
    port, _ = next_hop(router.node, router.node, 0, 0, 0, router.dims)
    assert port == local
    for port in range(router.params.links):
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


def test_a_seven_port_router_delivers_in_three_cycles_and_at_full_rate() -> None:
    run_bench(Router(BUILDS["default"][0]), __name__, env={"BUILD": "default"}, name="router3d")


def test_a_ring_router_with_odd_parameters_delivers() -> None:
    run_bench(Router(BUILDS["ring"][0]), __name__, env={"BUILD": "ring"}, name="router1d")
