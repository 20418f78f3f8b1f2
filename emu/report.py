"""What a machine that makes no progress waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.backend import Completions
from hdl.layouts import CYCLE_BITS

from .library import CardStatus

__all__ = ["stuck_report"]

_NEVER = (1 << CYCLE_BITS) - 1


def stuck_report(statuses: Sequence[CardStatus], conditions: Sequence[Completions], *,
                 limit: int = 16) -> str:
    """Return one line per awaited card and per card that is not at rest, at most ``limit``."""
    lines = []
    for condition in conditions:
        reached = statuses[condition.rank].completions
        if (reached - condition.total) & 1 << 31 or (reached - condition.total) >> 32:
            lines.append(f"card {condition.rank}: {reached} of {condition.total} completions")
    for rank, status in enumerate(statuses):
        if facts := _facts(status):
            lines.append(f"card {rank}: {', '.join(facts)}")
    if not any(_facts(status) for status in statuses):
        lines.append("every card is idle and nothing is on its way")
    if len(lines) > limit:
        lines = [*lines[:limit], f"and {len(lines) - limit} more"]
    return "\n  ".join(lines)


def _facts(status: CardStatus) -> list[str]:
    facts = []
    for tile, idle, wake in (("network", status.network_idle, status.network_wake),
                             ("compute", status.compute_idle, status.compute_wake)):
        if not idle:
            facts.append(f"{tile} tile busy")
        elif wake < _NEVER:
            facts.append(f"{tile} tile sleeps until cycle {wake}")
    for count, what in ((status.words_arriving, "words on the links to it"),
                        (status.memory_reads, "memory reads outstanding"),
                        (status.read_requests, "memory read requests not accepted"),
                        (status.write_requests, "memory write requests not accepted"),
                        (status.host_operations, "register operations not delivered"),
                        (status.host_reads, "register reads without result")):
        if count:
            facts.append(f"{count} {what}")
    if status.gemm_blocked:
        facts.append("GEMM request not taken by the compute tile")
    if status.done_blocked:
        facts.append("GEMM result not taken by the network tile")
    return facts
