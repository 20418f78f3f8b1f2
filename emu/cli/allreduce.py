"""``supernode run allreduce``: every card gets the sum over all cards."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from drivers.dtypes import DTYPES
from drivers.supernode import ALGORITHMS
from emu.oracle import allreduce_sum

from .errors import usage
from .machine import Machine, machine_options, timeout
from .options import SIZE, choose, elements
from .report import Figures, report
from .verdict import compare

__all__ = ["allreduce"]

#: What the adders at a card's memory add.
SUMS = ("f32", "bf16")


@click.command()
@click.option("--bytes", "size", type=SIZE, default="1M", show_default=True, metavar="SIZE",
              help="Bytes per card.")
@click.option("--dtype", default="f32", show_default=True, metavar="{f32,bf16}",
              help="Type of the elements.")
@click.option("--algorithm", default="auto", show_default=True, metavar="{auto,ring,dimensions}",
              help="How the sum is formed: around one ring, or one dimension after the other.")
@machine_options()
def allreduce(size: int, dtype: str, algorithm: str, **options: Any) -> None:
    """Sum an array over all cards; every card ends with the result."""
    choose("--dtype", dtype, SUMS)
    choose("--algorithm", algorithm, ALGORITHMS)
    count = elements(size, dtype)
    setup = Machine(**options)
    with setup.open(2 * size) as machine:
        rng = np.random.default_rng(setup.seed)
        inputs = [rng.standard_normal(count, np.float32).astype(DTYPES[dtype].numpy)
                  for _ in range(machine.cards)]
        arrays = []
        for card, values in enumerate(inputs):
            array = machine.malloc((count,), dtype, card)
            array.write(values)
            arrays.append(array)
        with setup.timed(machine) as watch:
            with usage("--algorithm"):
                handle = machine.allreduce(arrays, op="sum", algorithm=algorithm)
            result = handle.wait(timeout(size))
        expected = allreduce_sum(machine.topology, machine.params, inputs, handle)
        verdict = compare([array.read() for array in arrays], [expected] * machine.cards)
        figures = Figures(
            workload="allreduce", size=size, dtype=dtype, algorithm=handle.algorithm,
            bus_factor=2 * (machine.cards - 1) / machine.cards, extra={})
        report(setup, machine, figures, result, verdict, watch.seconds)
