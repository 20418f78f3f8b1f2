"""``supernode traffic``: synthetic load on a network, one point or a load–latency curve."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from .errors import Failure, usage
from .faults import faults, link_options, reliable
from .meter import meter
from .observe import Observation, links_options
from .options import common, run_ranks, scale_options
from .output import OUTPUT, OutputFile, Screen
from .plan import Plan, Workload
from .profile import Timeline, profile_option, profile_values, tell_profile
from .status import status_line
from .waves import tell_waves, waves_options
from .waves import waves as wanted_waves

if TYPE_CHECKING:
    from emu.kinds import NodeKind
    from emu.traffic import Curve, Result
    from emu.traffic.setup import Sizes

__all__ = ["traffic"]

_COLUMNS = ("offered", "accepted", "accepted_min", "latency_mean", "latency_p50", "latency_p99",
            "latency_max", "hops_mean", "delivered", "lost", "duplicated", "outcome")


@click.command(cls=Workload)
@click.option("--topology", required=True, metavar="SPEC",
              help="Nodes and links, e.g. ring:8, mesh:8x8, torus:4x4x4.")
@click.option("--pattern", default="uniform", show_default=True, metavar="NAME",
              help="Who sends to whom; BookSim's patterns, and incast.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="R",
              help="Load in flits per node and cycle; with --sweep, the highest (1 by default).")
@click.option("--cycles", type=click.IntRange(1), metavar="N",
              help="Measure for so many cycles, whatever they give; by default until latency and "
              "accepted rate keep still, as BookSim does.")
@click.option("--packet-flits", default="1", show_default=True, metavar="N[:WEIGHT],…",
              help="Flits of a packet, or up to four sizes with weights: 1:9,16:1.")
@click.option("--sweep", is_flag=True, help="Measure rates from low to saturation.")
@click.option("--resolution", type=click.FloatRange(0.001, 0.05), default=0.01, show_default=True,
              metavar="R", help="Of the saturation rate in a sweep.")
@click.option("--adaptive/--deterministic", default=None,
              help="Minimal adaptive routing, or dimension order; by default the preset's.")
@click.option("--csv", type=OUTPUT, metavar="FILE", help="Write the table as CSV.")
@click.option("--svg", type=OUTPUT, metavar="FILE",
              help="Plot the curve of a sweep; needs matplotlib.")
@link_options
@waves_options
@profile_option
@links_options
@scale_options
@common
def traffic(topology: str, pattern: str, rate: float | None, cycles: int | None,
            packet_flits: str, sweep: bool, resolution: float, adaptive: bool | None,
            csv: OutputFile | None, svg: OutputFile | None, link: str | None, ber: float,
            fail: Sequence[str], waves: str | None, waves_dir: str, profile: bool, links: Any,
            heatmap: OutputFile | None, threads: int | None, lanes: int | None,
            ranks: int | None, preset: str, seed: int, json_output: Any) -> Plan:
    """Load a network with synthetic traffic: verified packets, latency and accepted rate."""
    from emu import traffic as load
    from emu.traffic.measure import Method
    from hdl import topology as topologies
    from hdl.params import preset as find_preset

    screen = Screen(json_output)
    if rate is None and not sweep:
        raise click.UsageError("missing option '--rate': accepted is a rate, or --sweep")
    if svg is not None and not sweep:
        raise click.BadParameter("there is no curve to plot: accepted with --sweep",
                                 param_hint="--svg")
    for option, given in (("--waves", waves is not None), ("--profile", profile),
                          ("--links", links is not None), ("--heatmap", heatmap is not None)):
        if given and sweep:
            raise click.BadParameter("a sweep is many runs: accepted without --sweep",
                                     param_hint=option)
    with usage("--topology"):
        shape = topologies.parse(topology)
    shown = wanted_waves(waves, waves_dir, shape)
    broken = faults(shape, ber, fail)
    card = find_preset(preset)
    wanted = reliable(link, ber, broken.outages)
    if wanted is not None:
        card = replace(card, router=replace(card.router, link=replace(card.link,
                                                                      reliable=wanted)))
    with usage("--topology"):
        params = load.traffic_params(shape, card, adaptive=adaptive)
    with usage("--pattern"):
        flows = load.parse_pattern(pattern, shape, seed)
    with usage("--packet-flits"):
        sizes = _sizes(packet_flits)
        sizes.check(params.link)
    with usage("--cycles"):
        method = Method(cycles=cycles)
    with usage("--rate"):
        highest = load.Load(flows, rate or 1.0, sizes, seed).rate
        load.Load(flows, highest, sizes, seed).probability  # noqa: B018 - refuses it here
    if svg is not None:
        from emu.traffic.plot import require_matplotlib

        with usage("--svg"):
            require_matplotlib()

    title = f"{pattern} on {topology}, preset {preset}"
    observation = Observation(screen, title, links=links, heatmap=heatmap)

    def kinds() -> Sequence[NodeKind]:
        with usage():
            return load.network_kinds(shape, params, card)

    timeline, profiles = Timeline(), list[dict[str, Any]]()

    def measure(offered: float) -> Result:
        timeline.begin()
        with usage(), status_line(f"starting {title}") as progress:
            network = load.TrafficNetwork(shape, params, card, seed=seed, faults=broken,
                                          threads=threads, lanes=lanes, waves=shown,
                                          profile=profile, event_log=observation.kinds,
                                          progress=progress)
        try:
            with tell_waves(screen, shown, lambda: network.fabric), \
                    observation.of(lambda: network.fabric, shape, card.clock_ghz), \
                    meter(title, lambda: network.fabric) as live:
                live.expect(method.planned, "about")
                if profile:
                    timeline.close("build", network.fabric)
                result = load.measure(
                    network, load.Load(flows, offered, sizes, seed), method,
                    progress=lambda doing: live.rename(f"{title}, rate {offered:g}: {doing}"))
            if profile:
                timeline.close("python", network.fabric)
                profiles.append(profile_values(timeline, network.fabric,
                                               {"cycles_per_s": result.cycles_per_s}))
            return result
        finally:
            network.close()

    def run() -> None:
        run_ranks(ranks)
        curve = load.sweep(measure, resolution=resolution, highest=highest) if sweep else None
        results = list(curve.points) if curve else [measure(highest)]
        points = [_keys(topology, pattern, result) for result in results]
        screen.table(title, [column.replace("_", " ") for column in _COLUMNS],
                     [[_cell(point[column]) for column in _COLUMNS] for point in points])
        if csv is not None:
            csv.write("".join(",".join("" if cell is None else str(cell) for cell in row) + "\n"
                              for row in (_COLUMNS, *([point[column] for column in _COLUMNS]
                                                      for point in points))))
            screen.line(f"{csv.path}: table")
        if curve:
            _tell_curve(screen, curve, title, svg)
            screen.result({"topology": topology, "pattern": pattern, "preset": preset,
                           "saturation": curve.saturation, "peak": curve.peak, "points": points})
        else:
            (result,), (point,) = results, points
            _tell(screen, result)
            for values in profiles:
                tell_profile(screen, values)
            screen.result({**point, "preset": preset,
                           **({"profile": profiles[0]} if profiles else {}),
                           **observation.figures()})
        _judge(results)

    return Plan(kinds, run)


def _sizes(text: str) -> Sizes:
    """``1:9,16:1`` as a mix of packet sizes."""
    from emu.traffic.setup import Sizes

    parts = [re.fullmatch(r"(\d+)(?::(\d+(?:\.\d+)?))?", part) for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{text!r} is no packet size: accepted are flits, or sizes with weights "
                         "as in 1:9,16:1")
    found = [part for part in parts if part is not None]
    return Sizes(tuple(int(part[1]) for part in found),
                 tuple(float(part[2] or 1) for part in found))


def _keys(topology: str, pattern: str, result: Result) -> dict[str, Any]:
    """The JSON of one point."""
    return {
        "topology": topology, "pattern": pattern, "offered": result.offered,
        "accepted": result.accepted, "accepted_min": result.accepted_min,
        "latency_mean": result.latency_mean, "latency_p50": result.latency_p50,
        "latency_p99": result.latency_p99, "latency_max": result.latency_max,
        "hops_mean": result.hops_mean, "delivered": result.delivered, "lost": result.lost,
        "duplicated": result.duplicated, "cycles_per_s": result.cycles_per_s,
        "outcome": result.outcome.value, "verified": result.verified, "sent": result.sent,
        "measured": result.measured, **result.faulty, "cycles": result.cycles,
        "measured_cycles": result.measured_cycles, "wall_s": result.wall_s,
        "victims": result.victims}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(
        value, int) else str(value)


def _tell_curve(screen: Screen, curve: Curve, title: str, svg: OutputFile | None) -> None:
    """What the table of a curve does not say, and its plot."""
    screen.line(f"saturation: {_cell(curve.saturation)} flits per node and cycle; most accepted: "
                f"{curve.peak:.3f}; at the highest rate: {curve.overload.accepted:.3f}")
    if svg is not None:
        from emu.traffic.plot import plot

        svg.write(plot({title: curve}))
        screen.line(f"{svg.path}: plot")


def _tell(screen: Screen, result: Result) -> None:
    """What the table of one point has no room for."""
    if result.victims is not None:
        screen.line("flows to other nodes than the hot ones: " + ", ".join(
            f"{name.replace('_', ' ')} {_cell(value)}" for name, value in result.victims.items()))
    screen.line(f"{result.sent:,} packets sent, {result.measured:,} of them measured; "
                f"{result.cycles:,} cycles, {result.cycles_per_s:,.0f} per second")


def _judge(results: Sequence[Result]) -> None:
    """Fail if a run did not deliver what it should."""
    for result in results:
        if result.outcome.value == "no progress":
            raise Failure(f"no progress at rate {result.offered:g}: "
                          f"{result.sent - result.delivered:,} packets are in the network and none "
                          "arrives any more")
        if not result.verified:
            wrong = {"lost": result.lost, "duplicated": result.duplicated, **result.faulty}
            raise Failure(f"not all packets arrived as they should at rate {result.offered:g}: "
                          + (", ".join(f"{count:,} {name}" for name, count in wrong.items()
                                       if count) or "their names differ"))
