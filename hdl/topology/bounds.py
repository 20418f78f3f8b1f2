"""What physics demands: the fewest cycles any run can take, formula by formula.

Every bound is a maximum over terms, each of which holds alone; a sum of two stands only where both
are paid one after the other, with the proof beside it. Only payload counts: headers, credits and
waiting are ours to save. All is computed from topology, parameters and sizes. ``docs/bounds.md``
explains why no run can beat any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hdl.params import CardParams

from .base import ROUTER_CYCLES, SWITCH_CYCLES, Topology

__all__ = ["Bound", "MEMORY_WRITE_CYCLES", "ROUTER_CYCLES", "SWITCH_CYCLES", "allreduce_bound",
           "gemm_bound", "p2p_bound"]

#: Cycles that a memory write takes once memory accepts it.
MEMORY_WRITE_CYCLES = 1


@dataclass(frozen=True)
class Bound:
    """Cycles by term; the largest one is the bound."""

    terms: Mapping[str, int]

    @property
    def cycles(self) -> int:
        return max(self.terms.values(), default=0)

    @property
    def limit(self) -> str:
        """Name of the term that decides."""
        return max(self.terms, key=lambda name: self.terms[name], default="nothing")

    def efficiency(self, cycles: int) -> float | None:
        """Bound over measured cycles; ``None`` if the bound is 0."""
        return self.cycles / cycles if self.cycles and cycles else None


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _latency(params: CardParams, flight: int) -> int:
    return params.memory.latency + flight + MEMORY_WRITE_CYCLES


def _flits_per_cycle(topology: Topology, params: CardParams, rank: int) -> int:
    """Flits that a card can send to others, or receive from them, in a cycle."""
    return max(1, min(params.rails, len(topology.links_of(rank))))


def p2p_bound(topology: Topology, params: CardParams, source: int, target: int,
              size: int) -> Bound:
    """Write of ``size`` bytes from card ``source`` into the memory of card ``target``."""
    if size == 0:
        return Bound({})
    # Latency and injection add up: see docs/bounds.md.
    flits = _ceil(size, params.link.flit_bytes)
    rate = min(_flits_per_cycle(topology, params, rank) for rank in (source, target))
    if source != target and (cut := topology.narrowest_cut([source, target])):
        rate = min(rate, cut)
    latency = _latency(params, topology.flight(source, target, params.link.latency))
    return Bound({"latency": latency, "injection": latency + _ceil(flits, rate) - 1})


def allreduce_bound(topology: Topology, params: CardParams, ranks: Sequence[int],
                    size: int) -> Bound:
    """AllReduce of ``size`` bytes on each card of a group, result on each, by any algorithm that
    adds on cards only."""
    n = len(ranks)
    if n < 2 or size == 0:
        return Bound({})
    flit, rails = params.link.flit_bytes, params.rails
    rate = sum(_flits_per_cycle(topology, params, rank) for rank in ranks)
    moved = _ceil(2 * (n - 1) * size, flit * rate)
    terms = {
        "latency": _latency(params, topology.longest_flight(ranks, params.link.latency)),
        "injection": moved,
        "ejection": moved,
        "memory": _ceil(2 * (n - 1) * size, flit * rails * n),
        "adder": _ceil((n - 1) * size, flit * rails * n),
    }
    if n == topology.cards:
        terms["bisection"] = _ceil(size, flit * topology.bisection)
    if cut := topology.narrowest_cut(ranks):
        terms["cut"] = _ceil(size, flit * cut)
    return Bound(terms)


def gemm_bound(params: CardParams, m: int, n: int, k: int) -> Bound:
    """FP8 GEMM of m×k by k×n to F32 on one card."""
    if m == 0 or n == 0:
        return Bound({})
    flit, array = params.link.flit_bytes, params.compute.array
    descriptor = params.memory.latency
    operands = params.memory.latency if k else 0
    return Bound({
        "latency": descriptor + operands + MEMORY_WRITE_CYCLES,
        "array": _ceil(m * n * k, array * array),
        "memory read": _ceil((m + n) * k, flit * params.compute.read_ports),
        "memory write": _ceil(4 * m * n, flit),
    })
