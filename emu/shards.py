"""Who runs which node: shares of a fabric for threads, and for processes.

Results do not depend on it. What costs is words that cross from one share to another, and shares
of unequal work. So each kind of node is shared out evenly, in blocks of neighbouring numbers: in a
mesh or torus these are slabs, in tiers of switches they are boards and racks, and a switch falls to
the share of the cards below it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["LANES_FROM", "LANE_COUNTS", "WORTH", "Shard", "default_lanes", "default_threads",
           "share_out"]

#: Node-cycles of a window that make a thread worth its barrier. A barrier costs a microsecond or
#: two, a node-cycle about as much where a node is a card.
WORTH = 64


@dataclass(frozen=True)
class Shard:
    """What one process has of a fabric that several run."""

    rank: int
    ranks: int
    #: The process that has each node.
    owners: tuple[int, ...]
    #: Processes on this computer.
    neighbours: int = 1

    @property
    def nodes(self) -> list[int]:
        """The nodes that this process has."""
        return [node for node, owner in enumerate(self.owners) if owner == self.rank]


def share_out(kinds: Sequence[Hashable], shares: int) -> list[int]:
    """The share, from 0 to ``shares`` - 1, of each node."""
    total, seen = Counter(kinds), Counter[Hashable]()
    result = []
    for kind in kinds:
        result.append(seen[kind] * shares // total[kind])
        seen[kind] += 1
    return result


def default_threads(nodes: int, window: int, processes: int = 1) -> int:
    """How many threads a process runs ``nodes`` nodes with if nobody says.

    One per processor that it may use and does not leave to another one of ``processes``, or as
    ``SUPERNODE_THREADS`` says; fewer where a thread would have less than ``WORTH`` node-cycles
    between two barriers.

    Raises
    ------
    ValueError
        If ``SUPERNODE_THREADS`` is not a number from 1.
    """
    said = os.environ.get("SUPERNODE_THREADS", "")
    if said and not (said.isascii() and said.isdigit() and int(said)):
        raise ValueError(f"SUPERNODE_THREADS must be a number of threads from 1, not {said!r}")
    threads = int(said) if said else len(os.sched_getaffinity(0)) // processes
    return max(1, min(threads, nodes * window // WORTH))


#: Lanes that a model can have.
LANE_COUNTS = (64, 128, 256, 512)
#: Nodes of a kind per thread from which lanes pay.
LANES_FROM = 32


def default_lanes(nodes: int, threads: int) -> int:
    """How many of ``nodes`` nodes of one kind share a lane-parallel model if nobody says: the
    smallest model that holds those of a thread, or 1, no lanes, where these are few."""
    mine = nodes // threads
    if mine < LANES_FROM:
        return 1
    return next((lanes for lanes in (64, 128) if mine <= lanes), 256)
