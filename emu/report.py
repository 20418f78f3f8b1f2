"""What a machine that makes no progress waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .library import NEVER, NodeStatus

if TYPE_CHECKING:
    from .fabric import Fabric

__all__ = ["memory_facts", "stuck_report"]


def stuck_report(fabric: Fabric, conditions: Sequence[tuple[int, int]], *,
                 limit: int = 16) -> str:
    """Return one line per awaited node and per node that is not at rest, at most ``limit``."""
    lines = []
    for node, total in conditions:
        reached = fabric.status(node).completions
        if (reached - total) % (1 << 32) >> 31:
            lines.append(f"{fabric.name(node)}: {reached} of {total} completions")
    busy = [f"{fabric.name(node)}: {', '.join(facts)}" for node in range(len(fabric.kinds))
            if (facts := _facts(fabric, node))]
    lines += busy or ["every node is idle and nothing is on its way"]
    if len(lines) > limit:
        lines = [*lines[:limit], f"and {len(lines) - limit} more"]
    return "\n  ".join(lines)


def memory_facts(status: NodeStatus) -> list[str]:
    """What a node's memory has not done yet."""
    return [f"{count} {what}" for count, what in (
        (status.memory_reads, "memory reads outstanding"),
        (status.read_requests, "memory read requests not accepted"),
        (status.write_requests, "memory write requests not accepted")) if count]


def _facts(fabric: Fabric, node: int) -> list[str]:
    facts = []
    for name, tile in fabric.tile_statuses(node):
        if not tile.idle:
            facts.append(f"{name} tile busy")
        elif tile.wake < NEVER:
            facts.append(f"{name} tile sleeps until cycle {tile.wake}")
    status = fabric.status(node)
    if status.words_arriving:
        facts.append(f"{status.words_arriving} words on the links to it")
    facts += memory_facts(status)
    for count, what in ((status.host_operations, "register operations not delivered"),
                        (status.host_reads, "register reads without result")):
        if count:
            facts.append(f"{count} {what}")
    facts += [f"{name} stream not taken" for name in fabric.blocked_streams(node)]
    return facts
