"""The machine that a command runs on: its options, opening it, and what running it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import click

from hdl import topology as topologies
from hdl.params import PRESETS
from hdl.params import preset as find_preset

from .checkpoints import Checkpoints, keep, saving
from .errors import usage
from .faults import FAILURE_DEADLINE, fault_options, faults, reliable
from .meter import Meter, meter
from .observe import Observation, links_options, trace_options
from .options import common, run_ranks, scale_options
from .output import OutputFile, Screen
from .plan import Plan
from .profile import Timeline, profile_option, profile_values, tell_profile
from .status import status_line
from .waves import tell_waves, waves, waves_options

if TYPE_CHECKING:
    from drivers.supernode import SuperNode
    from emu.emulator import EngineBackend
    from emu.fabric import Fabric
    from emu.faults import Faults
    from emu.kinds import NodeKind
    from emu.waves import Waves

__all__ = ["Machine", "Stopwatch", "machine_options", "rates", "replays", "timeout"]

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


def machine_options(default: str | None = None) -> Callable[[Function], Function]:
    """Add ``--topology`` (required without a ``default``), the common options and the engine's."""
    def add(function: Function) -> Function:
        for option in (
            click.option("--stall-rate", type=click.FloatRange(0, 1, max_open=True), default=0.0,
                         show_default=True, metavar="P",
                         help="Probability that a memory port stalls, per cycle."),
            click.option("--window", type=click.IntRange(1), metavar="CYCLES",
                         help="Cycles that a card runs ahead; results do not depend on it."),
            click.option("--rails", type=click.IntRange(1, 6), metavar="N",
                         help="DMA engines, each with a port of its own to the router, per card.  "
                         "[default: as the preset says]"),
            scale_options,
        ):
            function = option(function)
        function = common(fault_options(waves_options(profile_option(
            trace_options(links_options(function))))))
        need: dict[str, Any] = {"required": True} if default is None else {"default": default}
        return click.option("--topology", **need, show_default=True, metavar="SPEC",
                            help="Cards and links, e.g. ring:8, mesh:4x4, torus:2x2x2.")(function)
    return add


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The options of a run, and the machine that they describe."""

    topology: str
    preset: str
    seed: int
    rails: int | None
    window: int | None
    stall_rate: float
    threads: int | None
    lanes: int | None
    ranks: int | None
    link: str | None
    ber: float
    fail: tuple[str, ...]
    deadline: int | None
    waves: str | None
    waves_dir: str
    profile: bool
    trace: OutputFile | None
    events: OutputFile | None
    links: Any
    heatmap: OutputFile | None
    json_output: Any
    checkpoint: OutputFile | None = None
    checkpoint_every: int | None = None
    resume: str | None = None
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        with usage("--preset"):
            _check_cards(self.preset)
        with usage("--topology"):
            self.shape  # noqa: B018 - refuses a bad specification before anything is built
        self.reliable  # noqa: B018 - likewise
        self.shown  # noqa: B018 - likewise
        self.observation  # noqa: B018 - likewise
        self.checkpoints  # noqa: B018 - likewise
        if self.ranks and self.ranks > 1 and (self.checkpoint or self.resume):
            raise click.UsageError("a machine in several processes cannot be saved: accepted is "
                                   "--ranks or --checkpoint")
        if self.waves and self.checkpoint:
            raise click.UsageError("a machine that shows waves cannot be saved: accepted is "
                                   "--waves or --checkpoint")

    @cached_property
    def shape(self) -> topologies.Topology:
        """The topology."""
        return topologies.parse(self.topology)

    @property
    def faults(self) -> Faults:
        """What goes wrong on links."""
        return faults(self.shape, self.ber, self.fail)

    @property
    def reliable(self) -> bool | None:
        """Whether links are reliable; ``None`` leaves it to the preset."""
        return reliable(self.link, self.ber, self.faults.outages)

    @property
    def shown(self) -> Waves | None:
        """The waves that are asked for."""
        return waves(self.waves, self.waves_dir, self.shape)

    @cached_property
    def observation(self) -> Observation:
        """What is to be seen of the run."""
        return Observation(self.screen, self.topology, trace=self.trace, events=self.events,
                           links=self.links, heatmap=self.heatmap)

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the machine is saved, and what it goes on from."""
        return Checkpoints(file=self.checkpoint, every=self.checkpoint_every, resume=self.resume)

    @property
    def clock_ghz(self) -> float:
        """Cycles per nanosecond."""
        return find_preset(self.preset).clock_ghz

    @property
    def screen(self) -> Screen:
        """Where results go."""
        return Screen(self.json_output)

    @contextmanager
    def open(self, memory_bytes: int) -> Iterator[SuperNode]:
        """A running machine whose cards hold ``memory_bytes`` of data and what drivers keep."""
        import emu

        run_ranks(self.ranks)
        self.timeline.begin()
        with usage(), status_line("starting") as progress:
            if self.resume:
                machine = emu.restore(self.resume, window=self.window, threads=self.threads,
                                      profile=self.profile, progress=progress)
            else:
                machine = emu.open(self.topology, preset=self.preset, rails=self.rails,
                                   seed=self.seed,
                                   memory_bytes=_room(memory_bytes), window=self.window,
                                   stall_rate=self.stall_rate, threads=self.threads,
                                   lanes=self.lanes, reliable=self.reliable,
                                   faults=self.faults, deadline=self._deadline, waves=self.shown,
                                   profile=self.profile, event_log=self.observation.kinds,
                                   progress=progress)
        try:
            with (tell_waves(self.screen, self.shown, lambda: _fabric(machine)),
                  self.observation.of(lambda: _fabric(machine), self.shape, self.clock_ghz)):
                if self.profile:
                    self.timeline.close("build", _fabric(machine))
                yield machine
        finally:
            machine.close()

    def plan(self, memory_bytes: int) -> Callable[[Callable[[SuperNode], None]], Plan]:
        """Make a plan of a function that runs on such a machine."""
        def kinds() -> Sequence[NodeKind]:
            from emu import card_params
            from emu.emulator import machine_kinds

            with usage():
                return machine_kinds(self.shape, card_params(self.preset, self.reliable,
                                                              self.rails))

        def make(function: Callable[[SuperNode], None]) -> Plan:
            def run() -> None:
                with self.open(memory_bytes) as machine:
                    function(machine)
            return Plan(kinds, run)
        return make

    def keep(self, machine: SuperNode, name: str, make: Callable[[], T]) -> T:
        """What ``make`` returns, arrays and handles; in a resumed run, what it had returned."""
        return keep(self.checkpoints, machine, name, make)

    @property
    def _deadline(self) -> int:
        return self.deadline or (FAILURE_DEADLINE if self.fail else 0)

    @contextmanager
    def timed(self, machine: SuperNode) -> Iterator[Timed]:
        """Around what ``machine`` runs: its wall time. Nothing may be printed meanwhile."""
        fabric = _fabric(machine)
        if self.profile:
            self.timeline.close("python", fabric)
            fabric.first_run = None
        shared = [each.name for each in fields(self)]
        with meter(f"running on {self.topology}", lambda: fabric) as shown, \
                Timed(shown) as watch, saving(self.checkpoints, machine, shared, watch):
            yield watch
        if self.profile:
            self.timeline.close("schedule", fabric, fabric.first_run)
            self.timeline.close("python", fabric)

    def tell_profile(self, machine: SuperNode) -> dict[str, Any]:
        """Print where time went, if that is asked for; return further keys of the JSON."""
        if not self.profile:
            return {}
        self.timeline.close("verify", _fabric(machine))
        card_cycles, stepped = rates(machine)
        values = profile_values(self.timeline, _fabric(machine), {
            "card_cycles_per_s": card_cycles, "stepped_card_cycles_per_s": stepped})
        tell_profile(self.screen, values)
        return {"profile": values}


