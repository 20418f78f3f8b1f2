"""One machine in many processes, which MPI has started: ``mpiexec -n R supernode run …``.

Each process, a *rank*, has a shard of the nodes. Drivers run on rank 0 alone, on a
:class:`~emu.ranks.fabric.RankedFabric` that has the face of a :class:`~emu.fabric.Fabric`; the
other ranks do what it tells them (:mod:`~emu.ranks.server`). While time passes, ranks exchange the
words that leave their shard, window by window, and agree at every boundary of the host
(:mod:`~emu.ranks.exchange`). Results do not depend on any of it.
"""

from __future__ import annotations

import os
from typing import Any

from emu.fabric import Fabric

__all__ = ["open_fabric", "own_rank", "world_size"]

#: What tells a process how many there are, and which of them it is, before MPI is loaded.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


def world_size() -> int:
    """Processes that were started together with this one, itself included."""
    return next((int(os.environ[name]) for name in _SIZES if name in os.environ), 1)


def own_rank() -> int:
    """Number of this process among them."""
    return next((int(os.environ[name]) for name in _RANKS if name in os.environ), 0)


def open_fabric(*arguments: Any, **options: Any) -> Fabric:
    """A :class:`~emu.fabric.Fabric` in this process, or in all that were started together."""
    if world_size() == 1:
        return Fabric(*arguments, **options)
    from .fabric import RankedFabric

    return RankedFabric(*arguments, **options)
