"""The host port of a card: registers decoded from the register map, doorbells stamped.

An operation enters a register first, so that the pins of the host reach no logic within their
cycle. The decoder is generated from :class:`hdl.registers.RegisterMap`: a register that the map has
and this block does not serve cannot exist.

Latency law: a write is seen by the card two cycles after its cycle at the port, a read is answered
two cycles after it. A doorbell's stamp is its cycle at the port.

Flow-control invariant: one operation per cycle is always accepted, and reads are answered in order.
"""

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS
from hdl.params import NicParams
from hdl.ports import HostSignature, ValidSignature
from hdl.registers import HOST_ADDRESS_BITS, IDENT, Register, RegisterMap

__all__ = ["HostPort", "WindowWord"]

#: Registers that live in a memory with a read port of its own.
_MEMORIES = ("counter",)


class WindowWord(data.Struct):
    """A write to the doorbell window."""

    index: 3
    data: 64
    #: Cycle of the write at the port.
    stamp: CYCLE_BITS


def _plain(registers: RegisterMap) -> list[Register]:
    """The registers that are members of :class:`HostPort`."""
    return [register for register in registers
            if register.access != "wo" and register.name not in ("ident", *_MEMORIES)]


class HostPort(wiring.Component):
    """Registers as the host sees them.

    Members
    -------
    now : ``In(48)``
    host : ``Out(HostSignature())``
    NAME : ``Out(64)`` for each ``rw`` register of the map, ``In(64)`` for each ``ro`` one
        An array for registers that come per queue or per link. ``ident`` is answered here.
    rung : ``Out(48).array(queues)``
        Cycle of each queue's latest doorbell.
    counter_index, counter_total : ``Out(8)``, ``In(32)``
        The counter that the host reads.
    window : ``Out(ValidSignature(WindowWord))``
        A write to the doorbell window.
    active : ``Out(1)``
        An operation is under way.
    """

    def __init__(self, params: NicParams, *, links: int = 0) -> None:
        self._params = params
        self._map = RegisterMap(params, links)
        members = {}
        for register in _plain(self._map):
            member = Out(64) if register.access == "rw" else In(64)
            several = register.name == "link" or register.name.startswith("queue_")
            members[register.name] = member.array(register.count) if several else member
        super().__init__({
            "now": In(CYCLE_BITS),
            "host": Out(HostSignature()),
            "rung": Out(CYCLE_BITS).array(params.queues),
            "counter_index": Out(8),
            "counter_total": In(32),
            "window": Out(ValidSignature(WindowWord)),
            "active": Out(1),
            **members,
        })

    def _elements(self, register: Register):
        """Pairs of byte offset and member of every element of ``register``."""
        member = getattr(self, register.name)
        elements = member if isinstance(member, (list, tuple)) else [member]
        return [(register.at(index), element) for index, element in enumerate(elements)]

    def elaborate(self, platform) -> Module:
        m = Module()
        host = self.host

        valid, write = Signal(), Signal()
        address, word = Signal(HOST_ADDRESS_BITS), Signal(64)
        stamp = Signal(CYCLE_BITS)
        m.d.sync += valid.eq(host.valid)
        with m.If(host.valid):
            m.d.sync += [write.eq(host.write), address.eq(host.address), word.eq(host.data),
                         stamp.eq(self.now)]

        plain = _plain(self._map)
        with m.If(valid & write), m.Switch(address):
            for register in plain:
                if register.access != "rw":
                    continue
                for index, (offset, element) in enumerate(self._elements(register)):
                    with m.Case(offset):
                        m.d.sync += element.eq(word)
                        if register.name == "queue_tail":
                            m.d.sync += self.rung[index].eq(stamp)

        inside, item = self._range(m, address, self._map.direct)
        m.d.comb += [self.window.valid.eq(valid & write & inside),
                     self.window.payload.index.eq(item),
                     self.window.payload.data.eq(word),
                     self.window.payload.stamp.eq(stamp)]

        inside, item = self._range(m, address, self._map.counter)
        m.d.comb += self.counter_index.eq(item)
        m.d.sync += host.read_valid.eq(valid & ~write)
        with m.If(valid & ~write):
            m.d.sync += host.read_data.eq(0)
            with m.If(inside):
                m.d.sync += host.read_data.eq(self.counter_total)
            with m.Switch(address):
                with m.Case(self._map.ident.at()):
                    m.d.sync += host.read_data.eq(IDENT)
                for register in plain:
                    for offset, element in self._elements(register):
                        with m.Case(offset):
                            m.d.sync += host.read_data.eq(element)
        m.d.comb += host.completions.eq(self.completion_tail)
        m.d.comb += self.active.eq(valid | host.read_valid)
        return m

    @staticmethod
    def _range(m: Module, address: Signal, register: Register):
        """Whether ``address`` is an element of ``register``, and which."""
        if register.stride != 8:
            raise ValueError(f"register {register.name} must have a stride of 8")
        inside, item = Signal(), Signal(8)
        delta = Signal(unsigned(HOST_ADDRESS_BITS))
        m.d.comb += delta.eq(address - register.offset)
        m.d.comb += inside.eq((address >= register.offset) & (delta < 8 * register.count)
                              & (delta[:3] == 0))
        m.d.comb += item.eq(delta[3:])
        return inside, item
