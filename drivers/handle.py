"""What a started operation returns: a handle to wait on, and numbers when it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hdl.layouts import Status
from hdl.topology import Bound, Topology

from .collectives import Program, Schedule
from .commands import CompletionRecord
from .device import Operation
from .faults import describe_error, link_of
from .lease import Lease

if TYPE_CHECKING:
    from .supernode import SuperNode

__all__ = ["DEFAULT_TIMEOUT", "Handle", "OperationError", "Result"]

#: Cycles that a wait lasts unless told otherwise.
DEFAULT_TIMEOUT = 10_000_000


class OperationError(RuntimeError):
    """Commands of an operation ended with an error.

    Attributes
    ----------
    records : tuple
        Completion records of the commands that failed, on all cards.
    links : tuple
        Names of the cables that errors name, or that were down when a command got no answer.
    silent : tuple
        Cards that have neither ended nor failed.
    """

    def __init__(self, topology: Topology, operation: Operation, links: Sequence[str] = ()) -> None:
        self.records, self.silent = tuple(operation.errors), tuple(operation.silent)
        named = [link_of(topology, record) for record in self.records]
        known = {link.split()[0] for link in links}
        self.links = (*links, *dict.fromkeys(name for name in named if name and name not in known))
        parts = [f"dead link {', '.join(self.links)}"] if self.links else []
        # Of each card what says most: where a packet was sent back, else its first error.
        for card in dict.fromkeys(record.card for record in self.records):
            mine = [record for record in self.records if record.card == card]
            best = min(mine, key=lambda record: record.status != Status.LINK_DOWN)
            more = f" ({len(mine) - 1} more)" if len(mine) > 1 else ""
            parts.append(describe_error(topology, best) + more)
        if self.silent:
            parts.append(f"cards {', '.join(map(str, self.silent))} have not ended")
        super().__init__(f"{operation.name}: " + "; ".join(parts))


@dataclass(frozen=True)
class Result:
    """How long an operation took, and against what.

    Attributes
    ----------
    cycles : int
        Last completion's end − first doorbell, over all cards that took part.
    bound_cycles : int
        What no run can beat, and ``limit`` the name of its deciding term.
    efficiency : float or None
        ``bound_cycles`` ÷ ``cycles``; ``None`` if the bound is 0.
    time_ns : float
        ``cycles`` at the machine's clock.
    waited_cycles : int
        Cycles that commands of these cards waited for counters, since the last operation on them
        was waited for.
    completions : tuple
        Every completion record.
    """

    cycles: int
    bound_cycles: int
    limit: str
    efficiency: float | None
    time_ns: float
    waited_cycles: int
    completions: tuple[CompletionRecord, ...]


@dataclass(eq=False)
class Handle:
    """An operation under way.

    Attributes
    ----------
    schedule : Schedule, Program or None
        Of a collective: what runs, for :func:`drivers.collectives.reference`. A restored handle
        has the program alone.
    order : tuple
        Of a collective: the card of each member of the schedule.
    algorithm : str
        Of a collective: the name of what runs.
    reason : str
        Of a collective: why that runs.
    """

    operation: Operation
    bound: Bound
    _supernode: SuperNode = field(repr=False)
    #: What the operation holds; given back if it ends without error.
    lease: Lease = field(repr=False)
    schedule: Schedule | Program | None = None
    order: tuple[int, ...] = ()
    algorithm: str = ""
    reason: str = ""
    #: Once it has been waited for.
    result: Result | None = field(default=None, repr=False)

    @property
    def done(self) -> bool:
        """Whether it has ended, as far as the host has seen."""
        return self.operation.done

    def wait(self, timeout: int = DEFAULT_TIMEOUT) -> Result:
        """Let time pass until the operation has ended; return its numbers.

        Raises
        ------
        OperationError
            If a command failed; with a deadline, when every card has ended or failed.
        WaitTimeout
            After ``timeout`` cycles, with what was stuck.
        StallError
            If the machine can make no further progress, with what was stuck.
        """
        if self.result is None:
            self._supernode.wait_for(self, timeout)
            records = self.operation.records
            cycles = (max(record.ended for record in records)
                      - min(record.posted for record in records))
            self.result = Result(
                cycles=cycles, bound_cycles=self.bound.cycles, limit=self.bound.limit,
                efficiency=self.bound.efficiency(cycles),
                time_ns=cycles / self._supernode.params.clock_ghz,
                waited_cycles=self._supernode.waited(self.operation.pending),
                completions=tuple(records))
        return self.result
