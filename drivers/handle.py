"""What a started operation returns: a handle to wait on, and numbers when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hdl.topology import Bound

from .collectives import Schedule
from .commands import CompletionRecord
from .device import Operation, describe_error

if TYPE_CHECKING:
    from .supernode import SuperNode

__all__ = ["DEFAULT_TIMEOUT", "Handle", "OperationError", "Result"]

#: Cycles that a wait lasts unless told otherwise.
DEFAULT_TIMEOUT = 10_000_000


class OperationError(RuntimeError):
    """Commands of an operation ended with an error; ``records`` are theirs."""

    def __init__(self, name: str, records: list[CompletionRecord]) -> None:
        self.records = tuple(records)
        super().__init__(f"{name}: " + "; ".join(map(describe_error, records)))


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
    schedule : Schedule or None
        Of a collective: what runs, for :func:`drivers.collectives.reference`.
    order : tuple
        Of a collective: the card of each position of the schedule.
    """

    operation: Operation
    bound: Bound
    _supernode: SuperNode = field(repr=False)
    #: Gives back what the operation holds; called once, if it ended without error.
    _release: Callable[[], None] = field(repr=False)
    schedule: Schedule | None = None
    order: tuple[int, ...] = ()
    _result: Result | None = field(default=None, repr=False)

    @property
    def done(self) -> bool:
        """Whether it has ended, as far as the host has seen."""
        return self.operation.done

    def release(self) -> None:
        """Called by the supernode when the operation has ended without error."""
        self._release()

    def wait(self, timeout: int = DEFAULT_TIMEOUT) -> Result:
        """Let time pass until the operation has ended; return its numbers.

        Raises
        ------
        OperationError
            If a command failed.
        WaitTimeout
            After ``timeout`` cycles, with what was stuck.
        StallError
            If the machine can make no further progress, with what was stuck.
        """
        if self._result is None:
            self._supernode.wait_for(self, timeout)
            records = self.operation.records
            cycles = (max(record.ended for record in records)
                      - min(record.posted for record in records))
            self._result = Result(
                cycles=cycles, bound_cycles=self.bound.cycles, limit=self.bound.limit,
                efficiency=self.bound.efficiency(cycles),
                time_ns=cycles / self._supernode.params.clock_ghz,
                waited_cycles=self._supernode.waited(self.operation.pending),
                completions=tuple(records))
        return self._result
