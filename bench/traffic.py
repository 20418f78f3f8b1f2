"""Load–latency curves of the networks that BookSim's users know, and BookSim 2 beside them.

``python -m bench traffic traffic-adaptive traffic-speed`` measures mesh and torus 8×8 with preset
``booksim`` and packets of one flit. With the environment variable ``BOOKSIM`` naming a BookSim 2
binary, it is run on the same networks: 4 VCs of 8 flits, dimension order, links of one cycle, and
routers of three cycles (``routing_delay`` 0).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emu.traffic import Curve, Load, Result, TrafficNetwork, measure, parse_pattern, sweep
from emu.traffic import traffic_params as node_params
from emu.traffic.measure import Method
from emu.traffic.plot import plot
from hdl.params import preset
from hdl.topology import parse

__all__ = ["adaptive_rows", "speed_rows", "traffic_rows"]

PRESET = "booksim"
NETWORKS = ("mesh:8x8", "torus:8x8")
PATTERNS = ("uniform", "transpose", "tornado", "bitcomp")
#: A load at which packets hardly meet.
LOW = 0.01
RESOLUTION = 0.01
#: The point at which speed is measured, and cycles of the measurement.
SPEED_RATE, SPEED_CYCLES = 0.2, 50_000
DOCS = Path(__file__).resolve().parent.parent / "docs"

_ROUTING = {"mesh": "dor", "torus": "dim_order"}


@dataclass(frozen=True)
class Theirs:
    """One run of BookSim."""

    #: It settled as ours must: three samples in a row that change by less than 5 %.
    converged: bool
    latency: float
    hops: float
    cycles: int
    seconds: float


def ours(network: str, pattern: str, rate: float, method: Method | None = None, *,
         adaptive: bool = False) -> Result:
    """Measure one point on a fresh network.

    Raises
    ------
    RuntimeError
        If not every packet arrived as it should.
    """
    shape, card = parse(network), preset(PRESET)
    fabric = TrafficNetwork(shape, node_params(shape, card, adaptive=adaptive), card)
    try:
        result = measure(fabric, Load(parse_pattern(pattern, shape), rate), method)
    finally:
        fabric.close()
    if not result.verified:
        raise RuntimeError(f"{pattern} on {network} at {rate}: {result}")
    return result


def booksim() -> str | None:
    """The BookSim 2 binary to compare with, if there is one."""
    return os.environ.get("BOOKSIM") or None


def theirs(program: str, network: str, pattern: str, rate: float) -> Theirs:
    """Run BookSim at one point."""
    kind, sizes = network.split(":")
    link = preset(PRESET).link
    options = {
        "topology": kind, "k": sizes.split("x")[0], "n": sizes.count("x") + 1,
        "routing_function": _ROUTING[kind], "num_vcs": link.vcs, "vc_buf_size": link.vc_depth,
        "use_noc_latency": 0, "routing_delay": 0, "traffic": pattern, "packet_size": 1,
        "sim_type": "latency", "injection_rate": rate}
    with tempfile.TemporaryDirectory(prefix="booksim-") as folder:
        config = Path(folder) / "config"
        config.write_text("".join(f"{key} = {value};\n" for key, value in options.items()))
        before = os.times().children_user
        run = subprocess.run([program, config], stdout=subprocess.PIPE, text=True, check=False)
        spent = os.times().children_user - before
    figures = run.stdout.rpartition("Overall Traffic Statistics")
    changes = [float(change) for change in
               re.findall(r"(?:latency|throughput) change\s+= (\S+)", run.stdout)]
    converged = bool(figures[1]) and max(changes[-6:]) < 0.05

    def number(pattern: str, text: str) -> float:
        found = re.search(pattern, text)
        return float(found[1]) if found else float("nan")
    return Theirs(converged, number(r"Packet latency average = (\S+)", figures[2]),
                  number(r"Hops average = (\S+)", figures[2]) - 1,
                  int(number(r"Time taken is (\d+) cycles", run.stdout)) if converged else 0, spent)


def saturation(converges: Callable[[float], bool]) -> float:
    """The highest rate of the sweep's grid that converges, by halving."""
    low, high = 0, round(1 / RESOLUTION) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if converges(round(middle * RESOLUTION, 6)):
            low = middle
        else:
            high = middle
    return low * RESOLUTION


def traffic_rows() -> Iterator[list[object]]:
    """Zero-load latency and saturation of every network and pattern; curves go to docs/."""
    program = booksim()
    yield ["network", "pattern", "hops", "latency at 0.01", "saturation", "most accepted",
           "accepted at 1.0", *(["BookSim: hops", "latency at 0.01", "saturation"]
                                if program else [])]
    for network in NETWORKS:
        curves: dict[str, Curve] = {}
        for pattern in PATTERNS:
            low = ours(network, pattern, LOW, Method(cycles=20_000))
            curve = curves[pattern] = sweep(lambda rate, network=network, pattern=pattern: ours(
                network, pattern, rate), resolution=RESOLUTION)
            row: list[object] = [f"`{network}`", pattern, low.hops_mean, low.latency_mean,
                                 curve.saturation, curve.peak, curve.overload.accepted]
            if program:
                point = theirs(program, network, pattern, LOW)
                row += [point.hops, point.latency, saturation(
                    lambda rate, network=network, pattern=pattern: theirs(
                        program, network, pattern, rate).converged)]
            yield row
        drawing = DOCS / f"traffic-{network.partition(':')[0]}.svg"
        drawing.write_text(plot(curves))


def adaptive_rows() -> Iterator[list[object]]:
    """Saturation of minimal adaptive routing beside that of dimension order."""
    yield ["network", "pattern", "dimension order", "adaptive", "ratio"]
    for network, pattern in (("torus:8x8", "transpose"), ("torus:8x8", "tornado")):
        fixed, free = (sweep(lambda rate, adaptive=adaptive, network=network, pattern=pattern: ours(
            network, pattern, rate, adaptive=adaptive), resolution=RESOLUTION).saturation or 0.0
            for adaptive in (False, True))
        yield [f"`{network}`", pattern, fixed, free, free / fixed if fixed else None]


def speed_rows() -> Iterator[list[object]]:
    """Simulated cycles per second of one thread, by processor time."""
    yield ["simulator", "network", "cycles", "seconds", "cycles per second"]
    program = booksim()
    for network in NETWORKS:
        ours(network, "uniform", SPEED_RATE)  # builds the models
        shape, card = parse(network), preset(PRESET)
        fabric = TrafficNetwork(shape, node_params(shape, card), card)
        fabric.load(Load(parse_pattern("uniform", shape), SPEED_RATE), measure_from=3000)
        fabric.advance_to(5000)
        start = time.process_time()
        fabric.advance_to(5000 + SPEED_CYCLES)
        seconds = time.process_time() - start
        fabric.close()
        yield ["this", f"`{network}`", SPEED_CYCLES, seconds, SPEED_CYCLES / seconds]
        if program:
            run = theirs(program, network, "uniform", SPEED_RATE)
            yield ["BookSim 2", f"`{network}`", run.cycles, run.seconds, run.cycles / run.seconds]


def main() -> None:
    """Print the speed alone."""
    for row in speed_rows():
        print(*row, sep="\t", file=sys.stdout)


if __name__ == "__main__":
    main()
