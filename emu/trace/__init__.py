"""Seeing what a machine does: from the event log to spans, a Perfetto trace, and link figures.

::

    engine ──events──► Recording ──┬──► Timeline ──spans──┬──► PerfettoFile
                                   │                      └──► SpanTable
                                   └──► LinkMeter ──► table, CSV, heat map

Events are taken from the engine while it runs, some times a second, so that memory holds what is
open and not what has happened. Whatever is seen is what the RTL and the links told; nothing asks
the drivers.
"""

from .recording import Recording

__all__ = ["Recording"]