def _fabric(machine: SuperNode) -> Fabric:
    return cast("EngineBackend", machine.backend).fabric


def _check_cards(name: str) -> None:
    """Refuse a preset whose links have no class for the responses that cards send."""
    if find_preset(name).link.classes < 2:
        able = (each for each, params in PRESETS.items() if params.link.classes >= 2)
        raise ValueError(f"cards of preset {name!r} have one class of virtual channels, which only "
                         f"traffic can do with: accepted are {', '.join(able)}")


def _room(data: int) -> int:
    """Memory for ``data`` bytes: a power of two, with space for command rings and alignment."""
    return max(64 << 20, 1 << (data + (8 << 20) - 1).bit_length())


def timeout(work: int) -> int:
    """Cycles after which a run is given up that moves ``work`` bytes, or multiplies as often: a
    byte per cycle is far below any machine."""
    from drivers.handle import DEFAULT_TIMEOUT

    return DEFAULT_TIMEOUT + work


def rates(machine: SuperNode) -> tuple[float, float]:
    """Card-cycles per second of wall time, and how many of them were evaluated, not skipped."""
    statistics = cast("EngineBackend", machine.backend).statistics()
    return statistics.card_cycles_per_s, statistics.stepped_card_cycles_per_s


def replays(machine: SuperNode) -> int:
    """Flits that links have sent again."""
    return cast("EngineBackend", machine.backend).replays()


class Stopwatch:
    """Wall time of a ``with`` block, in ``seconds``, and of what an earlier process has done of
    it."""

    seconds = 0.0
    earlier = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = self.elapsed

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return self.earlier + time.perf_counter() - self._start


class Timed(Stopwatch):
    """Wall time of a run that is shown."""

    def __init__(self, shown: Meter) -> None:
        self._shown = shown

    def expect(self, bound_cycles: int, title: str | None = None) -> None:
        """What has been started takes at least ``bound_cycles``."""
        if title is not None:
            self._shown.rename(title)
        self._shown.expect(bound_cycles, "at least")
