"""Boundaries of the tiles: every port that the engine, a testbench or an FPGA top connects to.

Rules that hold on every tile (the engine relies on them):

* Outputs are functions of registers only; no path leads from an input to an output within a cycle.
* A memory read request accepted in cycle ``t`` gets its response ``latency`` cycles later or, under
  stalls, after that; responses of one port come in request order and cannot be refused, so a tile
  asks only for what it has room for. A write is visible to reads accepted in later cycles.
* ``idle`` is high only when, with empty inputs (no strobe, no valid) and ``now`` < ``wake``, the
  tile would change neither state nor outputs. ``idle`` and ``wake`` are functions of registers.
* Configuration inputs are taken through a register inside the tile, so that a simulator need not
  propagate them every cycle.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import (
    ADDRESS_BITS,
    CYCLE_BITS,
    NODE_BITS,
    CommandActivity,
    GemmActivity,
    RailActivity,
    Status,
    link_word,
    pack,
    queue_activity,
)
from .params import CardParams, LinkParams, RouterParams, SwitchParams, TrafficParams
from .registers import HOST_ADDRESS_BITS

__all__ = [
    "MEMORY_TAG_BITS", "ActivitySignature", "ComputeSignature", "ConfigSignature", "DimConfig",
    "DimKind", "GemmDone", "GemmRequest", "HostSignature", "LinkSignature", "MemoryReadSignature",
    "MemoryWriteSignature", "NetworkSignature", "RailMemorySignature", "SwitchSignature",
    "TrafficSignature", "ValidSignature", "memory_index_bits", "pack_dims",
]

#: Requester's tag, returned with the data of a memory read.
MEMORY_TAG_BITS = 4


def memory_index_bits(flit_bytes: int) -> int:
    """Width of a flit index: memory ports address whole flits."""
    return ADDRESS_BITS - (flit_bytes - 1).bit_length()


class ValidSignature(wiring.Signature):
    """A payload that cannot be refused."""

    def __init__(self, shape) -> None:
        super().__init__({"payload": Out(shape), "valid": Out(1)})


class LinkSignature(wiring.Signature):
    """One link port of a node.

    Members
    -------
    rx : ``In(link_word(params))``
        Word that arrives in this cycle.
    tx : ``Out(link_word(params))``
        Word that leaves in this cycle; straight from a register.
    up : ``In(1)``
        Signal present.
    """

    def __init__(self, params: LinkParams) -> None:
        word = link_word(params)
        super().__init__({"rx": In(word), "tx": Out(word), "up": In(1)})


class MemoryReadSignature(wiring.Signature):
    """A read port: one flit per request, responses in order.

    Members
    -------
    request : ``Out(stream.Signature({index, tag}))``
        ``index`` counts flits from address 0.
    response : ``In(ValidSignature({data, tag}))``
    """

    def __init__(self, flit_bytes: int) -> None:
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "index": unsigned(memory_index_bits(flit_bytes)),
                "tag": unsigned(MEMORY_TAG_BITS)}))),
            "response": In(ValidSignature(data.StructLayout({
                "data": unsigned(8 * flit_bytes), "tag": unsigned(MEMORY_TAG_BITS)}))),
        })


class MemoryWriteSignature(wiring.Signature):
    """A write port: one flit per request, with byte enables.

    Members
    -------
    request : ``Out(stream.Signature({data, mask, index}))``
        Bit ``i`` of ``mask`` enables byte ``i``.
    """

    def __init__(self, flit_bytes: int) -> None:
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "data": unsigned(8 * flit_bytes), "mask": unsigned(flit_bytes),
                "index": unsigned(memory_index_bits(flit_bytes))}))),
        })


class RailMemorySignature(wiring.Signature):
    """The three memory ports of a rail: tx reads (commands too), rx reads of reductions, and
    writes (completions too)."""

    def __init__(self, flit_bytes: int) -> None:
        super().__init__({
            "tx_read": Out(MemoryReadSignature(flit_bytes)),
            "rx_read": Out(MemoryReadSignature(flit_bytes)),
            "write": Out(MemoryWriteSignature(flit_bytes)),
        })


class HostSignature(wiring.Signature):
    """Register access by the host: one operation per cycle, never refused.

    Members
    -------
    valid, write, address, data : inputs
        An operation on the 64-bit register at byte ``address``.
    read_valid, read_data : outputs
        Result of a read, in order, one or more cycles later.
    completions : ``Out(32)``
        Total of completion records written: the interrupt of a world of totals.
    """

    def __init__(self) -> None:
        super().__init__({
            "valid": In(1), "write": In(1), "address": In(HOST_ADDRESS_BITS), "data": In(64),
            "read_valid": Out(1), "read_data": Out(64), "completions": Out(32),
        })


class DimKind(enum.Enum, shape=2):
    """What a dimension of a router is."""

    #: Neighbours in a row: a dimension of a mesh.
    LINE = 0
    #: The row closed to a ring: a dimension of a torus.
    RING = 1
    #: Every two nodes have a link: a full mesh.
    FULL = 2
    #: All other nodes are behind the dimension's first port: a link to a switch.
    UP = 3


class DimConfig(data.Struct):
    """One dimension of the fabric, as a router sees it.

    A node id packs one coordinate field per dimension. ``mask`` and ``size`` are in place within
    the id: ``mask`` covers the field, ``size`` is the number of nodes shifted to the field's
    position (0 in a dimension that is not there). An uplink needs a mask alone.
    """

    mask: NODE_BITS
    size: NODE_BITS + 1
    kind: DimKind


def pack_dims(dims: Iterable[Mapping[str, Any]]) -> int:
    """Pack ``DimConfig`` values of all dimensions of a router, the first at the lowest bits."""
    width = Shape.cast(DimConfig).width
    return sum(_packed_dim(*values.items()) << width * place for place, values in enumerate(dims))


@cache
def _packed_dim(*values: tuple[str, Any]) -> int:
    # Thousands of cards share a few values of a dimension.
    return int.from_bytes(pack(DimConfig, dict(values)), "little")


class ConfigSignature(wiring.Signature):
    """What a card is told once: its node id, its memory, the shape of the fabric."""

    def __init__(self, params: RouterParams) -> None:
        super().__init__({
            "node": Out(NODE_BITS),
            "memory_bytes": Out(ADDRESS_BITS + 1),
            "dims": Out(data.ArrayLayout(DimConfig, params.dims)),
        })


class GemmRequest(data.Struct):
    """A GEMM for the compute tile: where its descriptor is, and the NIC's slot."""

    descriptor: ADDRESS_BITS
    slot: 4


