"""``supernode run gemm``: an FP8 matrix product, its columns dealt out to the cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from drivers.dtypes import DTYPES
from emu.shares import shares

from .checkpoints import checkpoint_options
from .machine import Machine, machine_options, timeout
from .options import choose
from .plan import Plan, Workload
from .report import Figures, report
from .verdict import compare

if TYPE_CHECKING:
    from drivers.memory import Array
    from drivers.supernode import SuperNode

__all__ = ["gemm"]

#: What the array multiplies.
FORMATS = ("e4m3", "e5m2")


@click.command(cls=Workload)
@click.option("--m", required=True, type=click.IntRange(0), help="Rows of A and C.")
@click.option("--n", required=True, type=click.IntRange(0), help="Columns of B and C.")
@click.option("--k", required=True, type=click.IntRange(0), help="Columns of A, rows of B.")
@click.option("--a-format", default="e4m3", show_default=True, metavar="{e4m3,e5m2}",
              help="Format of A.")
@click.option("--b-format", default="e4m3", show_default=True, metavar="{e4m3,e5m2}",
              help="Format of B.")
@click.option("--b-transposed", is_flag=True, help="Keep B in memory as N × K.")
@machine_options()
@checkpoint_options
def gemm(m: int, n: int, k: int, a_format: str, b_format: str, b_transposed: bool,
         **options: Any) -> Plan:
    """C = A B in FP8 with exact accumulation, C in f32. Every card holds A and computes its share
    of the columns of C."""
    choose("--a-format", a_format, FORMATS)
    choose("--b-format", b_format, FORMATS)
    setup = Machine(**options)
    parts = shares(n, setup.shape.cards)
    columns = max(part.stop - part.start for part in parts)

    @setup.plan(m * k + k * columns + 4 * m * columns)
    def plan(machine: SuperNode) -> None:
        rng = np.random.default_rng(setup.seed)
        a = _finite_codes(rng, (m, k), a_format)
        b = _finite_codes(rng, (k, n), b_format)

        def place(card: int, part: slice) -> tuple[Array, Array, Array]:
            share = b[:, part].T if b_transposed else b[:, part]
            a_array = machine.malloc(a.shape, a_format, card)
            b_array = machine.malloc(share.shape, b_format, card)
            c_array = machine.malloc((m, part.stop - part.start), "f32", card)
            a_array.write(a.view(DTYPES[a_format].numpy))
            b_array.write(np.ascontiguousarray(share).view(DTYPES[b_format].numpy))
            # What is left of an earlier run must not pass for a result.
            c_array.write(np.full(c_array.shape, np.nan, np.float32))
            return a_array, b_array, c_array

        products = setup.keep(machine, "products", lambda: [
            place(card, part) for card, part in enumerate(parts)])
        with setup.timed(machine) as watch:
            handle = setup.keep(machine, "handle", lambda: machine.gemms(
                products, b_transposed=b_transposed))
            watch.expect(handle.bound.cycles)
            result = handle.wait(timeout(m * n * k))
        from hdl.compute import fp8, model

        formats = {"e4m3": fp8.E4M3, "e5m2": fp8.E5M2}
        expected = model.gemm(a, b, formats[a_format], formats[b_format])
        verdict = compare([c.read() for _, _, c in products],
                          [expected[:, part] for part in parts])
        macs = m * n * k
        peak = machine.cards * machine.params.compute.array ** 2 * result.cycles
        utilization = macs / peak if peak else 0.0
        figures = Figures(
            workload="gemm", size=m * k + k * n + 4 * m * n, algorithm=None, bus_factor=0.0,
            dtype=a_format if a_format == b_format else f"{a_format}×{b_format}",
            extra={"m": m, "n": n, "k": k, "macs": macs, "utilization": utilization},
            rows=[("multiply-accumulates", f"{macs:,} ({m} × {n} × {k})"),
                  ("utilization", f"{utilization:.3f}")])
        report(setup, machine, figures, result, verdict, watch.seconds)
    return plan


def _finite_codes(rng: np.random.Generator, shape: tuple[int, int], name: str) -> np.ndarray:
    """Random codes over the whole range of a format, without Inf and NaN."""
    codes = rng.integers(0, 256, shape, np.uint8)
    return np.where(np.isfinite(codes.view(DTYPES[name].numpy).astype(np.float32)), codes,
                    codes & 0x83).astype(np.uint8)
