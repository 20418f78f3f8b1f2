"""What a workload gave: the table and the JSON of ``supernode run``.

Bandwidths are those of nccl-tests: ``algbw`` is bytes ÷ time, ``busbw`` scales it by what the
workload must move over a card's links per byte (AllReduce 2(n−1)/n, point to point 1), so that it
compares with the hardware whatever the number of cards. A GEMM's bytes are its operands and its
result; they cross no link, and ``busbw`` is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import Failure
from .machine import Machine, rates, replays
from .verdict import Verdict

if TYPE_CHECKING:
    from drivers.handle import Result
    from drivers.supernode import SuperNode

__all__ = ["Figures", "report"]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a workload did, as far as the machine does not know it itself."""

    workload: str
    size: int
    dtype: str
    algorithm: str | None
    #: ``busbw`` ÷ ``algbw``.
    bus_factor: float
    #: Further keys of the JSON.
    extra: Mapping[str, Any]
    #: Rows of the table for the further keys.
    rows: Sequence[tuple[str, str]] = ()


def report(options: Machine, machine: SuperNode, figures: Figures, result: Result,
           verdict: Verdict, wall_s: float) -> None:
    """Print and write what a workload's run gave.

    Raises
    ------
    Failure
        If results were wrong.
    """
    card_cycles, stepped = rates(machine)
    resent = replays(machine)
    algbw = figures.size / result.time_ns if result.time_ns else 0.0
    busbw = algbw * figures.bus_factor
    verified = verdict.mismatches == 0
    screen = options.screen
    plural = "" if machine.cards == 1 else "s"
    screen.table(
        f"{figures.workload} on {options.topology}: {machine.cards} card{plural}, {figures.size:,} "
        f"bytes of {figures.dtype}" + (f", {figures.algorithm}" if figures.algorithm else ""),
        ("", ""),
        [("cycles", f"{result.cycles:,}"),
         ("time", f"{result.time_ns:,.0f} ns at {options.clock_ghz:g} GHz"),
         ("bound", f"{result.bound_cycles:,} cycles ({result.limit})"),
         ("efficiency", "-" if result.efficiency is None else f"{result.efficiency:.3f}"),
         *figures.rows,
         ("algorithm bandwidth", f"{algbw:.2f} GB/s"),
         ("bus bandwidth", f"{busbw:.2f} GB/s"),
         ("waited", f"{result.waited_cycles:,} card-cycles"),
         *([("sent again", f"{resent:,} flits")] if machine.params.link.reliable else []),
         ("verified", f"{verdict.values:,} values, bit for bit" if verified
          else f"NO: {verdict.mismatches:,} of {verdict.values:,} values differ"),
         ("wall time", f"{wall_s:.2f} s"),
         ("card-cycles per second", f"{card_cycles:,.0f}"),
         ("of them evaluated", f"{stepped:,.0f}")])
    profile = options.tell_profile(machine)
    screen.result({
        "workload": figures.workload, "topology": options.topology, "cards": machine.cards,
        "bytes": figures.size, "dtype": figures.dtype, "algorithm": figures.algorithm,
        "cycles": result.cycles, "time_ns": result.time_ns,
        "bound_cycles": result.bound_cycles, "efficiency": result.efficiency,
        "algbw_GBps": algbw, "busbw_GBps": busbw,
        "verified": verified, "mismatches": verdict.mismatches, "wall_s": wall_s,
        "card_cycles_per_s": card_cycles, "stepped_card_cycles_per_s": stepped,
        "replays": resent, **figures.extra, **profile, **options.observation.figures()})
    if not verified:
        raise Failure(f"{verdict.mismatches} of {verdict.values} values differ from the "
                      f"reference, first {verdict.first}")
