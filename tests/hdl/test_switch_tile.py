"""Bench of the switch tile: its host port, and strict priority through it."""

from collections import Counter

import cocotb

from hdl.layouts import LinkStatus, PacketHeader, PacketOp, Status, field_slices, pack, unpack
from hdl.params import LinkParams, Policy, SwitchParams
from hdl.switch import SwitchTile
from hdl.switch_registers import SWITCH_IDENT, SwitchRegisterMap
from tests.bench import Bench, elaborated, run_bench
from tests.hdl.fabric.packets import Scoreboard, make_packet
from tests.hdl.fabric.test_switch import entry_write, level_write
from tests.hdl.link.words import Flit, LinkPeer

PARAMS = SwitchParams(link=LinkParams(vcs_per_class=1, vc_depth=24), radix=3, iterations=1,
                      policy=Policy.FIXED, table_bits=2)
REGISTERS = SwitchRegisterMap(PARAMS.radix)
NODE = 0xFFFE
READ_LATENCY = 2


class TileBench:
    """The tile with a peer at every port, and a host."""

    def __init__(self, dut) -> None:
        self.dut, self.link = dut, PARAMS.link
        for name in ("valid", "write", "address", "data"):
            getattr(dut, f"host__{name}").value = 0
        dut.now.value, dut.node.value = 0, NODE
        self.bench = bench = Bench(dut, limit=5000)
        self.peers = [LinkPeer(bench, f"links__{port}", self.link) for port in range(PARAMS.radix)]
        self.board = Scoreboard()
        self.order: list[tuple[int, int]] = []  # (input port, class) of heads at output 0
        self._index = 0
        self._seen = [0] * PARAMS.radix
        bench.on_sample(self._collect)
        bench.on_stuck(lambda: f"{self.board.waiting} packets inside" if self.board.waiting else "")

    def _collect(self) -> None:
        for port, peer in enumerate(self.peers):
            for _, flit in peer.received[self._seen[port]:]:
                if port == 0 and flit.head:
                    self.order.append((flit.payload >> 16 & 0xFFFF, flit.vc))
                self.board.take(port, flit)
            self._seen[port] = len(peer.received)

    async def _operate(self, write: int, address: int, data: int) -> None:
        dut = self.dut
        dut.host__valid.value, dut.host__write.value = 1, write
        dut.host__address.value, dut.host__data.value = address, data
        await self.bench.cycles(1)
        dut.host__valid.value = 0

    async def write(self, address: int, data: int) -> None:
        await self._operate(1, address, data)

    async def read(self, address: int) -> int:
        asked, answers = [], []
        dut = self.dut

        def sample() -> None:
            if int(dut.host__valid.value):
                asked.append(self.bench.cycle)
            if int(dut.host__read_valid.value):
                answers.append((self.bench.cycle, int(dut.host__read_data.value)))

        self.bench.on_sample(sample)
        await self._operate(0, address, 0)
        assert int(dut.idle.value) == 0, "an answer is under way"
        await self.bench.cycles(5)
        (cycle, value), = answers
        assert cycle - asked[0] == READ_LATENCY
        return value

    async def route(self) -> None:
        """Destination ``n`` is behind port ``n``."""
        await self.write(REGISTERS.table.at(), level_write(0, {"mask": 0, "value": 0, "shift": 0}))
        for port in range(PARAMS.radix):
            await self.write(REGISTERS.table.at(), entry_write(0, port, port))
        await self.bench.cycles(3)

    def inject(self, port: int, to: int, *, klass: int = 0, body: int = 0) -> None:
        packet = make_packet(self.bench.rng, self.link, self._index, dst=to, src=port, rail=0,
                             body=body)
        self._index += 1
        self.board.expect(packet, (port, klass), (to, klass))
        self.peers[port].send(*packet.flits(klass))

    async def settle(self) -> None:
        await self.bench.until(lambda: not self.board.waiting and all(
            peer.empty and peer.balanced for peer in self.peers), "end of traffic")
        await self.bench.cycles(10)
        assert int(self.dut.idle.value) == 1


