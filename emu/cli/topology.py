"""``supernode topology``: what a fabric is made of, and that its routes cannot deadlock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .errors import Failure, usage
from .options import common
from .output import OUTPUT, OutputFile, Screen

if TYPE_CHECKING:
    from hdl.topology import Topology

__all__ = ["topology"]

#: Bytes per card of the AllReduce whose bound is told.
ALLREDUCE_BYTES = 1 << 20
#: Cards that the table names of a ring order.
NAMED_CARDS = 8


@click.command()
@click.argument("spec")
@click.option("--svg", "drawing", type=OUTPUT, metavar="FILE",
              help="Draw it; drawings hold up to 1,024 cards.")
@common
def topology(spec: str, drawing: OutputFile | None, json_output: Any, seed: int,
             preset: str) -> None:
    """Describe a topology, e.g. ring:8, mesh:4x4, torus:16x16x32, and check it for deadlock."""
    from hdl import topology as topologies
    from hdl.params import preset as find_preset
    from hdl.topology.drawing import draw

    screen = Screen(json_output)
    params = find_preset(preset)
    with usage("SPEC"):
        shape = topologies.parse(spec)
        # Refuses what the preset's routers cannot serve.
        shape.dims(0, params.router.dims)
    svg = None
    if drawing is not None:
        if drawing.path == getattr(json_output, "path", None):
            raise click.BadParameter(f"{str(drawing.path)!r} is where the JSON goes: accepted is "
                                     "any other file", param_hint="--svg")
        with usage("--svg"):
            svg = draw(shape)
    try:
        topologies.check_deadlock_free(shape, params.link, rails=params.rails)
        deadlock = None
    except topologies.DeadlockError as error:
        deadlock = error

    links = len(shape.links)
    bandwidth = shape.bisection * params.link.flit_bytes * params.clock_ghz
    bound = topologies.allreduce_bound(shape, params, range(shape.cards), ALLREDUCE_BYTES)
    screen.table(
        f"{spec}, preset {preset}", ("", ""),
        [("cards", f"{shape.cards:,}"),
         ("switches", f"{shape.switches:,}"),
         ("links", f"{links:,}"),
         ("diameter, hops", f"{shape.diameter:,}"),
         ("mean hops", f"{shape.hops_mean:.3f}"),
         ("bisection, links", f"{shape.bisection:,}"),
         ("bisection, GB/s per direction", f"{bandwidth:,.2f}"),
         ("deadlock free", "NO" if deadlock else "yes"),
         ("ring order", _ring_order(shape)),
         *((f"1 MiB AllReduce, {name}, cycles", f"{cycles:,}")
           for name, cycles in bound.terms.items()),
         ("1 MiB AllReduce, bound, cycles", f"{bound.cycles:,} ({bound.limit})")])
    if drawing is not None and svg is not None:
        drawing.write(svg)
        screen.line(f"{drawing.path}: drawing of {spec}")
    screen.result({
        "topology": spec, "cards": shape.cards, "switches": shape.switches, "links": links,
        "diameter": shape.diameter, "hops_mean": shape.hops_mean, "bisection": shape.bisection,
        "deadlock_free": deadlock is None})
    if deadlock is not None:
        raise Failure(str(deadlock))


def _ring_order(shape: Topology) -> str:
    order = shape.ring_order()
    names = ", ".join(map(str, order[:NAMED_CARDS])) + ", ..." * (len(order) > NAMED_CARDS)
    steps = [shape.hops(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    far = [step for step in steps if step > 1]
    if not far:
        return f"{names}: neighbours throughout"
    return f"{names}: {len(far):,} of {len(steps):,} steps go further, up to {max(far):,} hops"
