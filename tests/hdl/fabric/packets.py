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

    def flits(self, vc: int) -> list[Flit]:
        last = len(self.payloads) - 1
        return [Flit(payload, int(at == 0), int(at == last), vc)
                for at, payload in enumerate(self.payloads)]


def make_packet(rng: random.Random, params: LinkParams, index: int, *, dst: int, src: int,
                rail: int, body: int) -> Packet:
    """Return a packet with a header that only has what routing looks at, and ``body`` flits."""
    header = int.from_bytes(pack(PacketHeader, {
        "dst": dst, "src": src, "rail": rail, "sequence": index, "tag": index & 0xFFFF}), "little")
    bits = params.flit_bits
    heads = [header >> at & (1 << bits) - 1 for at in range(0, 256, bits)]
    bodies = [index | rng.getrandbits(bits - 32) << 32 for _ in range(body)]
    return Packet(index, (*heads, *bodies))


class Scoreboard:
    """What must come out where: every packet whole, once, and in order.

    Output channels are (port, VC) pairs. Input channels are whatever keeps order: packets of one
    input channel that leave by the same output channel leave in the order in which they came.
    """

    def __init__(self) -> None:
        # Packets by (input channel, output channel), and by header flit.
        self._expected: dict[tuple, deque[Packet]] = defaultdict(deque)
        self._sources: dict[tuple, dict[int, tuple]] = defaultdict(dict)
        self._open: dict[tuple, tuple[Packet, int]] = {}
        self.waiting = 0
        #: Flits that left, by input channel.
        self.left: Counter[tuple] = Counter()
        self._came_by: dict[tuple, tuple] = {}

    def expect(self, packet: Packet, source: tuple, target: tuple) -> None:
        self._expected[source, target].append(packet)
        self._sources[target][packet.payloads[0]] = source
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
            source = self._sources[target].pop(flit.payload, None)
            assert source is not None, f"{target}: unexpected header {flit.payload:#x}"
            packet, at = self._expected[source, target].popleft(), 0
            self._came_by[target] = source
        assert flit.payload == packet.payloads[at], \
            f"{target}: flit {at} of packet {packet.index} is wrong, or out of order"
        last = at == len(packet.payloads) - 1
        assert flit.tail == last, f"{target}: tail at flit {at} of packet {packet.index}"
        self.left[self._came_by[target]] += 1
        if last:
            self._open.pop(target, None)
            self.waiting -= 1
        else:
            self._open[target] = packet, at + 1
