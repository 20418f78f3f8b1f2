"""Bench of the routing functions in hardware, computed, looked up and adaptive, in one build."""

import itertools
from dataclasses import dataclass

import cocotb
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.adaptive import adaptive_hops
from hdl.fabric.lanes import spread
from hdl.fabric.lookup import TableRoute, table_route
from hdl.fabric.route import Route, route, want_layout
from hdl.fabric.shape import RouteConfig
from hdl.layouts import NODE_BITS, RouteWrite, field_slices
from hdl.params import LinkParams, RouterParams
from hdl.ports import DimConfig, ValidSignature, pack_dims
from tests.bench import Bench, elaborated, run_bench
from tests.hdl.fabric.fabrics import FABRICS, MIXED, grid
from tests.hdl.fabric.tables import entry_write, level_write


@dataclass(frozen=True)
class Build:
    """A router whose routing functions are built, at some of its input ports."""

    params: RouterParams
    ports: tuple[int, ...]
    fabrics: tuple


WIDE = (4, 2, 1, 3)
BUILDS = {
    "plain": Build(RouterParams(link=LinkParams(classes=2, vcs_per_class=3), rails=2),
                   (1, 2, 5, 6), FABRICS),
    "wide": Build(RouterParams(link=LinkParams(classes=1, vcs_per_class=4), dim_ports=WIDE),
                  (1, 4, 6, 9, 10), MIXED),
    "adaptive": Build(RouterParams(link=LinkParams(classes=2, vcs_per_class=4), dim_ports=WIDE,
                                   rails=2, adaptive=True), (1, 4, 9, 10), MIXED),
    "table": Build(RouterParams(link=LinkParams(classes=2, vcs_per_class=2), dim_ports=(2, 2),
                                rails=2, table_bits=3), (1, 2, 4), ()),
}


class RouteBlocks(wiring.Component):
    """The blocks side by side. Inputs are common; each build has its own dimensions."""

    def __init__(self) -> None:
        members = {
            "node": In(NODE_BITS), "dst": In(NODE_BITS), "src": In(NODE_BITS), "rail": In(3),
            "path": In(8), "vc": In(3), "table": In(ValidSignature(RouteWrite)),
        }
        for name, build in BUILDS.items():
            members[f"{name}_dims"] = In(data.ArrayLayout(DimConfig, build.params.dims))
            members[f"{name}_want"] = Out(want_layout(build.params)).array(len(build.ports))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, build in BUILDS.items():
            m.submodules[f"{name}_config"] = config = RouteConfig(build.params)
            m.d.comb += [config.node.eq(self.node),
                         config.dims.eq(getattr(self, f"{name}_dims"))]
            for index, port in enumerate(build.ports):
                if build.params.table_bits:
                    block = TableRoute(build.params, port)
                    m.d.comb += [block.own.eq(config.own),
                                 block.table.valid.eq(self.table.valid),
                                 block.table.payload.eq(self.table.payload)]
                else:
                    block = Route(build.params, port)
                m.submodules[f"{name}_{port}"] = block
                m.d.comb += [block.routes.eq(config.routes), block.valid.eq(1),
                             block.dst.eq(self.dst), block.src.eq(self.src),
                             block.rail.eq(self.rail), block.path.eq(self.path),
                             block.vc.eq(self.vc),
                             getattr(self, f"{name}_want")[index].eq(block.want)]
        return m


class Probe:
    """Sets the inputs and reads what the blocks of one build say."""

    def __init__(self, dut, name: str) -> None:
        self.dut, self.name, self.build = dut, name, BUILDS[name]
        self.params, self.link = self.build.params, self.build.params.link
        self._fields = field_slices(want_layout(self.params))
        self.checked = 0

    async def start(self) -> Bench:
        for name in ("node", "dst", "src", "rail", "path", "vc", "table__valid",
                     *(f"{build}_dims" for build in BUILDS)):
            getattr(self.dut, name).value = 0
        self.bench = Bench(self.dut)
        await self.bench.start()
        return self.bench

    async def place(self, node: int, dims: list) -> None:
        getattr(self.dut, f"{self.name}_dims").value = pack_dims(dims)
        self.dut.node.value = node
        await self.bench.cycles(3)  # the clock may be at any phase here

    def wants(self, index: int) -> dict[str, int]:
        word = int(getattr(self.dut, f"{self.name}_want__{index}").value)
        return {name: word >> at & (1 << width) - 1 for name, (at, width) in self._fields.items()}

    async def compare(self, expect, **header: int) -> None:
        """``expect(port, lane) -> (port, lane, ports ahead)`` for a header."""
        rng, lanes = self.bench.rng, self.link.vcs_per_class
        klass, lane = rng.randrange(self.link.classes), rng.randrange(lanes)
        for name, value in header.items():
            getattr(self.dut, name).value = value
        self.dut.vc.value = klass * lanes + lane
        await cocotb.triggers.Timer(1, "ns")
        for index, port in enumerate(self.build.ports):
            got = self.wants(index)
            to, out, ahead = expect(port, lane)
            want = {"port": to, "vc": klass * lanes + out}
            if self.params.adaptive:
                want["ahead"] = sum(1 << port for port in ahead)
            assert got == want, f"{self.name}, in at {port}, lane {lane}: {header}: {got}, {want}"
            self.checked += 1


