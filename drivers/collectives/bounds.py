"""What no run of a collective can beat: see ``docs/bounds.md``.

Every term is a number of cycles that holds alone. Adding happens on cards; a byte that several
members need may be passed on by any of them, but has to come to each once.
"""

from __future__ import annotations

from collections.abc import Sequence

from hdl.params import CardParams
from hdl.topology import Bound, Topology, allreduce_bound
from hdl.topology.bounds import MEMORY_WRITE_CYCLES

from .task import Collective, Task

__all__ = ["collective_bound"]


def collective_bound(topology: Topology, params: CardParams, cards: Sequence[int], task: Task,
                     item_size: int) -> Bound:
    """Bound of ``task`` on the members' ``cards``, with elements of ``item_size`` bytes."""
    if task.kind is Collective.ALLREDUCE:
        return allreduce_bound(topology, params, cards, task.total * item_size)
    if (task.members == 1 and task.in_place) or not task.total:
        return Bound({})
    return _Terms(topology, params, cards, task, item_size).bound()


class _Terms:
    def __init__(self, topology: Topology, params: CardParams, cards: Sequence[int], task: Task,
                 item_size: int) -> None:
        self._topology, self._params, self._cards = topology, params, cards
        self._task, self._item = task, item_size
        #: Flits per cycle that each member can send or receive.
        self._rates = [max(1, min(params.rails, len(topology.links_of(card)))) for card in cards]

    def bound(self) -> Bound:
        params, task, n = self._params, self._task, self._task.members
        arriving = [self._arriving(member) for member in range(n)]
        leaving = [self._leaving(member) for member in range(n)]
        kind = task.kind
        nearest, farthest = self._flights()
        access = params.memory.latency + MEMORY_WRITE_CYCLES
        terms = {"latency": access + farthest}
        # The members together give no more than their links take, and what one needs must come.
        needed = (n - 1) * task.total if kind.reduces else sum(arriving)
        terms["injection"] = max(self._cycles(needed, sum(self._rates)), *(
            self._cycles(count, rate) for count, rate in zip(leaving, self._rates, strict=True)))
        terms["ejection"] = max(self._cycles(count, rate)
                                for count, rate in zip(arriving, self._rates, strict=True))
        if kind.rooted and n > 1:
            # All but one flit pass the root's links before the last one flies, or after the first
            # one has: see docs/bounds.md.
            name = "ejection" if kind in (Collective.REDUCE, Collective.GATHER) else "injection"
            terms[name] += access - 1 + (
                farthest if kind in (Collective.REDUCE, Collective.BROADCAST) else nearest)
        terms["memory"] = max(self._cycles(self._written(member), params.rails)
                              for member in range(n))
        if kind.reduces:
            terms["adder"] = self._cycles((n - 1) * task.total, params.rails * n)
        if kind is Collective.ALLTOALL:
            terms["links"] = self._links()
        return Bound(terms)

    def _cycles(self, elements: int, flits_per_cycle: int) -> int:
        return -(-elements * self._item // (self._params.link.flit_bytes * flits_per_cycle))

    def _flights(self) -> tuple[int, int]:
        """Cycles from router to router that the nearest, and the farthest, byte has to fly."""
        task, cards, latency = self._task, self._cards, self._params.link.latency
        if task.members == 1:
            return 0, 0
        if not task.kind.rooted:
            farthest = self._topology.longest_flight(cards, latency)
            return farthest, farthest
        flights = [self._topology.flight(cards[task.root], card, latency)
                   for member, card in enumerate(cards) if member != task.root]
        return min(flights), max(flights)

    def _arriving(self, member: int) -> int:
        """Elements that must come to a member from others."""
        task = self._task
        if task.members == 1 or not task.output(member).count:
            return 0
        if task.kind.reduces:
            return task.output(member).count
        if task.kind.rooted and member == task.root:
            return task.total - task.place(member, member).count if (
                task.kind is Collective.GATHER) else 0
        own = 0 if task.kind in (Collective.BROADCAST, Collective.SCATTER) else (
            task.place(member, member).count)
        return task.output(member).count - own

    def _leaving(self, member: int) -> int:
        """Elements that must leave a member, whoever passes them on."""
        task = self._task
        if task.members == 1:
            return 0
        if task.kind in (Collective.REDUCE, Collective.GATHER) and member == task.root:
            return 0
        count = task.input(member).count
        if task.kind in (Collective.REDUCE_SCATTER, Collective.SCATTER, Collective.ALLTOALL):
            count -= min(count, task.block(member, member).count)
        return count

    def _written(self, member: int) -> int:
        """Elements that must be written to a member's memory."""
        task = self._task
        own = self._arriving(member)
        return max(own, 0 if task.in_place else task.output(member).count)

    def _links(self) -> int:
        """What links carry if every byte takes a shortest way and all are equally busy."""
        task, cards = self._task, self._cards
        hops = sum(task.block(member, peer).count * self._topology.hops(cards[member], cards[peer])
                   for member in range(task.members) for peer in range(task.members)
                   if member != peer)
        return self._cycles(hops, len(self._topology.links)) if hops else 0
