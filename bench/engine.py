"""What the engine itself costs, apart from the tiles it evaluates: ``python -m bench.engine``."""

import sys
import time
from dataclasses import dataclass, replace

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from emu.build import Progress
from emu.emulator import EngineBackend
from emu.fabric import Fabric
from emu.kinds import NodeKind
from hdl.layouts import CYCLE_BITS
from hdl.params import CardParams, SwitchParams, preset
from hdl.ports import SwitchSignature
from hdl.topology import Topology, parse

__all__ = ["Overhead", "measure_overhead", "measure_words"]


@dataclass(frozen=True)
class Overhead:
    """Processor time in nanoseconds."""

    #: Of a node-cycle in which all tiles are evaluated.
    stepped_ns: float
    #: The evaluations in it.
    tiles_ns: float
    #: Of a node-window in which nothing is evaluated, while other nodes are busy.
    skipped_window_ns: float = 0.0

    @property
    def engine_ns(self) -> float:
        """Of a stepped node-cycle without the evaluations: pins, memory, links, bookkeeping."""
        return self.stepped_ns - self.tiles_ns


class CirculatingTile(wiring.Component):
    """Sends on each port what came by the port across, in the next cycle, and a first flit."""

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(SwitchSignature(params))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        first = Signal(2, init=3)
        m.d.sync += first.eq(first >> 1)
        for port, link in enumerate(self.links):
            m.d.sync += link.tx.eq(self.links[port ^ 1].rx)
            with m.If(first.any()):
                m.d.sync += [link.tx.strobe.eq(1), link.tx.valid.eq(1)]
        m.d.comb += self.wake.eq((1 << CYCLE_BITS) - 1)
        return m


def measure_overhead(topology: Topology, params: CardParams, *,
                     cycles: int = 50_000, progress: Progress | None = None) -> Overhead:
    """Measure a machine at rest, once evaluating every card in every cycle and once skipping."""
    eager = EngineBackend(topology, params, skip_idle=False, memory_bytes=1 << 20,
                          progress=progress)
    eager.advance(1000)
    stepped = _spend(eager, cycles) / (cycles * topology.cards)
    network_ns, compute_ns = eager.evaluation_ns()
    eager.close()

    # One register write per quantum keeps the fabric from being skipped as a whole. Its cost and
    # that of the call count too: the figure is an upper bound that tightens with more cards.
    lazy = EngineBackend(topology, params, memory_bytes=1 << 20, progress=progress)
    lazy.advance(1000)
    quanta = max(1, cycles // params.host_quantum)
    start = time.process_time_ns()
    for _ in range(quanta):
        lazy.register_write(0, 0, 0)
        lazy.advance(1)
    spent = time.process_time_ns() - start
    windows = quanta * -(-params.host_quantum // params.link.latency) * topology.cards
    lazy.close()
    return Overhead(stepped_ns=stepped, tiles_ns=network_ns + compute_ns,
                    skipped_window_ns=spent / windows)


def measure_words(topology: Topology, params: CardParams, *, cycles: int = 20_000,
                  progress: Progress | None = None) -> Overhead:
    """Measure nodes of one small tile whose links have a latency of one cycle, each carrying a word
    in every cycle."""
    link = replace(params.link, latency=1)
    kind = NodeKind("switch", (("circulating", CirculatingTile),),
                    SwitchParams(link=link, radix=sum(topology.dim_ports)))
    fabric = Fabric([kind] * topology.cards, topology.links, latency=[1] * len(topology.links),
                    progress=progress)
    fabric.start()
    fabric.advance(1000)
    stepped = _spend(fabric, cycles) / (cycles * topology.cards)
    words = min(each.words for each in fabric.link_statistics())
    if words < fabric.cycle - 8:
        raise RuntimeError(f"a link has carried {words} words in {fabric.cycle} cycles")
    start = time.process_time_ns()
    fabric.exercise(0, cycles)
    tile = (time.process_time_ns() - start) / (cycles * topology.cards)
    fabric.close()
    return Overhead(stepped_ns=stepped, tiles_ns=tile)


def _spend(machine: EngineBackend | Fabric, cycles: int) -> float:
    start = time.process_time_ns()
    machine.advance(cycles)
    return time.process_time_ns() - start


def main() -> None:
    """Print what the default card costs on a ring of 8, and words on a torus of 64 nodes."""
    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    params = preset("default")
    cards = measure_overhead(parse("ring:8"), params, cycles=5000, progress=progress)
    words = measure_words(parse("torus:4x4x4"), params, progress=progress)
    print(f"cards at rest, links of {params.link.latency} cycles\n"
          f"  stepped card-cycle   {cards.stepped_ns:8.1f} ns\n"
          f"    tile evaluations   {cards.tiles_ns:8.1f} ns\n"
          f"    engine             {cards.engine_ns:8.1f} ns\n"
          f"  skipped card-window  {cards.skipped_window_ns:8.1f} ns, at most\n"
          f"nodes with six words per cycle, links of 1 cycle\n"
          f"  stepped node-cycle   {words.stepped_ns:8.1f} ns\n"
          f"    tile evaluation    {words.tiles_ns:8.1f} ns\n"
          f"    engine             {words.engine_ns:8.1f} ns")


if __name__ == "__main__":
    main()
