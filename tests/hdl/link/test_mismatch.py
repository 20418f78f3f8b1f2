"""Ends that are built differently report it, both of them, and stay down until they are reset."""

from dataclasses import replace

import cocotb
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS, LinkFault
from hdl.link.link import LinkEndpoint
from hdl.params import LinkParams
from tests.bench import Bench, elaborated, run_bench

BASE = LinkParams(flit_bytes=16, latency=1, vc_depth=8, seq_bits=6, refresh=16, reliable=True)
#: Words of equal and of unequal layout, up to where even the strobe is elsewhere.
OTHERS = {
    "depth": replace(BASE, vc_depth=9),
    "deeper": replace(BASE, vc_depth=300, seq_bits=7),
    "wide": replace(BASE, flit_bytes=32),
}


class OddPairs(wiring.Component):
    """An end of ``BASE`` against each of ``OTHERS``; words are cut off or filled with zeros."""

    def __init__(self) -> None:
        members = {"now": In(CYCLE_BITS)}
        for name in OTHERS:
            members |= {f"{name}_{end}_{port}": Out(shape) for end in "ab" for port, shape in
                        (("down", 1), ("fault", LinkFault), ("open", 1), ("idle", 1))}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, params in OTHERS.items():
            ends = {"a": LinkEndpoint(BASE), "b": LinkEndpoint(params)}
            for end, endpoint in ends.items():
                m.submodules[f"{name}_{end}"] = endpoint
                m.d.comb += [
                    endpoint.now.eq(self.now),
                    endpoint.drained.eq(1),
                    endpoint.link.up.eq(1),
                    getattr(self, f"{name}_{end}_open").eq(endpoint.available.any()),
                    *(getattr(self, f"{name}_{end}_{port}").eq(getattr(endpoint, port))
                      for port in ("down", "fault", "idle")),
                ]
            for source, target in ("ab", "ba"):
                word = Signal(ends[source].link.tx.shape().size, name=f"{name}_{source}_word")
                m.d.sync += word.eq(ends[source].link.tx)
                m.d.comb += ends[target].link.rx.eq(word)
        return m


@cocotb.test()
async def both_ends_report_the_mismatch(dut):
    bench = Bench(dut)
    bench.on_drive(lambda: setattr(dut.now, "value", bench.cycle))
    await bench.start()
    for cycles in (60, 600):
        await bench.cycles(cycles)
        for name in OTHERS:
            for end in "ab":
                down, fault, open_ = (int(getattr(dut, f"{name}_{end}_{port}").value)
                                      for port in ("down", "fault", "open"))
                assert (down, fault, open_) == (1, LinkFault.MISMATCH.value, 0), \
                    f"{name}, end {end}"


def test_ends_that_are_built_differently_report_it() -> None:
    run_bench(elaborated(OddPairs), __name__)