class GemmDone(data.Struct):
    """The end of a GEMM: every result byte has been accepted by memory."""

    slot: 4
    status: Status
    #: Cycle at which the compute tile took the request.
    started: CYCLE_BITS


class ActivitySignature(wiring.Signature):
    """What a tile is doing, for whoever looks on; nothing depends on it.

    Members are words of up to 64 bits, each a function of registers. ``starved`` has a bit per
    port: in this cycle a flit is ready to leave by it, on a virtual channel that has no credit.
    """


class NetworkSignature(wiring.Signature):
    """The network tile of a card: NIC and router."""

    def __init__(self, params: CardParams) -> None:
        flit_bytes = params.link.flit_bytes
        super().__init__({
            "now": In(CYCLE_BITS),
            "config": In(ConfigSignature(params.router)),
            "links": Out(LinkSignature(params.link)).array(params.router.links),
            "host": Out(HostSignature()),
            "memory": Out(RailMemorySignature(flit_bytes)).array(params.rails),
            "gemm": Out(stream.Signature(GemmRequest)),
            "done": In(stream.Signature(GemmDone)),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "activity": Out(ActivitySignature({
                "commands": Out(CommandActivity),
                "queues": Out(queue_activity(params.nic.queues + 1)),
                "rails": Out(RailActivity).array(params.rails),
                "starved": Out(params.router.ports)})),
        })


class ComputeSignature(wiring.Signature):
    """The compute tile of a card: the GEMM engine with its own memory ports."""

    def __init__(self, params: CardParams) -> None:
        flit_bytes = params.link.flit_bytes
        super().__init__({
            "now": In(CYCLE_BITS),
            "memory_bytes": In(ADDRESS_BITS + 1),
            "gemm": In(stream.Signature(GemmRequest)),
            "done": Out(stream.Signature(GemmDone)),
            "read": Out(MemoryReadSignature(flit_bytes)).array(params.compute.read_ports),
            "write": Out(MemoryWriteSignature(flit_bytes)),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "activity": Out(ActivitySignature({"gemm": Out(GemmActivity)})),
        })


class SwitchSignature(wiring.Signature):
    """The tile of a switch. Its host port writes the route table and reads the state of links."""

    def __init__(self, params: SwitchParams) -> None:
        super().__init__({
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "links": Out(LinkSignature(params.link)).array(params.radix),
            "host": Out(HostSignature()),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "activity": Out(ActivitySignature({"starved": Out(params.radix)})),
        })


class TrafficSignature(wiring.Signature):
    """A node of traffic: a router with a generator and checker at its local ports. Its host port
    sets the traffic up and reads what came of it."""

    def __init__(self, params: TrafficParams) -> None:
        super().__init__({
            "now": In(CYCLE_BITS),
            "config": In(ConfigSignature(params.router)),
            "links": Out(LinkSignature(params.link)).array(params.router.links),
            "host": Out(HostSignature()),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "activity": Out(ActivitySignature({"starved": Out(params.router.ports)})),
        })
