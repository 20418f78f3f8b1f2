"""``supernode run allreduce``: every card gets the sum over all cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from drivers.dtypes import DTYPES
from drivers.group import algorithm_names
from emu.oracle import allreduce_sum

from .checkpoints import checkpoint_options
from .errors import usage
from .machine import Machine, machine_options, timeout
from .options import SIZE, choose, elements
from .plan import Plan, Workload
from .report import Figures, report
from .verdict import Verdict, compare

if TYPE_CHECKING:
    from drivers.handle import Result
    from drivers.supernode import SuperNode

__all__ = ["SUMS", "Sum", "allreduce", "bus_factor", "sum_once"]

#: What the adders at a card's memory add.
SUMS = ("f32", "bf16")


@click.command(cls=Workload)
@click.option("--bytes", "size", type=SIZE, default="1M", show_default=True, metavar="SIZE",
              help="Bytes per card.")
@click.option("--dtype", default="f32", show_default=True, metavar="{f32,bf16}",
              help="Type of the elements.")
@click.option("--algorithm", default="auto", show_default=True, metavar="{auto,ring,dimensions}",
              help="How the sum is formed: around one ring, or one dimension after the other.")
@machine_options()
@checkpoint_options
def allreduce(size: int, dtype: str, algorithm: str, **options: Any) -> Plan:
    """Sum an array over all cards; every card ends with the result."""
    choose("--dtype", dtype, SUMS)
    choose("--algorithm", algorithm, algorithm_names())
    count = elements(size, dtype)
    setup = Machine(**options)

    @setup.plan(2 * size)
    def plan(machine: SuperNode) -> None:
        done = sum_once(setup, machine, count, dtype, algorithm)
        figures = Figures(workload="allreduce", size=size, dtype=dtype, algorithm=done.algorithm,
                          bus_factor=bus_factor(machine.cards), extra={})
        report(setup, machine, figures, done.result, done.verdict, done.seconds)
    return plan


class Sum(NamedTuple):
    """The machine's figures, what the oracle says, the wall time, and how the sum was formed."""

    result: Result
    verdict: Verdict
    seconds: float
    algorithm: str


def bus_factor(cards: int) -> float:
    """Bytes that an AllReduce must move over a card's links, per byte of its array."""
    return 2 * (cards - 1) / cards


def sum_once(setup: Machine, machine: SuperNode, count: int, dtype: str,
             algorithm: str) -> Sum:
    """Sum random arrays of ``count`` elements on all cards."""
    rng = np.random.default_rng(setup.seed)
    inputs = [rng.standard_normal(count, np.float32).astype(DTYPES[dtype].numpy)
              for _ in range(machine.cards)]
    arrays = setup.keep(machine, "arrays", lambda: [
        machine.malloc((count,), dtype, card).write(values) for card, values in enumerate(inputs)])
    with setup.timed(machine) as watch:
        with usage("--algorithm"):
            handle = setup.keep(machine, "handle", lambda: machine.allreduce(
                arrays, op="sum", algorithm=algorithm))
        watch.expect(handle.bound.cycles)
        result = handle.wait(timeout(arrays[0].nbytes))
    expected = allreduce_sum(machine.topology, machine.params, inputs, handle)
    verdict = compare([array.read() for array in arrays], [expected] * machine.cards)
    machine.free(*arrays)
    return Sum(result, verdict, watch.seconds, handle.algorithm)
