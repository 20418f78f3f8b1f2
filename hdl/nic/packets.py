"""What tx and rx agree on about packets, with the reference model of both.

The constants and predicates here serve RTL, benches and models; the formats themselves are in
``hdl/layouts.py``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from amaranth.lib import data

from hdl.compute.elements import is_reducible
from hdl.layouts import (
    ADDRESS_BITS,
    NO_COUNTER,
    NODE_BITS,
    PacketOp,
    Status,
)
from hdl.params import LinkParams

__all__ = ["HEADER_BYTES", "LENGTH_BITS", "PACKET_VERSION", "REQUEST_CLASS",
           "RESPONSE_CLASS", "Reply", "class_vc", "header_flits", "packet_count", "refusal",
           "split"]

#: Version of the packet format that tx writes and rx accepts.
PACKET_VERSION = 0
HEADER_BYTES = 32
#: Width of a packet's length field.
LENGTH_BITS = 13
REQUEST_CLASS = 0
RESPONSE_CLASS = 1


class Reply(data.Struct):
    """What rx has tx send back for a request."""

    dst: NODE_BITS
    slot: 4
    generation: 3
    tag: 16
    ack: 1
    status: Status
    address: ADDRESS_BITS
    length: LENGTH_BITS


def class_vc(params: LinkParams, klass: int) -> int:
    """Virtual channel on which a class enters and leaves a rail: its lane 0."""
    return klass * params.vcs_per_class


def header_flits(params: LinkParams) -> int:
    """Flits that a header takes: two at 16 B, else one."""
    return max(1, HEADER_BYTES // params.flit_bytes)


def packet_count(target: int, length: int, mtu: int) -> int:
    """Packets of a transfer: ⌈(target mod mtu + length) ÷ mtu⌉, and one if it is empty."""
    return max(1, -(-(target % mtu + length) // mtu))


def split(target: int, length: int, mtu: int) -> Iterator[tuple[int, int]]:
    """Yield (address, length) of the packets of a transfer, in order."""
    while True:
        size = min(length, mtu - target % mtu)
        yield target, size
        target, length = target + size, length - size
        if not length:
            return


def refusal(header: Mapping[str, Any], *, memory_bytes: int, counters: int, flit_bytes: int = 32,
            extension: Mapping[str, Any] | None = None) -> Status:
    """Why rx refuses a request with this unpacked header, and extension if it has one; ``OK`` if it
    does not."""
    if (header["version"] != PACKET_VERSION or header["op"] not in (PacketOp.WRITE, PacketOp.REDUCE)
            or (extension and header["op"] is not PacketOp.REDUCE)):
        return Status.BAD_COMMAND
    addend = extension["address"] if extension else header["address"]
    if max(header["address"], addend) + header["length"] > memory_bytes:
        return Status.TARGET_RANGE
    if header["counter"] >= counters and header["counter"] != NO_COUNTER:
        return Status.BAD_COUNTER
    if header["op"] is PacketOp.REDUCE and (
            not is_reducible(header["dtype"], header["redop"], header["address"] | header["length"])
            or (addend - header["address"]) % flit_bytes):
        return Status.BAD_DTYPE
    if header["flags"]["poison"]:
        return Status.POISON
    return Status.OK