@cocotb.test()
async def the_host_reads_what_the_switch_is_and_the_state_of_its_links(dut):
    tile = TileBench(dut)
    await tile.bench.start()
    await tile.bench.cycles(5)
    assert await tile.read(REGISTERS.ident.at()) == SWITCH_IDENT
    assert await tile.read(REGISTERS.radix.at()) == PARAMS.radix
    assert await tile.read(REGISTERS.node.at()) == NODE
    # Nothing is mapped here, and a table cannot be read.
    for address in (0x018, REGISTERS.table.at(), REGISTERS.link.at(PARAMS.radix - 1) + 8):
        assert await tile.read(address) == 0
    await tile.route()
    down = field_slices(LinkStatus)["down"]
    assert down == (0, 1)
    # Port 1 loses its signal: the packet that was for it comes back, other ports go on.
    dut.links__1__up.value = 0
    await tile.bench.cycles(5)
    assert [await tile.read(REGISTERS.link.at(port)) & 1 for port in range(PARAMS.radix)] == [
        0, 1, 0]
    tile.inject(0, 2, body=3)
    await tile.bench.until(lambda: not tile.board.waiting, "packet past a dead link")

    # A request for the dead link comes back from where it died.
    answers = []
    tile.board.take = lambda port, flit: answers.append((port, flit))
    request = pack(PacketHeader, {"dst": 1, "src": 2, "op": PacketOp.WRITE, "tag": 77})
    tile.peers[2].send(Flit(int.from_bytes(request, "little"), 1, 1, 0))
    await tile.bench.until(lambda: answers, "error response")
    (port, flit), = answers
    response = unpack(PacketHeader, flit.payload.to_bytes(32, "little"))
    assert (port, flit.vc, flit.head, flit.tail) == (2, 1, 1, 1)
    assert {name: response[name] for name in ("dst", "src", "op", "status", "counter", "tag")} == {
        "dst": 2, "src": NODE, "op": PacketOp.RESPONSE, "status": Status.LINK_DOWN, "counter": 1,
        "tag": 77}


@cocotb.test()
async def writes_of_the_table_count_and_other_writes_do_nothing(dut):
    tile = TileBench(dut)
    await tile.bench.start()
    await tile.route()
    for port in range(PARAMS.radix):
        for to in range(PARAMS.radix):
            tile.inject(port, to, body=2)
    await tile.settle()
    for address in (REGISTERS.ident.at(), REGISTERS.table.at() + 8, REGISTERS.link.at(0)):
        await tile.write(address, entry_write(0, 1, 0))
    for to in range(PARAMS.radix):
        tile.inject(0, to)
    await tile.settle()
    # Only port 2 sends destination 1 to itself now.
    await tile.write(REGISTERS.table.at(), entry_write(0, 1, 2, at=2))
    await tile.bench.cycles(3)
    tile.inject(0, 1)
    packet = make_packet(tile.bench.rng, tile.link, 1 << 16, dst=1, src=2, rail=0, body=1)
    tile.board.expect(packet, (2, 0), (2, 0))
    tile.peers[2].send(*packet.flits(0))
    await tile.settle()


@cocotb.test()
async def strict_priority_serves_the_lowest_class_and_input_first(dut):
    tile = TileBench(dut)
    await tile.bench.start()
    await tile.route()
    # No credit at first, so that all of them wait: two classes of all inputs.
    tile.peers[0].free_rate = 0.0
    for _ in range(PARAMS.link.vc_depth):
        for klass in range(2):
            tile.inject(1, 0, klass=klass)
    await tile.bench.until(lambda: len(tile.order) == 2 * PARAMS.link.vc_depth, "full far end")
    tile.order.clear()
    for port in range(PARAMS.radix):
        for klass in range(2):
            for _ in range(8):
                tile.inject(port, 0, klass=klass)
    await tile.bench.cycles(100)
    assert not tile.order
    tile.peers[0].free_rate = 1.0
    await tile.settle()
    turns = Counter(tile.order)
    assert all(turns[port, klass] == 8 for port in range(PARAMS.radix) for klass in range(2))
    for klass in range(2):
        inputs = [port for port, of in tile.order if of == klass]
        assert inputs == sorted(inputs), f"class {klass}: inputs in the order {inputs}"


def test_the_tile_serves_its_host_and_strict_priority_goes_through_it() -> None:
    run_bench(elaborated(SwitchTile, PARAMS, name="switch_tile"), __name__)
