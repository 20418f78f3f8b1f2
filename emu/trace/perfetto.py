"""A Perfetto trace: a file for ui.perfetto.dev, written while a machine runs.

One process per node, a thread-like track per :class:`~emu.trace.spans.Track`, a flow per packet.
Times are nanoseconds: a cycle at 1 GHz is one. Names are written once and referred to by number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from .scene import Scene
from .spans import Span, Track

__all__ = ["PerfettoFile", "require_perfetto"]

_SEQUENCE = 1
#: Of a packet: names that it refers to came before; those of earlier ones count no more.
_NEEDS_NAMES, _FORGETS_NAMES = 2, 1


def require_perfetto() -> Any:
    """The module of Perfetto's formats.

    Raises
    ------
    ValueError
        If it is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise ValueError("a Perfetto trace needs perfetto: install it with pip install "
                         "'supernode-emulator[trace]'") from None
    return perfetto_trace_pb2


class PerfettoFile:
    """A trace on its way into a file.

    Parameters
    ----------
    file : binary file
    scene : Scene
    """

    def __init__(self, file: BinaryIO, scene: Scene) -> None:
        self._pb = require_perfetto()
        self._file = file
        self._clock, self._name = scene.clock_ghz, scene.fabric.name
        self._tracks: dict[Track, int] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._processes: set[int] = set()
        first = self._packet()
        first.sequence_flags = _FORGETS_NAMES
        self._write(first)

    def span(self, span: Span) -> None:
        """Write a span: its begin with all that is known of it, and its end."""
        track = self._track(span.track)
        packet = self._packet(span.begin)
        event = packet.track_event
        event.type = event.TYPE_SLICE_BEGIN
        event.track_uuid = track
        event.name_iid = self._iid(packet, "event_names", span.name)
        if span.flow:
            flows = event.terminating_flow_ids if span.arrives else event.flow_ids
            flows.append(span.flow)
        for name, value in span.details.items():
            note = event.debug_annotations.add(
                name_iid=self._iid(packet, "debug_annotation_names", name))
            if isinstance(value, bool):
                note.bool_value = value
            elif isinstance(value, int):
                note.uint_value = value
            else:
                note.string_value = value
        self._write(packet)
        packet = self._packet(span.end)
        packet.track_event.type = packet.track_event.TYPE_SLICE_END
        packet.track_event.track_uuid = track
        self._write(packet)

    def count(self, track: Track, cycle: int, value: float) -> None:
        """Write a value of a counter, a share, in percent."""
        uuid = self._track(track, lambda description: setattr(
            description.counter, "unit_name", "%"))
        packet = self._packet(cycle)
        event = packet.track_event
        event.type = event.TYPE_COUNTER
        event.track_uuid = uuid
        event.double_counter_value = 100 * value
        self._write(packet)

    def close(self) -> None:
        """Nothing is held back."""

    def _packet(self, cycle: int | None = None) -> Any:
        packet = self._pb.TracePacket()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if cycle is not None:
            packet.sequence_flags = _NEEDS_NAMES
            packet.timestamp = round(cycle / self._clock)
        return packet

    def _track(self, track: Track, describe: Callable[[Any], None] | None = None) -> int:
        uuid = self._tracks.get(track)
        if uuid is not None:
            return uuid
        if track.node not in self._processes:
            self._processes.add(track.node)
            packet = self._packet()
            packet.track_descriptor.uuid = track.node + 1
            packet.track_descriptor.process.pid = track.node + 1
            packet.track_descriptor.process.process_name = self._name(track.node)
            packet.track_descriptor.child_ordering = packet.track_descriptor.EXPLICIT
            self._write(packet)
        uuid = self._tracks[track] = 1 << 32 | len(self._tracks)
        packet = self._packet()
        description = packet.track_descriptor
        description.uuid, description.parent_uuid = uuid, track.node + 1
        description.name = track.name
        description.sibling_order_rank = _rank(track.order)
        if describe:
            describe(description)
        self._write(packet)
        return uuid

    def _iid(self, packet: Any, table: str, name: str) -> int:
        iid = self._names.get((table, name))
        if iid is None:
            iid = self._names[table, name] = len(self._names) + 1
            getattr(packet.interned_data, table).add(iid=iid, name=name)
        return iid

    def _write(self, packet: Any) -> None:
        # The file is one message, of which packets are field 1.
        raw = packet.SerializeToString()
        self._file.write(b"\x0a" + _varint(len(raw)) + raw)


def _rank(order: tuple[int, ...]) -> int:
    """A number that sorts like ``order``: three numbers of which the later ones are from −1 on."""
    first, second, third = (*order, 0, 0)[:3]
    return (first << 16) + (second << 8) + third + 1


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value > 0x7F:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)
