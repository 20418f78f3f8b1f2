"""How many cycles a schedule takes, from a model of cards and links.

The model runs a schedule's steps in the order of time. A card starts a command every few cycles,
once what it waits for has arrived; a rail sends a flit per cycle, and takes one; messages on a link
share it, and the last flit of one follows when the link has carried all that it was given before;
memory answers after its latency, and a sum takes one answer more.

What commands and hops cost is what the machine was measured to take (``docs/architecture.md``), so
α and β follow from the card's parameters. A model that is wrong costs cycles, by choosing another
algorithm, and never a result; ``tests/system/test_predict.py`` holds it against the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush

from hdl.params import CardParams
from hdl.topology import Topology
from hdl.topology.bounds import ROUTER_CYCLES, SWITCH_CYCLES
from hdl.topology.routes import Routes

from .schedule import Done, Schedule, Send, Signal
from .task import Buffer, Region

__all__ = ["predict"]

#: Cycles between the starts of two commands of a list.
_ISSUE = 4
#: From a doorbell to the start of a command behind it, besides the fetch from memory.
_FETCH = 7
#: From an arrival to the start of the command that waits for it.
_WAKE = 3
#: From a command's start to its header at the router, besides memory.
_TRANSMIT = 3
#: From a flit's arrival at a rail to its count, besides memory.
_RECEIVE = 5
#: What a sum adds to that, besides memory.
_ADD = 6


@lru_cache(maxsize=1 << 16)
def _way(topology: Topology, lanes: int, source: int, target: int,
         rail: int) -> tuple[tuple[int, int, int | None, bool], ...]:
    """Links of a route: source, port, latency (``None`` for that of the parameters), and whether
    they leave a switch."""
    hops = _routes(topology, lanes).way(source, target, rail)
    tiers = topology.tier_latency
    return tuple((hop.link.source, hop.link.source_port,
                  tiers[hop.link.tier] if tiers else None,
                  hop.link.source >= topology.cards) for hop in hops)


@lru_cache(maxsize=4)
def _routes(topology: Topology, lanes: int) -> Routes:
    return Routes(topology, lanes=lanes)


def predict(schedule: Schedule, topology: Topology, params: CardParams, cards: Sequence[int],
            item_size: int) -> int:
    """Cycles from the doorbell to the last completion, with members on ``cards``."""
    return _Model(schedule, topology, params, cards, item_size).run()


class _Model:
    def __init__(self, schedule: Schedule, topology: Topology, params: CardParams,
                 cards: Sequence[int], item_size: int) -> None:
        self._schedule, self._topology, self._params = schedule, topology, params
        self._cards, self._item = cards, item_size
        self._memory = params.memory.latency
        #: What comes next: a time, a member, and the rail that sends, or −1 if its list goes on.
        self._events: list[tuple[int, int, int]] = []
        #: Of each list the next step, and when it can start; of each rail, what is to be sent.
        self._places = [0] * schedule.members
        self._free = [0] * schedule.members
        self._queues: dict[tuple[int, int], deque[tuple[int, Send | Signal]]] = {}
        self._end = 0
        #: When rails can send, links and receivers take again.
        self._sending: dict[tuple[int, int], int] = {}
        self._links: dict[tuple[int, int], int] = {}
        self._taking: dict[tuple[int, int], int] = {}
        #: Arrivals at counters, and members that wait for more of them.
        self._came: dict[tuple[int, str], list[int]] = {}
        self._waiting: dict[tuple[int, str], set[int]] = {}
        #: When the last write to a region was done.
        self._written: dict[tuple[int, Buffer, int], int] = {}

    def run(self) -> int:
        lists = self._schedule.lists
        for member, steps in enumerate(lists):
            opened, self._free[member] = 0, _FETCH + self._memory
            place = 0
            while isinstance(step := steps[place], Signal) and not step.waits:
                # Posted apart as far as the window holds them.
                if place < self._params.nic.direct_depth:
                    opened += _ISSUE
                    self._queue(member, step, opened)
                else:
                    self._queue(member, step, self._free[member])
                    self._free[member] += _ISSUE
                place += 1
            self._places[member] = place
            heappush(self._events, (self._free[member], member, -1))
        while self._events:
            now, member, rail = heappop(self._events)
            if rail < 0:
                self._step(member, now)
            else:
                self._send(member, rail)
        return self._end

    def _step(self, member: int, now: int) -> None:
        """Start the next command of a list, unless it has to wait."""
        step = self._schedule.lists[member][self._places[member]]
        start = now
        for wait in step.waits:
            found = self._came.get((member, wait.counter), [])
            if len(found) < wait.sends:
                self._waiting.setdefault((member, wait.counter), set()).add(member)
                self._free[member] = now
                return
            start = max(start, max(found[:wait.sends]) + _WAKE)
        if start > now:  # others may come before
            heappush(self._events, (start, member, -1))
            return
        if isinstance(step, Done):
            self._end = max(self._end, now)
            return
        self._free[member] = now + _ISSUE * max(1, len(step.waits))
        self._places[member] += 1
        if isinstance(step, (Send, Signal)):
            self._queue(member, step, now)
        heappush(self._events, (self._free[member], member, -1))

    def _queue(self, member: int, step: Send | Signal, start: int) -> None:
        """Give a rail what a command started at ``start`` sends."""
        head = start + _TRANSMIT + (self._memory if isinstance(step, Send) else 0)
        queue = self._queues.setdefault((member, step.rail), deque())
        queue.append((head, step))
        if len(queue) == 1:
            free = self._sending.get((member, step.rail), 0)
            heappush(self._events, (max(head, free), member, step.rail))

    def _send(self, member: int, rail: int) -> None:
        """Send the message at the front of a rail's queue."""
        params, queue = self._params, self._queues[member, rail]
        head, step = queue[0]
        head, flits = max(head, self._sending.get((member, rail), 0)), 1
        if isinstance(step, Send):
            size = step.source.count * self._item
            packets = -(-size // params.nic.mtu)
            apart = step.addend is not None and step.addend != step.target
            flits = -(-size // params.link.flit_bytes) + packets * (1 + apart)
        begun, tail = head, head + flits
        head += ROUTER_CYCLES
        tail += ROUTER_CYCLES
        for source, port, latency, switched in _way(
                self._topology, params.link.vcs_per_class, self._cards[member],
                self._cards[step.peer], rail):
            # Messages on one link share it: a head passes, and the tail follows when the link has
            # carried all that it was given.
            work = max(self._links.get((source, port), 0), head) + flits
            self._links[source, port] = work
            flight = (params.link.latency if latency is None else latency) + (
                SWITCH_CYCLES if switched else ROUTER_CYCLES)
            head, tail = head + flight, max(tail, work) + flight
        # What the buffers on the way do not hold stays with the sender.
        free = max(begun + flits, tail - (head - begun) - params.link.vc_depth)
        self._sending[member, rail] = free
        work = max(self._taking.get((step.peer, rail), 0), head) + flits
        self._taking[step.peer, rail] = work
        done = max(tail, work) - 1 + _RECEIVE
        if isinstance(step, Send):
            done = self._store(step, head, done)
        key = (step.peer, step.notify)
        self._came.setdefault(key, []).append(done)
        for other in self._waiting.pop(key, ()):
            heappush(self._events, (self._free[other], other, -1))
        queue.popleft()
        if queue:
            heappush(self._events, (max(queue[0][0], free), member, rail))

    def _store(self, step: Send, head: int, done: int) -> int:
        """When a message is in memory."""
        if step.addend:
            region: Region = step.addend
            asked = max(head + _RECEIVE, self._written.get(
                (step.peer, region.buffer, region.start), 0))
            done = max(done, asked + done - head - _RECEIVE) + self._memory + _ADD
        self._written[step.peer, step.target.buffer, step.target.start] = done
        return done
