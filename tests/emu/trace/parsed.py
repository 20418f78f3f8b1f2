"""A Perfetto trace read back with Perfetto's own formats."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

__all__ = ["Slice", "Trace", "parse"]


@dataclass(frozen=True)
class Slice:
    """A span as a viewer would show it."""

    process: str
    track: str
    begin: int
    end: int
    name: str
    details: dict[str, Any]
    #: Packets whose way goes on from here, and those whose way ends.
    flows: tuple[int, ...]
    arrivals: tuple[int, ...]


@dataclass
class Trace:
    """The spans and counters of a trace."""

    slices: list[Slice] = field(default_factory=list)
    counters: defaultdict[tuple[str, str], list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list))

    def of(self, process: str, track: str) -> list[Slice]:
        """Spans of a track, in order of time."""
        return sorted((each for each in self.slices if (each.process, each.track) == (
            process, track)), key=lambda each: each.begin)


def parse(path: Path) -> Trace:
    """Read a trace as a viewer does: by time and, within an instant, in the file's order.

    Raises
    ------
    AssertionError
        If something ends that has not begun, does not end, or is called by an unknown number.
    """
    raw = perfetto_trace_pb2.Trace.FromString(path.read_bytes())
    names: dict[str, dict[int, str]] = {"event_names": {}, "debug_annotation_names": {}}
    processes: dict[int, str] = {}
    tracks: dict[int, tuple[str, str]] = {}
    events = []
    for packet in raw.packet:
        for table, known in names.items():
            for entry in getattr(packet.interned_data, table):
                assert entry.iid not in known
                known[entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                processes[track.uuid] = track.process.process_name
            else:
                tracks[track.uuid] = processes[track.parent_uuid], track.name
        if packet.HasField("track_event"):
            event = packet.track_event
            details = {names["debug_annotation_names"][note.name_iid]:
                       getattr(note, note.WhichOneof("value")) for note in event.debug_annotations}
            events.append((packet.timestamp, event, details))
    trace, stacks = Trace(), defaultdict(list)
    for time, event, details in sorted(events, key=lambda each: each[0]):
        place = tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            trace.counters[place].append((time, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            stacks[place].append((time, event, details))
        else:
            assert event.type == event.TYPE_SLICE_END and stacks[place], f"{place} at {time}"
            begin, first, details = stacks[place].pop()
            trace.slices.append(Slice(
                *place, begin, time, names["event_names"][first.name_iid], details,
                tuple(first.flow_ids), tuple(first.terminating_flow_ids)))
    assert not any(stacks.values()), "a span has no end"
    return trace
