"""Streams between the control side of the NIC (queues, counters, completions) and its rails."""

from amaranth.lib import data

from hdl.layouts import ADDRESS_BITS, NODE_BITS, DType, GlobalAddress, PacketOp, ReduceOp, Status

__all__ = ["Response", "Transfer", "TransferDone"]


class Transfer(data.Struct):
    """Work for a rail's tx: read ``length`` bytes at ``source`` and send them to ``target``.

    Already checked by control: the source range lies in this card's memory, operation, type and
    alignment are supported.
    """

    slot: 4
    generation: 3
    op: PacketOp
    ack: 1
    dtype: DType
    redop: ReduceOp
    counter: 8
    tag: 16
    source: ADDRESS_BITS
    target: GlobalAddress
    #: Its packets have extensions.
    extended: 1
    addend: ADDRESS_BITS
    length: 32
    key: 32
    path: 8


class TransferDone(data.Struct):
    """A transfer's last flit has left for the router. One valid cycle, never refused."""

    slot: 4
    #: Packets sent: as many responses are to be expected if ``ack`` was set.
    packets: 32


class Response(data.Struct):
    """A response has arrived from the fabric. One valid cycle, never refused."""

    slot: 4
    generation: 3
    #: The request asked for it; otherwise it reports an error of a command that may be long done.
    ack: 1
    status: Status
    tag: 16
    peer: NODE_BITS
    #: Port of ``peer`` whose link died, for ``LINK_DOWN``; otherwise 0.
    link: 8
