"""Topologies: cards, links, node ids, ring orders, bounds, and the proof that routes cannot
deadlock. Everything here is plain Python: a fabric's shape is configuration of the tiles."""

from .base import DimValues, Link, Topology
from .bounds import Bound, allreduce_bound, gemm_bound, p2p_bound
from .deadlock import DeadlockError, check_deadlock_free
from .parse import parse
from .tiered import Tiered

__all__ = ["Bound", "DeadlockError", "DimValues", "Link", "Tiered", "Topology",
           "allreduce_bound", "check_deadlock_free", "gemm_bound", "p2p_bound", "parse"]
