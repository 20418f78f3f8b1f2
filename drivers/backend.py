"""What the drivers need of a machine: registers, memory, time and one bounded wait.

Implemented by the emulation engine, by a cocotb testbench and by a board; the code above this
protocol cannot tell them apart. Cards are named by their *rank* (0 … cards − 1); a card's node id
in global addresses comes from the topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hdl.params import CardParams
from hdl.topology import Topology

__all__ = ["Backend", "Completions", "StallError", "WaitTimeout"]


@dataclass(frozen=True)
class Completions:
    """Wait until card ``rank`` has written ``total`` completion records (a total modulo 2^32)."""

    rank: int
    total: int


class WaitTimeout(TimeoutError):
    """A wait ran out of its cycles; the message says what was stuck."""


class StallError(RuntimeError):
    """The machine can make no further progress; the message says what waits on what."""


class Backend(Protocol):
    """A running machine."""

    @property
    def params(self) -> CardParams:
        """Parameters of every card."""

    @property
    def topology(self) -> Topology:
        """Cards and links."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory per card."""

    @property
    def cycle(self) -> int:
        """The host's present: a multiple of ``params.host_quantum``."""

    def register_write(self, rank: int, offset: int, value: int) -> None:
        """Write a 64-bit register. Posted: writes made at one instant reach each card in order,
        one per cycle from that instant on, on all cards at once."""

    def register_read(self, rank: int, offset: int) -> int:
        """Read a 64-bit register after all earlier writes; time passes."""

    def read_registers(self, requests: Sequence[tuple[int, int]]) -> list[int]:
        """Read 64-bit registers (node, offset) of any nodes, as few at a time as the machine
        needs; time passes. Nodes are the cards, by rank, and then the switches."""

    def memory_write(self, rank: int, address: int, data: bytes | np.ndarray) -> None:
        """Write bytes to a card's memory, now."""

    def memory_read(self, rank: int, address: int, size: int) -> np.ndarray:
        """Return a copy of ``size`` bytes of a card's memory, now, as uint8."""

    def wait(self, conditions: Sequence[Completions], timeout: int) -> None:
        """Let time pass until all conditions hold.

        Raises
        ------
        WaitTimeout
            After ``timeout`` cycles.
        StallError
            As soon as no further progress is possible.
        """

    def advance(self, cycles: int) -> None:
        """Let at least ``cycles`` cycles pass, up to the next instant at which the host acts."""

    def close(self) -> None:
        """Release the machine. Nothing else may be called afterwards."""
