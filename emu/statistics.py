"""What a run cost, and what its links carried."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["FabricStatistics", "LinkStatistics", "Statistics"]


@dataclass(frozen=True)
class LinkStatistics:
    """What one directed link carried."""

    source: int
    source_port: int
    target: int
    target_port: int
    #: Words that were sent: cycles with a flit or a total.
    words: int
    flits: int
    #: Words that bit errors struck, and those of them that held a flit.
    corrupted: int
    corrupted_flits: int
    #: Words that were sent and did not arrive, because the link was down.
    lost: int


@dataclass(frozen=True)
class FabricStatistics:
    """What a run of any nodes cost."""

    cycles: int
    #: Per node, cycles in which one of its tiles was evaluated.
    stepped: np.ndarray
    #: Per tile of a node's kind, evaluations of each node.
    evaluations: tuple[np.ndarray, ...]
    #: Wall time spent letting time pass.
    wall_s: float


@dataclass(frozen=True)
class Statistics:
    """What a run of cards cost."""

    cycles: int
    #: Cycles times cards.
    card_cycles: int
    #: Those in which a tile of the card was evaluated.
    stepped_card_cycles: int
    network_evaluations: int
    compute_evaluations: int
    #: Wall time spent letting time pass, for switches too.
    wall_s: float

    @property
    def card_cycles_per_s(self) -> float:
        return self.card_cycles / self.wall_s if self.wall_s else 0.0

    @property
    def stepped_card_cycles_per_s(self) -> float:
        return self.stepped_card_cycles / self.wall_s if self.wall_s else 0.0
