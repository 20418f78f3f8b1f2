"""``supernode topology``: what a fabric is made of, and that its routes cannot deadlock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .errors import Failure, usage
from .options import common
from .output import OUTPUT, OutputFile, Screen
from .status import status_line

if TYPE_CHECKING:
    from hdl.params import CardParams
    from hdl.topology import Tiered

__all__ = ["topology"]

#: Bytes per card of the AllReduce whose bound is told.
ALLREDUCE_BYTES = 1 << 20
#: Cards that the table names of a ring order.
NAMED_CARDS = 8
#: A credit's round trip between routers, beyond two flights.
CREDIT_CYCLES = 6


@click.command()
@click.argument("spec")
@click.option("--svg", "drawing", type=OUTPUT, metavar="FILE",
              help="Draw it; drawings hold up to 1,024 nodes.")
@click.option("--links", "tiers", is_flag=True, help="Tell the links of each tier.")
@click.option("--route", type=int, nargs=2, metavar="FROM TO",
              help="Tell the way from one card to another.")
@click.option("--adaptive", is_flag=True,
              help="Routers are adaptive: check their escape channels.")
@common
def topology(spec: str, drawing: OutputFile | None, tiers: bool, route: tuple[int, int] | None,
             adaptive: bool, json_output: Any, seed: int, preset: str) -> None:
    """Describe a topology and check it for deadlock.

    ring:8, mesh:4x4, torus:16x16x32, fullmesh:8x8, ubmesh:8x8x4x4, clos:48x2, and tiers in general:
    tiers:crossbar48,fullmesh8,switch21. docs/topology.md has all forms.
    """
    from hdl import topology as topologies
    from hdl.params import preset as find_preset
    from hdl.topology.drawing import draw

    screen = Screen(json_output)
    with usage("SPEC"):
        shape = topologies.parse(spec)
        params = shape.card(find_preset(preset))
    svg = None
    if drawing is not None:
        if drawing.path == getattr(json_output, "path", None):
            raise click.BadParameter(f"{str(drawing.path)!r} is where the JSON goes: accepted is "
                                     "any other file", param_hint="--svg")
        with usage("--svg"):
            svg = draw(shape)
    if route is not None:
        with usage("--route"):
            for card in route:
                shape.check_rank(card)
    adaptive = adaptive or params.router.adaptive
    if adaptive:
        from hdl.fabric.adaptive import check_lanes
        with usage("--adaptive"):
            check_lanes(params.link.vcs_per_class)
    with status_line(f"looking for cycles of channels in {spec}"):
        try:
            topologies.check_deadlock_free(shape, params.link, rails=params.rails,
                                           adaptive=adaptive)
            deadlock = None
        except topologies.DeadlockError as error:
            deadlock = error
    with status_line(f"measuring {spec}"):
        figures = _figures(shape, params, deadlock is None)

    screen.table(f"{spec}, preset {preset}", ("", ""), figures)
    result = {
        "topology": spec, "cards": shape.cards, "switches": shape.switches,
        "links": len(shape.links), "diameter": shape.diameter, "hops_mean": shape.hops_mean,
        "bisection": shape.bisection, "deadlock_free": deadlock is None}
    if tiers:
        result["tiers"] = _tiers(shape, params, screen)
    if route is not None:
        result["route"] = _route(shape, params, route, screen)
    if drawing is not None and svg is not None:
        drawing.write(svg)
        screen.line(f"{drawing.path}: drawing of {spec}")
    screen.result(result)
    if deadlock is not None:
        raise Failure(str(deadlock))


def _figures(shape: Tiered, params: CardParams, deadlock_free: bool) -> list[tuple[str, str]]:
    from hdl.topology import allreduce_bound

    bound = allreduce_bound(shape, params, range(shape.cards), ALLREDUCE_BYTES)
    bandwidth = shape.bisection * params.link.flit_bytes * params.clock_ghz
    known = "" if shape.bisection_proof else " (narrowest known)"
    switch = [("ports of a switch", str(shape.switch(params).radix))] if shape.switches else []
    return [
        ("cards", f"{shape.cards:,}"),
        ("switches", f"{shape.switches:,}"),
        *switch,
        ("link ports of a card", str(sum(shape.dim_ports))),
        ("links", f"{len(shape.links):,}"),
        ("diameter, hops", f"{shape.diameter:,}"),
        ("mean hops", f"{shape.hops_mean:.3f}"),
        ("bisection, links", f"{shape.bisection:,}{known}"),
        ("bisection, GB/s per direction", f"{bandwidth:,.2f}"),
        ("deadlock free", "yes" if deadlock_free else "NO"),
        ("ring order", _ring_order(shape)),
        *((f"1 MiB AllReduce, {name}, cycles", f"{cycles:,}")
          for name, cycles in bound.terms.items()),
        ("1 MiB AllReduce, bound, cycles", f"{bound.cycles:,} ({bound.limit})")]


def _ring_order(shape: Tiered) -> str:
    order = shape.ring_order()
    names = ", ".join(map(str, order[:NAMED_CARDS])) + ", ..." * (len(order) > NAMED_CARDS)
    steps = [shape.hops(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    far = [step for step in steps if step > 1]
    if not far:
        return f"{names}: neighbours throughout"
    return f"{names}: {len(far):,} of {len(steps):,} steps go further, up to {max(far):,} hops"


def _tiers(shape: Tiered, params: CardParams, screen: Screen) -> list[dict[str, Any]]:
    counts = [0] * len(shape.tiers)
    for link in shape.links:
        counts[link.tier] += 1
    found = []
    for number, (tier, links) in enumerate(zip(shape.tiers, counts, strict=True), 1):
        latency = params.link.latency if tier.latency is None else tier.latency
        found.append({"tier": number, "kind": tier.kind.value, "size": tier.size, "links": links,
                      "width": tier.width, "latency": latency,
                      "vc_depth": 2 * latency + CREDIT_CYCLES})
    screen.table("tiers, innermost first",
                 ("tier", "links", "parallel", "latency, cycles", "VC depth for full rate"),
                 [(f"{each['tier']} {each['kind']}{each['size']}", f"{each['links']:,}",
                   str(each["width"]), str(each["latency"]), str(each["vc_depth"]))
                  for each in found])
    return found


def _route(shape: Tiered, params: CardParams, ends: tuple[int, int],
           screen: Screen) -> list[dict[str, Any]]:
    from hdl.topology.routes import Routes

    found: list[dict[str, Any]] = []
    total = 0
    for hop in Routes(shape, lanes=params.link.vcs_per_class).way(*ends):
        link = hop.link
        cycles = shape.link_cycles(link, params.link.latency)
        total += cycles
        found.append({"link": shape.link_name(link), "to": shape.node_name(link.target),
                      "tier": link.tier + 1, "lanes": list(hop.lanes), "cycles": cycles})
    screen.table(f"route from card {ends[0]} to card {ends[1]}, {len(found)} hops, {total} cycles",
                 ("link", "to", "tier", "lanes", "cycles, node and link"),
                 [(each["link"], each["to"], str(each["tier"]),
                   ", ".join(map(str, each["lanes"])), str(each["cycles"])) for each in found])
    return found
