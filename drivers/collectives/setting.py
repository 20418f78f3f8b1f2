"""What an algorithm may know of the machine and the group that it writes a schedule for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hdl.params import CardParams
from hdl.topology import Topology

from .build import Builder
from .task import Buffer, Task

__all__ = ["AlgorithmError", "Setting"]


class AlgorithmError(ValueError):
    """An algorithm does not serve this collective, group or size; the message says why."""


@dataclass(frozen=True)
class Setting:
    """Machine and group of a collective.

    Attributes
    ----------
    params : CardParams
    item_size : int
        Bytes of an element.
    ring : tuple of int
        Members in an order in which neighbours are near each other.
    hops : int
        Most links between neighbours of that ring.
    lanes : tuple of (int, int)
        Of each member: in which element of a flit its input and its output start. Empty: the first.
    """

    params: CardParams
    item_size: int
    ring: tuple[int, ...]
    hops: int = 1
    lanes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, topology: Topology, params: CardParams, cards: Sequence[int], item_size: int,
           lanes: Sequence[tuple[int, int]] = ()) -> Setting:
        """That of the group of ``cards``, the first one being member 0."""
        order = topology.ring_order(cards)
        member = {card: rank for rank, card in enumerate(cards)}
        hops = max(topology.hops(a, b) for a, b in zip(order, order[1:] + order[:1], strict=True))
        return cls(params, item_size, tuple(member[card] for card in order), hops,
                   tuple(lanes) if any(map(any, lanes)) else ())

    @property
    def members(self) -> int:
        return len(self.ring)

    @property
    def granule(self) -> int:
        """Elements of a flit."""
        return max(1, self.params.link.flit_bytes // self.item_size)

    @property
    def rails(self) -> int:
        return self.params.rails

    def builder(self, task: Task) -> Builder:
        """An empty schedule for ``task``."""
        lane: Callable[[int, Buffer], int] = self._lane if self.lanes else lambda *_: 0
        return Builder(task, granule=self.granule, lane=lane)

    def _lane(self, member: int, buffer: Buffer) -> int:
        return self.lanes[member][buffer is Buffer.OUTPUT]
