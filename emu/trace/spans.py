"""Spans of time on tracks: what a timeline consists of, and what takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

__all__ = ["Sinks", "Span", "SpanSink", "Track"]


class Track(NamedTuple):
    """A row of a timeline. Its spans do not overlap."""

    node: int
    #: Where it stands among the tracks of its node.
    order: tuple[int, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Span:
    """Something that went on in cycles ``begin`` … ``end`` − 1."""

    track: Track
    begin: int
    end: int
    name: str
    details: Mapping[str, Any] = field(default_factory=dict)
    #: The packet that it is a stretch of the way of, and whether it is the last one.
    flow: int = 0
    arrives: bool = False


class SpanSink(Protocol):
    """Takes spans; those of a track come in order of time."""

    def span(self, span: Span) -> None:
        """One more."""

    def count(self, track: Track, cycle: int, value: float) -> None:
        """What ``track`` counts has this value from ``cycle`` on."""

    def close(self) -> None:
        """There will be no more."""


class Sinks:
    """Several sinks as one."""

    def __init__(self, *sinks: SpanSink) -> None:
        self._sinks = sinks

    def span(self, span: Span) -> None:
        for sink in self._sinks:
            sink.span(span)

    def count(self, track: Track, cycle: int, value: float) -> None:
        for sink in self._sinks:
            sink.count(track, cycle, value)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
