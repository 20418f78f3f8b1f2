"""Packets for router benches: making them, and a scoreboard that takes them apart again."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass

from hdl.layouts import PacketHeader, pack
from hdl.params import LinkParams
from tests.hdl.link.words import Flit

__all__ = ["Packet", "Scoreboard", "make_packet"]


@dataclass(frozen=True)
class Packet:
    """``index`` tells packets apart; it stands in every flit."""

    index: int
    payloads: tuple[int, ...]
    #: The tail is poisoned: the packet was cut.
    poison: bool = False

    def flits(self, vc: int) -> list[Flit]:
        last = len(self.payloads) - 1
        return [Flit(payload, int(at == 0), int(at == last), vc, int(self.poison and at == last))
                for at, payload in enumerate(self.payloads)]


def make_packet(rng: random.Random, params: LinkParams, index: int, *, dst: int, src: int,
                rail: int, body: int, path: int = 0, poison: bool = False) -> Packet:
    """Return a packet with a header that only has what routing looks at, and ``body`` flits."""
    header = int.from_bytes(pack(PacketHeader, {
        "dst": dst, "src": src, "rail": rail, "path": path, "sequence": index,
        "tag": index & 0xFFFF}), "little")
    bits = params.flit_bits
    heads = [header >> at & (1 << bits) - 1 for at in range(0, 256, bits)]
    bodies = [index | rng.getrandbits(bits - 32) << 32 for _ in range(body)]
    return Packet(index, (*heads, *bodies), poison)


class Scoreboard:
    """What must come out where: every packet whole, once, and in order.

    Output channels are (port, VC) pairs. Input channels are whatever keeps order: packets of one
    input channel that may leave by the same output channels leave in the order in which they came.

    Parameters
    ----------
    ordered : bool
        Without it order is not looked at.
    """

    def __init__(self, *, ordered: bool = True) -> None:
        self._ordered = ordered
        #: Packets by input channel and output channels, and by header flit.
        self._queues: dict[tuple, deque[Packet]] = defaultdict(deque)
        self._keys: dict[int, tuple[Packet, tuple]] = {}
        self._open: dict[tuple, tuple[Packet, int]] = {}
        self.waiting = 0
        #: Flits that left, by input channel, and output channels that packets took.
        self.left: Counter[tuple] = Counter()
        self.taken: Counter[tuple] = Counter()
        self._came_by: dict[tuple, tuple] = {}

    def expect(self, packet: Packet, source: tuple, *targets: tuple) -> None:
        """A packet comes in by ``source`` and leaves by one of ``targets``."""
        key = source, frozenset(targets)
        self._queues[key].append(packet)
        self._keys[packet.payloads[0]] = packet, key
        self.waiting += 1

    def take(self, port: object, flit: Flit) -> None:
        """A flit came out of ``port``.

        Raises
        ------
        AssertionError
            If it is not the next flit of a packet that may come out here now.
        """
        target = (port, flit.vc)
        if target in self._open:
            packet, at = self._open[target]
            assert not flit.head, f"{target}: a head within packet {packet.index}"
        else:
            assert flit.head, f"{target}: a flit without a packet: {flit.payload:#x}"
            found = self._keys.pop(flit.payload, None)
            assert found is not None, f"{target}: unexpected header {flit.payload:#x}"
            packet, (source, targets) = found
            assert target in targets, \
                f"{target}: packet {packet.index} may only leave by {sorted(targets)}"
            queue = self._queues[source, targets]
            assert not self._ordered or queue[0] is packet, \
                f"{target}: packet {packet.index} is before {queue[0].index}"
            queue.remove(packet)
            self._came_by[target], at = source, 0
            self.taken[target] += 1
        assert flit.payload == packet.payloads[at], \
            f"{target}: flit {at} of packet {packet.index} is wrong, or out of order"
        last = at == len(packet.payloads) - 1
        assert flit.tail == last, f"{target}: tail at flit {at} of packet {packet.index}"
        assert flit.poison == (last and packet.poison), f"{target}: poison at flit {at}"
        self.left[self._came_by[target]] += 1
        if last:
            self._open.pop(target, None)
            self.waiting -= 1
        else:
            self._open[target] = packet, at + 1
