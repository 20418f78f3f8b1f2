"""Parameters of every block, as frozen dataclasses, with named presets.

A parameter set describes hardware that is elaborated (array sizes, depths, widths).
What a fabric looks like (sizes, wrap, coordinates) is *configuration*: inputs of the
tiles, so that one Verilated model serves every ring, mesh and torus.

Each value is checked where it enters; errors name the value and what is accepted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

__all__ = ["CardParams", "ComputeParams", "LinkParams", "MemoryParams", "NicParams", "PRESETS",
           "Policy", "RouterParams", "SwitchParams", "TrafficParams", "preset"]


class Policy(enum.StrEnum):
    """How an arbiter chooses."""

    #: The requester after the one served last.
    ROUND_ROBIN = "round-robin"
    #: The lowest index.
    FIXED = "fixed"


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, not {value!r}")


def _check_choice(name: str, value: int, choices: tuple[int, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class LinkParams:
    """One link: width, virtual channels, buffer depth and flight time.

    Virtual channel ``v`` belongs to class ``v // vcs_per_class``; within a class, lane
    ``v % vcs_per_class`` is 0 before a torus dateline and 1 after it.
    """

    flit_bytes: int = 32
    #: Cycles from a word in the sender's output register to the receiver's input pins.
    latency: int = 16
    classes: int = 2
    vcs_per_class: int = 2
    #: Flits buffered per VC at the receiver. Full rate on one VC needs at least the credit
    #: round trip: two flight times plus the pipeline of both ends.
    vc_depth: int = 48
    #: Width of flit sequence numbers; twice the replay window must fit.
    seq_bits: int = 10
    #: Survive bit errors: CRC, sequence numbers, replay, and a bring-up that compares both ends.
    #: A plain link delivers every flit in the same cycle as a reliable one without errors.
    reliable: bool = False
    #: Of a reliable link: it repeats its totals whenever ``now`` is a multiple of this, a power of
    #: two; unanswered flits are sent again after one to two of these.
    refresh: int = 256

    def __post_init__(self) -> None:
        _check_choice("flit_bytes", self.flit_bytes, (16, 32, 64))
        _check_range("latency", self.latency, 1, 4096)
        _check_range("classes", self.classes, 1, 4)
        _check_range("vcs_per_class", self.vcs_per_class, 1, 8)
        _check_range("vc_depth", self.vc_depth, 2, 1024)
        _check_range("seq_bits", self.seq_bits, 4, 16)
        _check_choice("refresh", self.refresh, tuple(1 << bits for bits in range(4, 17)))
        if self.reliable and 2 * self.replay_depth > 1 << self.seq_bits:
            raise ValueError(f"seq_bits must be at least {self.replay_depth.bit_length()} for a "
                             f"replay window of {self.replay_depth} flits, not {self.seq_bits}")

    @property
    def flit_bits(self) -> int:
        return 8 * self.flit_bytes

    @property
    def vcs(self) -> int:
        return self.classes * self.vcs_per_class

    @property
    def vc_bits(self) -> int:
        return max(1, (self.vcs - 1).bit_length())

    @property
    def total_bits(self) -> int:
        """Width of a freed-credit total: its modulus is above the depth it counts."""
        return self.vc_depth.bit_length()

    @property
    def replay_depth(self) -> int:
        """Flits that may be unacknowledged on a reliable link: a power of two of at least the
        round trip from a reserved place to the ack that frees it (see ``link/replay``)."""
        return 1 << (2 * self.latency + 7).bit_length()


@dataclass(frozen=True, kw_only=True)
class RouterParams:
    """An input-buffered virtual-channel router.

    Ports are numbered dimension by dimension, then one local port per rail. What a dimension is
    (line, ring, full mesh, uplink) is configuration; its number of ports is elaborated. A line or
    ring takes the first two ports of its dimension, + first; a full mesh of n nodes n − 1 of them,
    in the order of the other nodes' coordinates; an uplink the first one.
    """

    link: LinkParams = field(default_factory=LinkParams)
    #: Link ports of each dimension.
    dim_ports: tuple[int, ...] = (2, 2, 2)
    rails: int = 1
    #: Minimal adaptive routing: the lanes of a class are escape lanes (see ``fabric/route``) and,
    #: above them, adaptive ones.
    adaptive: bool = False
    #: Bits of the destination that index the route table; 0 for computed routes alone.
    table_bits: int = 0

    def __post_init__(self) -> None:
        _check_range("number of dimensions", len(self.dim_ports), 1, 4)
        for ports in self.dim_ports:
            _check_range("ports of a dimension", ports, 1, 63)
        _check_range("rails", self.rails, 1, 6)
        _check_range("ports of a router", self.ports, 2, 64)
        _check_range("table_bits", self.table_bits, 0, 12)

    @property
    def dims(self) -> int:
        """Number of dimensions."""
        return len(self.dim_ports)

    def port_base(self, dim: int) -> int:
        """First port of a dimension."""
        return sum(self.dim_ports[:dim])

    @property
    def links(self) -> int:
        """Number of link ports."""
        return sum(self.dim_ports)

    @property
    def ports(self) -> int:
        """Number of ports, local ones included."""
        return self.links + self.rails


@dataclass(frozen=True, kw_only=True)
class SwitchParams:
    """An input-queued crossbar switch. ``link.vc_depth`` is the buffer of one class at one input,
    shared by its virtual output queues; only lane 0 of a class is in use.

    The outputs are spread over ``speedup`` *planes*: output ``p`` is number ``p // speedup`` of
    plane ``p % speedup``.
    """

    link: LinkParams = field(default_factory=LinkParams)
    radix: int = 48
    #: Of iSLIP, per cycle.
    iterations: int = 2
    policy: Policy = Policy.ROUND_ROBIN
    #: Flits that an input may give per cycle, each to an output of another plane.
    speedup: int = 2
    #: Bits of the destination that index a level of the route table.
    table_bits: int = 8

    def __post_init__(self) -> None:
        _check_range("radix", self.radix, 2, 64)
        _check_range("iterations", self.iterations, 1, 8)
        _check_choice("speedup", self.speedup, (1, 2, 4))
        _check_range("table_bits", self.table_bits, 1, 12)
        if not isinstance(self.policy, Policy):
            raise ValueError(f"policy must be one of {', '.join(map(str, Policy))}, "
                             f"not {self.policy!r}")

    @property
    def port_bits(self) -> int:
        return (self.radix - 1).bit_length()

    @property
    def plane_ports(self) -> int:
        """Outputs of a plane."""
        return -(-self.radix // self.speedup)

    @property
    def plane_bits(self) -> int:
        """Bits that number them."""
        return max(1, (self.plane_ports - 1).bit_length())


@dataclass(frozen=True, kw_only=True)
class TrafficParams:
    """A node that makes and checks traffic in place of a card: a router and a generator."""

    router: RouterParams = field(default_factory=RouterParams)
    #: Destinations that a node may be given with weights of their own.
    targets: int = 16
    #: Bins of the latency histogram.
    bins: int = 1024

    def __post_init__(self) -> None:
        _check_range("targets", self.targets, 1, 64)
        _check_range("bins", self.bins, 16, 1 << 16)

    @property
    def link(self) -> LinkParams:
        return self.router.link


@dataclass(frozen=True, kw_only=True)
class MemoryParams:
    """Card memory as its ports see it: every port moves at most one flit per cycle."""

    #: Cycles from the acceptance of a read request to its data on the response port.
    latency: int = 64

    def __post_init__(self) -> None:
        _check_range("memory latency", self.latency, 2, 4096)


@dataclass(frozen=True, kw_only=True)
class NicParams:
    """The network interface: queues, counters and the depth of what is in flight."""

    queues: int = 4
    counters: int = 64
    #: Bytes between the target-address boundaries at which packets split.
    mtu: int = 1024
    #: Commands in flight per card (accepted, not yet complete).
    slots: int = 16
    #: Commands that the direct doorbell window holds before the scheduler takes them.
    direct_depth: int = 4
    #: Flits of read data buffered per read stream; full rate needs more than the memory latency.
    read_depth: int = 128
    #: Packets that may be under read-modify-write at once.
    rmw_packets: int = 16

    def __post_init__(self) -> None:
        _check_range("queues", self.queues, 1, 8)
        _check_range("counters", self.counters, 1, 256)
        _check_choice("mtu", self.mtu, (256, 512, 1024, 2048, 4096))
        _check_choice("slots", self.slots, (2, 4, 8, 16))
        _check_range("direct_depth", self.direct_depth, 1, 64)
        _check_range("read_depth", self.read_depth, 4, 4096)
        _check_range("rmw_packets", self.rmw_packets, 1, 64)


@dataclass(frozen=True, kw_only=True)
class ComputeParams:
    """The FP8 GEMM array: ``array`` × ``array`` multiply-accumulators."""

    array: int = 16

    def __post_init__(self) -> None:
        _check_choice("array", self.array, (4, 8, 16, 32, 64))

    @property
    def read_ports(self) -> int:
        """Memory read ports: array ÷ 8 flits per cycle, at least one."""
        return max(1, self.array // 8)


@dataclass(frozen=True, kw_only=True)
class CardParams:
    """An accelerator card: NIC, router, compute array and memory."""

    router: RouterParams = field(default_factory=RouterParams)
    nic: NicParams = field(default_factory=NicParams)
    compute: ComputeParams = field(default_factory=ComputeParams)
    memory: MemoryParams = field(default_factory=MemoryParams)
    #: Cycles between the instants at which the host sees and acts.
    host_quantum: int = 64
    #: Converts cycles to time in reports, and nothing else.
    clock_ghz: float = 1.0

    def __post_init__(self) -> None:
        _check_range("host_quantum", self.host_quantum, 1, 1 << 20)
        if not 0 < self.clock_ghz <= 100:
            raise ValueError(f"clock_ghz must be above 0 and at most 100, not {self.clock_ghz!r}")

    @property
    def link(self) -> LinkParams:
        return self.router.link

    @property
    def rails(self) -> int:
        return self.router.rails


#: Named machines, so that numbers mean the same everywhere.
PRESETS: Mapping[str, CardParams] = MappingProxyType({
    "default": CardParams(),
    # What network simulators compare with: links of one cycle, one class of four short VCs.
    "booksim": CardParams(
        router=RouterParams(link=LinkParams(latency=1, classes=1, vcs_per_class=4, vc_depth=8))),
    # Small buffers and array: the same behaviour in tests for a fraction of the build.
    "small": CardParams(
        router=RouterParams(dim_ports=(2,)),
        nic=NicParams(queues=2, counters=16, mtu=256, slots=4),
        compute=ComputeParams(array=4)),
})


def preset(name: str, **changes: object) -> CardParams:
    """Return the preset called ``name`` with top-level fields replaced by ``changes``.

    Raises
    ------
    ValueError
        If there is no such preset.
    """
    try:
        base = PRESETS[name]
    except KeyError:
        raise ValueError(f"unknown preset {name!r}: accepted are {', '.join(PRESETS)}") from None
    return replace(base, **changes)  # type: ignore[arg-type]
