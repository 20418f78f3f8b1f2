"""``--trace``, ``--events``, ``--links``, ``--heatmap``: what a run shows of what went on in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hdl.topology import Topology

from .errors import usage
from .output import JSON_OUTPUT, OUTPUT, OutputFile, Screen

if TYPE_CHECKING:
    from emu.fabric import Fabric
    from emu.library import EventKind
    from emu.trace.links import LinkMeter
    from emu.trace.spans import SpanSink

__all__ = ["Observation", "links_options", "trace_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


def trace_options(function: Function) -> Function:
    """Add ``--trace`` and ``--events``."""
    for option in (
        click.option("--events", type=OUTPUT, metavar="FILE",
                     help="Write commands, waits, packets and phases as a table: .parquet or "
                     ".npz."),
        click.option("--trace", type=OUTPUT, metavar="FILE",
                     help="Write a Perfetto trace, for ui.perfetto.dev."),
    ):
        function = option(function)
    return function


def links_options(function: Function) -> Function:
    """Add ``--links`` and ``--heatmap``."""
    for option in (
        click.option("--heatmap", type=OUTPUT, metavar="FILE",
                     help="Draw utilisation and credit stalls of every link over time as SVG; "
                     "needs matplotlib."),
        click.option("--links", type=JSON_OUTPUT, metavar="FILE|-",
                     help="Write what every link carried, its credit stalls and queues as CSV; "
                     "'-' prints a table."),
    ):
        function = option(function)
    return function


class Observation:
    """What is to be seen of a run.

    Raises
    ------
    click.BadParameter
        If a package for it is missing, or a file's name does not say its format.
    """

    def __init__(self, screen: Screen, title: str, *, trace: OutputFile | None = None,
                 events: OutputFile | None = None, links: Any = None,
                 heatmap: OutputFile | None = None) -> None:
        self._screen, self._title = screen, title
        self._trace, self._events, self._links, self._heatmap = trace, events, links, heatmap
        self._meter: LinkMeter | None = None
        self._suffix = ""
        if trace is not None:
            from emu.trace.perfetto import require_perfetto
            with usage("--trace"):
                require_perfetto()
        if events is not None:
            from emu.trace.table import check_format
            with usage("--events"):
                self._suffix = check_format(events.path.name)
        if heatmap is not None:
            from emu.traffic.plot import require_matplotlib
            with usage("--heatmap"):
                require_matplotlib()

    @property
    def kinds(self) -> Collection[EventKind]:
        """Events that the machine has to record."""
        from emu.trace.links import LinkMeter
        from emu.trace.timeline import Timeline

        return ({*Timeline.kinds} if self._trace or self._events else set()) | (
            {*LinkMeter.kinds} if self._links or self._heatmap else set())

    @contextmanager
    def of(self, machine: Callable[[], Fabric], topology: Topology,
           clock_ghz: float) -> Iterator[None]:
        """Around a run of a fabric: see what is to be seen and, however the run ends, write and
        tell it."""
        if not self.kinds:
            yield
            return
        from emu.trace import Recording
        from emu.trace.links import LinkMeter
        from emu.trace.perfetto import PerfettoFile
        from emu.trace.scene import Scene
        from emu.trace.spans import Sinks
        from emu.trace.table import SpanTable
        from emu.trace.timeline import Timeline

        fabric = machine()
        scene = Scene(fabric, topology, clock_ghz)
        problem: BaseException | None = None
        with ExitStack() as files:
            sinks: list[SpanSink] = []
            if self._trace:
                sinks.append(PerfettoFile(files.enter_context(self._trace.stream()), scene))
            if self._events:
                sinks.append(SpanTable(files.enter_context(self._events.stream()), scene,
                                       self._suffix))
            consumers: list[Any] = [Timeline(scene, Sinks(*sinks))] if sinks else []
            if self._links or self._heatmap:
                self._meter = LinkMeter(scene)
                consumers.append(self._meter)
            with Recording(consumers).of(fabric):
                try:
                    yield
                except (Exception, KeyboardInterrupt) as error:
                    problem = error
        self._tell()
        if problem is not None:
            raise problem

    def figures(self) -> dict[str, Any]:
        """What goes into the JSON."""
        if self._links is None or self._meter is None:
            return {}
        return {"links": [asdict(each) for each in self._meter.figures()],
                "link_cycles": self._meter.cycles}

    def _tell(self) -> None:
        if self._trace:
            self._screen.line(f"{self._trace.path}: trace, for ui.perfetto.dev")
        if self._events:
            self._screen.line(f"{self._events.path}: table of events")
        if self._meter is None:
            return
        if self._heatmap:
            from emu.trace.heatmap import heatmap
            self._heatmap.write(heatmap(self._meter, self._title))
            self._screen.line(f"{self._heatmap.path}: heat map")
        if self._links:
            self._tell_links(self._meter)

    def _tell_links(self, meter: LinkMeter) -> None:
        from emu.trace.links import LinkFigures

        names = [each.name for each in fields(LinkFigures)]
        rows = [astuple(each) for each in meter.figures()]
        if isinstance(self._links, OutputFile):
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerows([names, *rows])
            self._links.write(text.getvalue())
            self._screen.line(f"{self._links.path}: links")
        else:
            self._screen.table(
                f"links, over {meter.cycles:,} cycles", [name.replace("_", " ") for name in names],
                [[f"{cell:.3f}" if isinstance(cell, float) else
                  f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows])