def _rails(params: RouterParams, port: int) -> int:
    return params.links if port >= params.ports else port


async def equal_on_all_fabrics(dut, name: str) -> None:
    probe = Probe(dut, name)
    bench, params = await probe.start(), probe.params
    lanes, ports = params.link.vcs_per_class, params.dim_ports
    for fabric in probe.build.fabrics:
        for node in fabric.nodes:
            await probe.place(node, fabric.dims)
            for dst, rail in itertools.product(fabric.nodes, range(2)):
                src, path = bench.rng.choice(fabric.nodes), bench.rng.randrange(8)

                def expect(port: int, lane: int, node=node, dst=dst, src=src, rail=rail,
                           path=path, dims=fabric.dims):
                    if not params.adaptive:
                        return *route(node, dst, src, port, lane, rail, dims, dim_ports=ports,
                                      rails=params.rails, lanes=lanes, path=path), ()
                    ahead, (to, allowed) = adaptive_hops(node, dst, port, lane, rail, dims,
                                                         dim_ports=ports, lanes=lanes, path=path)
                    return (_rails(params, to), allowed[spread(src, dst, len(allowed))], ahead)

                await probe.compare(expect, dst=dst, src=src, rail=rail, path=path)
    assert probe.checked > 5000


@cocotb.test()
async def computed_routes_equal_the_model_in_lines_and_rings(dut):
    await equal_on_all_fabrics(dut, "plain")


@cocotb.test()
async def computed_routes_equal_the_model_in_wide_dimensions(dut):
    await equal_on_all_fabrics(dut, "wide")


@cocotb.test()
async def adaptive_routes_equal_the_model(dut):
    await equal_on_all_fabrics(dut, "adaptive")


@cocotb.test()
async def tables_decide_where_a_level_matches(dut):
    probe = Probe(dut, "table")
    bench, params = await probe.start(), probe.params
    rng, ports = bench.rng, probe.build.ports
    fabric = grid((6, 5), True, dim_ports=(2, 2))
    levels = [{"mask": 0x38, "value": 0x08, "shift": 0}, {"mask": 0x20, "value": 0, "shift": 3}]
    tables: dict[int, dict[tuple[int, int], dict[str, int]]] = {port: {} for port in ports}

    async def write(word: int) -> None:
        dut.table__payload.value, dut.table__valid.value = word, 1
        await bench.cycles(1)
        dut.table__valid.value = 0

    for number, level in enumerate(levels):
        await write(level_write(number, **level))
        for index in range(1 << params.table_bits):
            for port in rng.sample((*ports, None), len(ports) + 1):
                entry = {"port": rng.randrange(params.ports), "lane": rng.randrange(2),
                         "fixed": rng.randrange(2)}
                await write(entry_write(number, index, input_port=port, **entry))
                for key in ports if port is None else (port,):
                    tables[key][number, index] = entry
    matched = 0
    for node in fabric.nodes:
        await probe.place(node, fabric.dims)
        for dst, rail in itertools.product(fabric.nodes, range(2)):
            src = rng.choice(fabric.nodes)

            def expect(port: int, lane: int, node=node, dst=dst, src=src, rail=rail):
                nonlocal matched
                hop = table_route(node, dst, port, lane, rail, levels, tables[port],
                                  table_bits=params.table_bits, links=params.links)
                if hop is None:
                    return *route(node, dst, src, port, lane, rail, fabric.dims, dim_ports=(2, 2),
                                  rails=params.rails), ()
                matched += 1
                return _rails(params, hop[0]), hop[1][spread(src, dst, len(hop[1]))], ()

            await probe.compare(expect, dst=dst, src=src, rail=rail, path=0)
    assert 1000 < matched < probe.checked - 500


def test_routes_in_hardware_equal_their_models() -> None:
    run_bench(elaborated(RouteBlocks), __name__)
