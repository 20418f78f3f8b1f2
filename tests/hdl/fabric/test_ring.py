"""Bench of routers joined to a ring: credits of real pairs, and datelines against deadlock."""

import os
from collections import Counter, deque
from dataclasses import replace
from typing import Any

import cocotb
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from hdl.connect import connect
from hdl.fabric.route import route
from hdl.fabric.router import Router
from hdl.layouts import link_word
from hdl.params import LinkParams, RouterParams
from hdl.ports import DimConfig, DimKind, LinkSignature
from tests.bench import Bench, elaborated, run_bench
from tests.hdl.fabric.packets import Scoreboard, make_packet
from tests.hdl.link.words import LinkPeer, Words

LATENCY = 3
LINK = LinkParams(flit_bytes=16, classes=1, vcs_per_class=2, vc_depth=4, latency=LATENCY)
ROUTERS = {
    "computed": RouterParams(link=LINK, dim_ports=(2,)),
    "adaptive": RouterParams(link=replace(LINK, flit_bytes=32, vcs_per_class=3), dim_ports=(2,),
                             adaptive=True),
}
#: Ports of a router: up and down the ring, and local.
UP, DOWN, LOCAL = range(3)


class Ring(wiring.Component):
    """``count`` routers in a ring, ``LATENCY`` cycles apart; every tx is tapped."""

    def __init__(self, count: int, kind: str = "computed") -> None:
        self._count, self._params = count, ROUTERS[kind]
        super().__init__({
            "locals": Out(LinkSignature(self._params.link)).array(count),
            "taps": Out(link_word(self._params.link)).array(count, 2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        routers = []
        for node in range(self._count):
            m.submodules[f"router{node}"] = router = Router(self._params)
            connect(m, router.locals[0], wiring.flipped(self.locals[node]))
            m.d.comb += [
                router.node.eq(node),
                router.dims[0].eq(DimConfig.const({
                    "mask": 7, "size": self._count, "kind": DimKind.RING})),
                *(router.links[port].up.eq(1) for port in (UP, DOWN)),
                *(self.taps[node][port].eq(router.links[port].tx) for port in (UP, DOWN)),
            ]
            routers.append(router)
        for node, router in enumerate(routers):
            for port, step in ((UP, 1), (DOWN, -1)):
                word = router.links[port].tx
                for delay in range(LATENCY):
                    later = Signal(link_word(self._params.link), name=f"line{node}_{port}_{delay}")
                    m.d.sync += later.eq(word)
                    word = later
                m.d.comb += routers[(node + step) % self._count].links[1 - port].rx.eq(word)
        return m


class RingBench:
    """Peers at the local ports, a scoreboard for them, and a monitor on every link."""

    def __init__(self, dut, **peer) -> None:
        self.count = int(os.environ["NODES"])
        self.params = ROUTERS[os.environ["KIND"]]
        self.link = self.params.link
        self.bench = Bench(dut, limit=20_000)
        self.peers = [LinkPeer(self.bench, f"locals__{node}", self.link, **peer)
                      for node in range(self.count)]
        self.board = Scoreboard(ordered=not self.params.adaptive)
        self._seen = [0] * self.count
        self._index = 0
        self.bench.on_sample(self._collect)
        self.bench.on_stuck(lambda: f"{self.board.waiting} packets not delivered"
                            if self.board.waiting else "")

    def _collect(self) -> None:
        for node, peer in enumerate(self.peers):
            for _, flit in peer.received[self._seen[node]:]:
                self.board.take(node, flit)
            self._seen[node] = len(peer.received)

    @property
    def dims(self) -> list[dict[str, Any]]:
        return [{"mask": 7, "size": self.count, "kind": DimKind.RING}]

    def inject(self, node: int, dst: int, *, rail: int, body: int, vc: int = 0) -> None:
        packet = make_packet(self.bench.rng, self.link, self._index, dst=dst, src=node,
                             rail=rail, body=body)
        self._index += 1
        # Order is promised within a rail: another one may go the other way around.
        self.board.expect(packet, (node, vc, rail), (dst, 0))
        self.peers[node].send(*packet.flits(vc))

    def crossings(self, node: int, dst: int, rail: int, vc: int) -> list[tuple[int, int, int]]:
        """(node, port, VC) of each link on a route."""
        path, port_in = [], LOCAL
        here = node
        while True:
            port, vc = route(here, dst, node, port_in, vc, rail, self.dims)
            if port == LOCAL:
                return path
            path.append((here, port, vc))
            here, port_in = (here + (1, -1)[port]) % self.count, 1 - port

    @property
    def done(self) -> bool:
        return not self.board.waiting and all(p.empty and p.balanced for p in self.peers)


class LinkMonitor:
    """Watches one direction of a link between two routers by its pins alone.

    What has left the receiving router's buffer is known from outside: a flit is on some output of
    the router ``2`` cycles after it left the buffer, and the totals that count it are told then at
    the earliest. Flits are told apart by their payloads.
    """

    def __init__(self, ring: RingBench, node: int, port: int) -> None:
        self.ring, self.node, self.port = ring, node, port
        self.words, self.link = Words(ring.link), ring.link
        dut = ring.bench.dut
        self.sender = getattr(dut, f"taps__{node}__{port}")
        self.far = (node + (1, -1)[port]) % ring.count
        self.receiver = getattr(dut, f"taps__{self.far}__{1 - port}")
        self.outputs = [getattr(dut, f"taps__{self.far}__{UP}"),
                        getattr(dut, f"taps__{self.far}__{DOWN}"),
                        getattr(dut, f"locals__{self.far}__tx")]
        vcs = range(self.link.vcs)
        self.sent, self.known, self.told, self.left = ([0 for _ in vcs] for _ in range(4))
        self.line: deque = deque([(None, None)] * LATENCY)
        self.back: deque = deque([None] * LATENCY)
        self.inside: list[deque[int]] = [deque() for _ in vcs]  # buffer, allocation and crossbar
        self.most = Counter()
        ring.bench.on_sample(self.check)

    def check(self) -> None:
        where = f"cycle {self.ring.bench.cycle}: link {self.node}:{self.port}"
        depth, modulus = self.link.vc_depth, 1 << self.link.total_bits

        # Flits that left the receiver: each is the oldest that is inside, of its VC.
        for output in self.outputs:
            flit, _ = self.words.unpack(int(output.value))
            for vc, inside in enumerate(self.inside):
                if flit is not None and flit.payload in inside:
                    assert inside[0] == flit.payload, f"{where}: VC {vc} is out of order"
                    inside.popleft()
                    self.left[vc] += 1

        flit, _ = self.words.unpack(int(self.sender.value))
        if flit is not None:
            self.sent[flit.vc] += 1
        self.line.append((flit, None))
        arriving, _ = self.line.popleft()
        if arriving is not None:
            self.inside[arriving.vc].append(arriving.payload)
            self.most[arriving.vc] = max(self.most[arriving.vc], len(self.inside[arriving.vc]))

        _, told = self.words.unpack(int(self.receiver.value))
        if told is not None:
            vc, total = told
            self.told[vc] += (total - self.told[vc]) % modulus
        self.back.append(told and (told[0], self.told[told[0]]))
        heard = self.back.popleft()
        if heard is not None:
            self.known[heard[0]] = heard[1]

        for vc in range(self.link.vcs):
            flight = sum(flit is not None and flit.vc == vc for flit, _ in self.line)
            assert self.sent[vc] - self.known[vc] <= depth, f"{where}: VC {vc} overdrawn"
            assert self.known[vc] <= self.told[vc] <= self.left[vc], \
                f"{where}: VC {vc} tells credits that nobody freed"
            assert self.sent[vc] - self.left[vc] == flight + len(self.inside[vc]), \
                f"{where}: VC {vc} lost count"


@cocotb.test()
async def credits_of_joined_routers_hold_every_cycle(dut):
    ring = RingBench(dut, send_rate=0.9, free_rate=0.7)
    bench, rng = ring.bench, ring.bench.rng
    monitors = [LinkMonitor(ring, node, port) for node in range(ring.count)
                for port in (UP, DOWN)]
    await bench.start()
    used = set()
    for _ in range(30):
        for node, peer in enumerate(ring.peers):
            peer.free_rate = rng.choice((0.05, 0.5, 1.0))
            for _ in range(rng.randrange(4)):
                dst, rail, vc = rng.randrange(ring.count), rng.randrange(2), rng.randrange(2)
                ring.inject(node, dst, rail=rail, body=rng.choice((0, 1, 6)), vc=vc)
                used |= set(ring.crossings(node, dst, rail, vc))
        await bench.cycles(60)
    for peer in ring.peers:
        peer.free_rate = 1.0
    await bench.until(lambda: ring.done, "end of traffic")
    await bench.cycles(2 * LATENCY + 8)
    for monitor in monitors:
        assert monitor.sent == monitor.left == monitor.known
        for vc, sent in enumerate(monitor.sent):
            assert bool(sent) == ((monitor.node, monitor.port, vc) in used)
    assert max(max(monitor.most.values(), default=0) for monitor in monitors) >= \
        LINK.vc_depth, "no buffer was ever full: the traffic is too light to test credits"


#: (node, destination, rail) of flows up a ring of six, each of which holds the link that the one
#: before it wants, all on before lanes but for the wrap link and after it.
CHAIN = ((0, 3, 0), (1, 4, 1), (2, 4, 0), (3, 5, 0), (4, 0, 0), (5, 1, 0))


@cocotb.test()
async def a_full_ring_does_not_deadlock(dut):
    """Packets longer than the buffers wait for each other all around the ring: without an after
    lane on the wrap link they would do so for ever."""
    ring = RingBench(dut)
    bench = ring.bench
    await bench.start()
    for _ in range(20):
        for node, dst, rail in CHAIN if ring.count == 6 else [
                (node, (node + 2) % ring.count, 0) for node in range(ring.count)]:
            ring.inject(node, dst, rail=rail, body=12)
    await bench.until(lambda: ring.done, "end of one-way traffic")
    for node, peer in enumerate(ring.peers):
        peer.free_rate = 0.5
        for _ in range(60):
            ring.inject(node, bench.rng.randrange(ring.count), rail=bench.rng.randrange(2),
                        body=bench.rng.choice((0, 5, 16)), vc=bench.rng.randrange(2))
    await bench.until(lambda: ring.done, "end of random traffic")


def test_credits_between_two_routers_hold_every_cycle() -> None:
    run_bench(elaborated(Ring, 2, name="ring2"), __name__,
              testcase="credits_of_joined_routers_hold_every_cycle",
              env={"NODES": "2", "KIND": "computed"})


def test_a_ring_of_six_routers_does_not_deadlock_and_keeps_its_credits() -> None:
    run_bench(elaborated(Ring, 6, name="ring6"), __name__,
              env={"NODES": "6", "KIND": "computed"})


def test_a_ring_of_five_adaptive_routers_does_not_deadlock() -> None:
    run_bench(elaborated(Ring, 5, "adaptive", name="ring5a"), __name__,
              testcase="a_full_ring_does_not_deadlock",
              env={"NODES": "5", "KIND": "adaptive"})
