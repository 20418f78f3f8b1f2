"""Why a machine makes no progress: the chain of waits behind an operation that does not end.

A command waits for a counter; the packets that raise it are of a command elsewhere, which waits
itself or is under way; its packets stand in a buffer, because the buffer that is next is full, and
so on to a packet that its card does not take, or to a command that nobody will wake.

What commands wait for is read from registers, and which commands there are from the rings in card
memory, so this holds on every machine. Where packets stand is known to a backend with a method
``channels``, and what its memories owe to one with ``memory_waits``; elsewhere the chain ends at
the card. Reading takes time on the machine, in which nothing that is stuck moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hdl.fabric.route import spread
from hdl.layouts import Op, PacketOp
from hdl.topology import Link
from hdl.topology.routes import Routes

from .backend import Backend
from .commands import Command, packet_count
from .counters import TOTAL_MASK
from .faults import cable_name, dead_links, node_of

if TYPE_CHECKING:
    from .device import Device, Operation
    from .queues import Posted, QueueState

__all__ = ["Channel", "explain_stall"]

#: Cards of which the waits are told.
_MOST_CARDS = 4
_RESPONSES = (PacketOp.RESPONSE, PacketOp.READ_RESPONSE)


@dataclass(frozen=True)
class Channel:
    """Flits that stand on a virtual channel of a link, in its receiver's buffer or on the way.

    Attributes
    ----------
    link : Link
    vc : int
    flits : int
        Sent and not freed.
    depth : int
        Most that there can be: credits end there.
    packets : tuple
        Headers (as :func:`hdl.layouts.unpack` gives them) of the packets that they are of, the
        oldest first.
    """

    link: Link
    vc: int
    flits: int
    depth: int
    packets: tuple[Mapping[str, Any], ...]

    @property
    def full(self) -> bool:
        return self.flits >= self.depth


def explain_stall(backend: Backend, devices: Sequence[Device], operation: Operation) -> list[str]:
    """Lines that name what ``operation`` waits for, a cause below its effect and further in."""
    return list(_Stall(backend, devices).operation(operation))


class _Stall:
    """A machine that is stuck, looked at as far as it is asked about."""

    def __init__(self, backend: Backend, devices: Sequence[Device]) -> None:
        self._backend, self._devices = backend, devices
        self._topology, self._params = backend.topology, backend.params
        link = self._params.link
        self._routes = Routes(self._topology, lanes=link.vcs_per_class)
        self._queues: dict[int, list[QueueState]] = {}
        #: What has been told, and of it what has led to what is being told: waits may meet, and
        #: may form a circle.
        self._told: set[tuple[Any, ...]] = set()
        self._path: list[tuple[Any, ...]] = []

    @cached_property
    def _channels(self) -> dict[tuple[int, int, int], Channel]:
        """By node and port of the sender, and virtual channel."""
        found: list[Channel] = getattr(self._backend, "channels", list)()
        return {(each.link.source, each.link.source_port, each.vc): each for each in found}

    @cached_property
    def _dead(self) -> dict[str, str]:
        """Cables that are down, by name, with why."""
        return dict(name.split(" ", 1) for name in dead_links(self._backend))

    # --- what waits

    def operation(self, operation: Operation) -> Iterator[str]:
        cards = operation.unfinished
        for card in cards[:_MOST_CARDS]:
            yield from self._card(card, operation)
        if len(cards) > _MOST_CARDS:
            more = cards[_MOST_CARDS:]
            yield f"cards that have not ended either: {', '.join(map(str, more[:16]))}" + (
                f" and {len(more) - 16} more" if len(more) > 16 else "")
        if self._dead:
            yield "dead link " + ", ".join(f"{name} {why}" for name, why in self._dead.items())

    def _card(self, card: int, operation: Operation) -> Iterator[str]:
        device = self._devices[card]
        states, tags = self._states(card), device.tags(operation)
        held = [queue for queue in states if queue.wait or queue.held]
        for queue in held:
            if ("queue", card, queue.name) not in self._told:
                yield from self._head(queue, "")
        begun = [] if held else [each for queue in states for each in queue.begun
                                 if each.command.tag in tags and each.command.signal]
        for posted in begun[-1:]:
            yield from self._transfer(posted, "")
        late = [f"card {card}: {queue.unfetched} commands of {queue.name} are not fetched"
                + self._memory(card) for queue in states if queue.unfetched]
        if device.unposted:
            late.append(f"card {card}: {device.unposted} commands not posted for lack of room")
        yield from late
        if not (held or begun or late):
            yield f"card {card}: waits for nothing"

    def _head(self, queue: QueueState, margin: str) -> Iterator[str]:
        """What the next command of a queue waits for."""
        command = queue.next
        what = f"{command.name} {self._describe(command)}" if command else queue.name
        line = f"{margin}card {queue.card}: {what} waits for "
        if queue.wait is None:
            cause = self._earlier(queue, margin + "  ")
            line += "earlier commands to end"
        else:
            counter, value = queue.wait
            total = self._devices[queue.card].counter(counter)
            cause = self._counter(queue.card, counter, total, margin + "  ")
            line += f"counter {counter} to reach {value}, it has {total}"
        yield from self._once(("queue", queue.card, queue.name), line, cause)

    def _once(self, what: tuple[Any, ...], line: str, cause: Iterator[str]) -> Iterator[str]:
        """Tell something, and its cause the first time."""
        if what in self._path:
            yield f"{line}: a circle of waits"
        elif what in self._told:
            yield f"{line}, as told above"
        else:
            self._told.add(what)
            self._path.append(what)
            yield line
            yield from cause
            self._path.pop()

    def _earlier(self, queue: QueueState, margin: str) -> Iterator[str]:
        for posted in queue.begun[-1:]:
            yield from self._transfer(posted, margin)

    def _counter(self, card: int, counter: int, total: int, margin: str) -> Iterator[str]:
        """Why a counter of a card has no higher total."""
        node = self._topology.node_id(card)
        raisers = [(queue, posted) for device in self._devices
                   for queue in self._states(device.rank)
                   for posted in queue.raisers(node, card, counter)]
        if not raisers:
            yield f"{margin}no command that was posted adds to counter {counter} of card {card}"
            return
        late = self._late(card, counter, total, raisers)
        places: set[tuple[int, str]] = set()
        for queue, posted in late:
            if (queue.card, queue.name) in places:
                continue
            places.add((queue.card, queue.name))
            if posted.index < queue.end:
                yield from self._transfer(posted, margin)
                continue
            ahead = queue.next.name if queue.next else "what is ahead"
            what = ("has not begun" if queue.known and posted.index == queue.end
                    else f"stands behind {ahead}")
            yield (f"{margin}card {queue.card}: {posted.name} {self._describe(posted)}, which adds "
                   f"to it, {what}")
            if queue.wait or queue.held:
                yield from self._head(queue, margin + "  ")

    def _late(self, card: int, counter: int, total: int,
              raisers: list[tuple[QueueState, Posted]]) -> list[tuple[QueueState, Posted]]:
        """Those whose packets have not all arrived, as far as totals tell: packets of one sender
        arrive in the order of its commands."""
        if len({(queue.card, queue.name) for queue, _ in raisers}) > 1:
            return raisers
        expected = self._devices[card].counters.total(counter)
        missing = (expected - total) & TOTAL_MASK
        for place in range(len(raisers) - 1, -1, -1):
            posted = raisers[place][1]
            missing -= 1 if posted.command.target_counter != counter else packet_count(
                posted.command.address, posted.command.length, self._params.nic.mtu)
            if missing <= 0:
                return raisers[place:]
        return raisers

    # --- what is under way

    def _transfer(self, posted: Posted, margin: str) -> Iterator[str]:
        command = posted.command
        line = f"{margin}card {posted.card}: {posted.name} {self._describe(posted)} is under way"
        moves = command.op in (Op.WRITE, Op.REDUCE)
        yield from self._once(("command", posted.card, posted.name), line,
                              self._packets(posted, margin + "  ") if moves else iter(()))

    def _packets(self, posted: Posted, margin: str) -> Iterator[str]:
        """Where the packets of a transfer are."""
        command = posted.command
        source = self._topology.node_id(posted.card)
        target = node_of(self._topology, command.node)
        if target is None or target >= self._topology.cards:
            yield f"{margin}there is no card with node id {command.node:#x}"
            return
        dead = [name for name in self._cables(posted.card, target) if name in self._dead]
        if dead:
            yield (f"{margin}link {dead[0]} {self._dead[dead[0]]} on the way between card "
                   f"{posted.card} and card {target} is down: what was on it is lost")
            return
        mine = [channel for channel in self._channels.values() if any(
            _is_of(header, source, command) for header in channel.packets)]
        if mine:
            # The one that its packets have come farthest to: no other holds these up.
            yield from self._channel(min(
                mine, key=lambda each: self._distance(each.link.target, target)), margin)
            return
        if target != posted.card:
            yield from self._hop(posted.card, self._routes.local + command.rail, 0, {
                "src": source, "dst": command.node, "rail": command.rail, "path": command.path,
                "klass": 0}, margin)
        facts = self._memory(posted.card)
        yield (f"{margin}none of its packets stands on a link: they are in card {posted.card}"
               f"{facts}" + (f", or card {target} answers none{self._memory(target)}"
                             if command.ack else ""))

    def _channel(self, channel: Channel, margin: str) -> Iterator[str]:
        """Why a channel does not get empty."""
        link, first = channel.link, channel.packets[0]
        line = (f"{margin}{channel.flits} of {channel.depth} flits stand on VC {channel.vc} of "
                f"link {self._topology.link_name(link)} into {self._node(link.target)}, first of "
                f"them a packet {self._packet(first)}")
        lane = channel.vc % self._params.link.vcs_per_class
        yield from self._once(("channel", link, channel.vc), line, self._hop(
            link.target, link.target_port, lane, first, margin + "  "))

    def _hop(self, node: int, port: int, lane: int, header: Mapping[str, Any],
             margin: str) -> Iterator[str]:
        """Why a packet that came in by a port and a lane does not go on from a node."""
        here, target = self._node(node), node_of(self._topology, header["dst"])
        if target == node:
            yield f"{margin}{here} does not take it{self._memory(node)}"
            return
        if target is None:
            yield f"{margin}there is no node with id {header['dst']:#x}"
            return
        try:
            hop = self._routes.hop(node, target, port, lane, header["rail"], header["path"])
        except ValueError as error:
            yield f"{margin}it has no way on from {here}: {error}"
            return
        if hop is None:
            return
        lanes, allowed = self._params.link.vcs_per_class, hop.lanes
        if not self._params.router.adaptive and node < self._topology.cards:
            allowed = (allowed[spread(header["src"], header["dst"], len(allowed))],)
        next_vcs = [header["klass"] * lanes + each for each in allowed]
        way = self._topology.port_name(node, hop.link.source_port)
        name = cable_name(self._topology, node, hop.link.source_port)
        if name in self._dead:
            yield f"{margin}it leaves {here} by port {way}, whose link is down {self._dead[name]}"
            return
        for vc in next_vcs:
            channel = self._channels.get((node, hop.link.source_port, vc))
            if channel is not None and channel.full:
                yield (f"{margin}it leaves {here} by port {way}, where there is no credit of VC "
                       f"{vc}")
                yield from self._channel(channel, margin + "  ")
                return

    # --- names

    def _states(self, card: int) -> list[QueueState]:
        if card not in self._queues:
            self._queues[card] = self._devices[card].queue_states()
        return self._queues[card]

    def _memory(self, node: int) -> str:
        """What a card's memory owes, to be put behind something; empty if nothing."""
        waits = getattr(self._backend, "memory_waits", None)
        facts = waits(node) if waits and node < self._topology.cards else []
        return f" ({', '.join(facts)})" if facts else ""

    def _distance(self, node: int, target: int | None) -> int:
        if target is None or max(node, target) >= self._topology.cards:
            return 0
        return self._topology.hops(node, target)

    def _cables(self, a: int, b: int) -> list[str]:
        """On the way between two cards, and back."""
        return [cable_name(self._topology, hop.link.source, hop.link.source_port)
                for ends in ((a, b), (b, a)) for hop in self._routes.way(*ends)]

    def _node(self, node: int) -> str:
        kind = "card" if node < self._topology.cards else "switch"
        return f"{kind} {self._topology.node_name(node)}"

    def _of_id(self, node_id: int) -> str:
        node = node_of(self._topology, node_id)
        return f"node {node_id:#x}" if node is None else self._node(node)

    def _describe(self, posted: Posted) -> str:
        command = posted.command
        to = (f" to {self._of_id(command.node)}"
              if command.op in (Op.WRITE, Op.REDUCE) else "")
        return f"({getattr(command.op, 'name', command.op)}{to})"

    def _packet(self, header: Mapping[str, Any]) -> str:
        op, counter = header["op"], header["counter"]
        raising = (f" for counter {counter}"
                   if op not in _RESPONSES and counter != 0xFF else "")
        return (f"({getattr(op, 'name', op)} from {self._of_id(header['src'])} to "
                f"{self._of_id(header['dst'])}{raising})")


def _is_of(header: Mapping[str, Any], source: int, command: Command) -> bool:
    """Whether a packet is one of a command of node ``source``, or its answer."""
    here, there = header["src"], header["dst"]
    if header["op"] in _RESPONSES:
        here, there = there, here
    return (here == source and there == command.node and header["tag"] == command.tag
            and 0 <= header["address"] - command.address < max(command.length, 1))
