"""Which commands a card accepts: one rule in hardware and in Python.

A command is looked at once, at the head of its queue. The first of these that applies is its
status; a refused command neither waits nor moves anything.

1. ``BAD_COMMAND``: operation unknown or not built (ROUTE needs a route table), reserved bits set,
   ``count`` above 1, rail that the card does not have.
2. ``BAD_COUNTER``: a counter of this card (``wait_counter`` if it waits, ``local_counter``) that
   the card does not have. Waiting for ``NO_COUNTER`` is one, since it could never end.
3. ``BAD_DTYPE``: a REDUCE of a type or by an operator that there is not
   (:mod:`hdl.compute.elements`), or whose target offset or length is not a multiple of the element,
   or whose addend and target differ modulo the flit.
4. ``BAD_DESCRIPTOR``: a GEMM whose descriptor is not at a multiple of 128.
5. ``SOURCE_RANGE``: source bytes, or descriptor, beyond the card's memory.

The target's memory range and counter are checked by the target, the descriptor's contents by the
compute tile.

Latency law: combinational.
"""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.compute.elements import is_reducible, reducible
from hdl.layouts import (
    ADDRESS_BITS,
    NO_COUNTER,
    Command,
    Op,
    Order,
    Status,
    pack,
    unpack,
)
from hdl.params import CardParams

__all__ = ["DESCRIPTOR_BYTES", "CommandCheck", "check_command"]

#: Size and alignment of a GEMM's descriptor.
DESCRIPTOR_BYTES = 128

_BUILT = (Op.NOP, Op.FENCE, Op.WRITE, Op.REDUCE, Op.GEMM)


def check_command(params: CardParams, command: Mapping[str, Any], memory_bytes: int) -> Status:
    """Return the status with which a card refuses ``command`` (fields of
    :class:`~hdl.layouts.Command`), or ``Status.OK`` if it accepts it.

    >>> check_command(CardParams(), {"op": Op.WRITE, "length": 64, "source": 1}, 64).name
    'SOURCE_RANGE'
    """
    fields = unpack(Command, pack(Command, command))
    op, flags, counters = fields["op"], fields["flags"], params.nic.counters
    moves = op in (Op.WRITE, Op.REDUCE)
    built = op in _BUILT or (op is Op.ROUTE and params.router.table_bits > 0)
    if (not built or fields["reserved"] or any(fields["argument"]["operands"].values())
            or any(flags[name] for name in ("inline", "reserved"))
            or (fields["addend"] and not flags["addend"])
            or (flags["addend"] and op is not Op.REDUCE)
            or flags["order"] is not Order.NONE or fields["count"] > 1
            or (moves and fields["rail"] >= params.rails)):
        return Status.BAD_COMMAND
    local = fields["local_counter"]
    if local != NO_COUNTER and local >= counters:
        return Status.BAD_COUNTER
    if flags["wait"] and fields["wait_counter"] >= min(counters, NO_COUNTER):
        return Status.BAD_COUNTER
    offset = fields["target"]["offset"]
    if op is Op.REDUCE and (
            not is_reducible(fields["dtype"], fields["redop"], offset | fields["length"])
            or (flags["addend"] and (fields["addend"] - offset) % params.link.flit_bytes)):
        return Status.BAD_DTYPE
    if op is Op.GEMM and fields["source"] % DESCRIPTOR_BYTES:
        return Status.BAD_DESCRIPTOR
    size = fields["length"] if moves else DESCRIPTOR_BYTES if op is Op.GEMM else None
    if size is not None and fields["source"] + size > memory_bytes:
        return Status.SOURCE_RANGE
    return Status.OK


class CommandCheck(wiring.Component):
    """:func:`check_command` in hardware.

    Members
    -------
    command : ``In(Command)``
    memory_bytes : ``In(49)``
    status : ``Out(Status)``
    moves, gemm, fence, route : ``Out(1)``
        Kind of the operation, whatever the status.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        super().__init__({
            "command": In(Command), "memory_bytes": In(ADDRESS_BITS + 1), "status": Out(Status),
            "moves": Out(1), "gemm": Out(1), "fence": Out(1), "route": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        command, counters = self.command, self._params.nic.counters
        m.d.comb += [self.moves.eq((command.op == Op.WRITE) | (command.op == Op.REDUCE)),
                     self.gemm.eq(command.op == Op.GEMM),
                     self.fence.eq(command.op == Op.FENCE)]
        if self._params.router.table_bits:
            m.d.comb += self.route.eq(command.op == Op.ROUTE)

        bad_command, bad_counter, bad_dtype = Signal(), Signal(), Signal()
        built = self.moves | self.gemm | self.fence | self.route | (command.op == Op.NOP)
        flags = command.flags
        addend = flags.addend
        reserved = (command.reserved.any() | flags.inline
                    | Mux(addend, command.op != Op.REDUCE, command.addend.any())
                    | (flags.order != Order.NONE) | flags.reserved
                    | command.argument.operands.as_value().any())
        m.d.comb += bad_command.eq(~built | reserved | (command.count > 1)
                                   | (self.moves & (command.rail >= self._params.rails)))

        local = command.local_counter
        m.d.comb += bad_counter.eq(
            ((local >= counters) & (local != NO_COUNTER))
            | (command.flags.wait & (command.wait_counter >= min(counters, NO_COUNTER))))

        lanes = (self._params.link.flit_bytes - 1).bit_length()
        unlike = Signal()
        m.d.comb += unlike.eq(addend & (command.addend[:lanes] != command.target.offset[:lanes]))
        m.d.comb += bad_dtype.eq(
            (command.op == Op.REDUCE)
            & (~reducible(command.dtype.as_value(), command.redop.as_value(),
                          command.target.offset | command.length) | unlike))

        length, end = Signal(32), Signal(ADDRESS_BITS + 2)
        m.d.comb += length.eq(Mux(self.gemm, DESCRIPTOR_BYTES, command.length))
        m.d.comb += end.eq(command.source + length)

        with m.If(bad_command):
            m.d.comb += self.status.eq(Status.BAD_COMMAND)
        with m.Elif(bad_counter):
            m.d.comb += self.status.eq(Status.BAD_COUNTER)
        with m.Elif(bad_dtype):
            m.d.comb += self.status.eq(Status.BAD_DTYPE)
        with m.Elif(self.gemm & command.source[:7].any()):
            m.d.comb += self.status.eq(Status.BAD_DESCRIPTOR)
        with m.Elif((self.moves | self.gemm) & (end > self.memory_bytes)):
            m.d.comb += self.status.eq(Status.SOURCE_RANGE)
        with m.Else():
            m.d.comb += self.status.eq(Status.OK)
        return m
