"""``supernode run p2p``: one card writes into another card's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from drivers.dtypes import DTYPES

from ..shards import LANES_FROM
from .checkpoints import checkpoint_options
from .errors import usage
from .machine import Machine, machine_options, timeout
from .options import SIZE, choose, elements
from .plan import Plan, Workload
from .report import Figures, report
from .verdict import compare

if TYPE_CHECKING:
    from drivers.supernode import SuperNode

__all__ = ["p2p"]

DTYPE_NAMES = tuple(name for name in DTYPES if name != "u8")


@click.command(cls=Workload)
@click.option("--bytes", "size", type=SIZE, default="1M", show_default=True, metavar="SIZE",
              help="Bytes to write.")
@click.option("--dtype", default="f32", show_default=True, metavar=f"{{{','.join(DTYPE_NAMES)}}}",
              help="Type of the elements; it changes nothing but what --bytes must divide by.")
@click.option("--source", type=int, default=0, show_default=True, metavar="CARD",
              help="Card that writes.")
@click.option("--target", type=int, metavar="CARD", show_default="the last one",
              help="Card that is written to.")
@machine_options()
@checkpoint_options
def p2p(size: int, dtype: str, source: int, target: int | None, **options: Any) -> Plan:
    """Write an array from one card to another, until it is visible there."""
    choose("--dtype", dtype, DTYPE_NAMES)
    kind = DTYPES[dtype].numpy
    count = elements(size, dtype)
    setup = Machine(**options)
    with usage("--source"):
        setup.shape.check_rank(source)
    with usage("--target"):
        target = setup.shape.cards - 1 if target is None else setup.shape.check_rank(target)
    if setup.lanes is None and setup.shape.hops(source, target) < LANES_FROM:
        # None but the cards on the way are awake, and an edge in lanes costs the same for all.
        setup = replace(setup, lanes=1)

    @setup.plan(2 * size)
    def plan(machine: SuperNode) -> None:
        rng = np.random.default_rng(setup.seed)
        values = np.frombuffer(rng.bytes(size), kind)
        # The opposite of what must arrive: no bit is right before it has been written.
        origin, destination = setup.keep(machine, "arrays", lambda: (
            machine.malloc((count,), dtype, source).write(values),
            machine.malloc((count,), dtype, target).write(
                np.invert(values.view(np.uint8)).view(kind))))
        with setup.timed(machine) as watch:
            handle = setup.keep(machine, "handle", lambda: machine.start_write(
                origin, destination))
            watch.expect(handle.bound.cycles)
            result = handle.wait(timeout(size))
        verdict = compare([destination.read(), origin.read()], [values, values])
        figures = Figures(workload="p2p", size=size, dtype=dtype, algorithm="write",
                          bus_factor=1.0, extra={})
        report(setup, machine, figures, result, verdict, watch.seconds)
    return plan
