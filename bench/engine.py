"""What the engine itself costs, apart from the tiles it evaluates: ``python -m bench.engine``."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from emu.build import Progress
from emu.emulator import EngineBackend
from hdl.params import CardParams, preset
from hdl.topology import Topology, parse

__all__ = ["Overhead", "measure_overhead"]


@dataclass(frozen=True)
class Overhead:
    """Processor time in nanoseconds."""

    #: Of a card-cycle in which both tiles are evaluated.
    stepped_ns: float
    #: The two evaluations in it.
    tiles_ns: float
    #: Of a card-window in which nothing is evaluated, while other cards are busy.
    skipped_window_ns: float

    @property
    def engine_ns(self) -> float:
        """Of a stepped card-cycle without the evaluations: pins, memory, channels, bookkeeping."""
        return self.stepped_ns - self.tiles_ns


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


def _spend(backend: EngineBackend, cycles: int) -> float:
    start = time.process_time_ns()
    backend.advance(cycles)
    return time.process_time_ns() - start


def main() -> None:
    """Print what the default card costs on a ring of 8."""
    overhead = measure_overhead(parse("ring:8"), preset("default"), cycles=5000,
                                progress=lambda line: print(line, file=sys.stderr))
    print(f"stepped card-cycle   {overhead.stepped_ns:8.1f} ns\n"
          f"  tile evaluations   {overhead.tiles_ns:8.1f} ns\n"
          f"  engine             {overhead.engine_ns:8.1f} ns\n"
          f"skipped card-window  {overhead.skipped_window_ns:8.1f} ns, at most")


if __name__ == "__main__":
    main()
