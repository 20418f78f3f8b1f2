"""Packets on their way, as spans: one per link from head to tail, one where they arrive.

A packet is known by its header, and of packets with equal headers the first one to leave is the
first one to arrive: links keep their order, and so do packets of one source, target and class on
deterministic routes. A flow joins a packet's spans.

On reliable links only flits that the other end accepts count: sent for the first time or again,
in order and not struck.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import lru_cache
from typing import Any

from emu.library import HEADER
from hdl.layouts import PacketOp, Status, unpack

from .scene import Scene
from .spans import Span, SpanSink, Track

__all__ = ["PacketTimeline"]


@lru_cache(maxsize=1 << 12)
def _decode(value: int, rest: int) -> tuple[str, dict[str, Any]]:
    words = unpack(HEADER, value | rest << 64)
    op, status = words["op"], words["status"]
    details = {"bytes": words["length"], "tag": words["tag"], "slot": words["slot"],
               "address": words["address"]}
    if op is PacketOp.RESPONSE:
        details["status"] = status.name if isinstance(status, Status) else status
    return op.name if isinstance(op, PacketOp) else f"op {op}", details


class PacketTimeline:
    """The spans of packets on links."""

    def __init__(self, scene: Scene, sink: SpanSink) -> None:
        self._scene, self._sink = scene, sink
        self._shifts = [scene.link_fields[name][0] for name in ("head", "tail", "poison", "vc")]
        self._vc_mask = (1 << scene.link_fields["vc"][1]) - 1
        dst, src = (HEADER[name] for name in ("dst", "src"))
        self._ends = dst.offset, src.offset
        #: By node, port and virtual channel: when the head left, name, details, flow, last link.
        self._open: dict[tuple[int, int, int], tuple[int, str, dict[str, Any], int, bool]] = {}
        #: Packets that have left for a node, by the node and their header.
        self._coming: defaultdict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self._flows = 0
        #: Of the flit that was seen last: virtual channel, whether it is a tail, and a cut one.
        self._last = 0, False, False

    def flit(self, cycle: int, node: int, port: int, control: int) -> None:
        """A head or tail flit leaves; that of a head comes before its :meth:`header`."""
        head, tail, poison, vc = (control >> shift for shift in self._shifts)
        vc &= self._vc_mask
        self._last = vc, bool(tail & 1), bool(poison & 1)
        if not head & 1 and tail & 1:
            self._end(cycle, (node, port, vc), bool(poison & 1))

    def header(self, cycle: int, node: int, port: int, value: int, rest: int) -> None:
        """The header of the head flit that leaves."""
        vc, tail, poison = self._last
        link, _ = self._scene.routes[node, port]
        name, details = _decode(value, rest)
        dst, src = (value >> place & 0xFFFF for place in self._ends)
        source, target = self._scene.node_of(src), self._scene.node_of(dst)
        coming = self._coming.get((node, value, rest))
        if coming:
            flow = coming.popleft()
            if not coming:
                del self._coming[node, value, rest]
        else:
            self._flows += 1
            flow = self._flows
        arrives = link.target == target
        if not arrives:
            self._coming[link.target, value, rest].append(flow)
        place = node, port, vc
        if place in self._open:  # its tail was lost
            self._end(cycle, place, True)
        self._open[place] = cycle, name, {
            "from": src if source is None else source, "to": dst if target is None else target,
            **details}, flow, arrives
        if tail:
            self._end(cycle, place, poison)

    def finish(self, cycle: int) -> None:
        """Show what is still under way in ``cycle``."""
        for place in list(self._open):
            self._end(cycle, place, False)

    def _end(self, cycle: int, place: tuple[int, int, int], cut: bool) -> None:
        if place not in self._open:
            return
        begin, name, details, flow, arrives = self._open.pop(place)
        if cut:
            details["cut"] = True
        node, port, vc = place
        link, latency = self._scene.routes[node, port]
        names = self._scene.fabric.name
        self._sink.span(Span(Track(node, (6, port, vc), f"to {names(link.target)}, port {port} "
                                   f"vc {vc}"), begin, cycle + 1, name, details, flow))
        if arrives:
            self._sink.span(Span(
                Track(link.target, (7, link.target_port, vc),
                      f"from {names(node)}, port {link.target_port} vc {vc}"),
                begin + latency, cycle + latency + 1, name, details, flow, True))
