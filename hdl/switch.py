"""The tile of a switch: the crossbar with a host port, as the engine and an FPGA have it.

Latency law: that of ``fabric/switch`` from pins to pins. A read of a register is answered two
cycles later. A write of the route table counts from three cycles later.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import flipped

from .connect import connect
from .fabric.switch import Switch
from .layouts import NODE_BITS, RouteWrite
from .params import SwitchParams
from .ports import SwitchSignature
from .switch_registers import SWITCH_IDENT, SwitchRegisterMap

__all__ = ["SwitchTile"]


class SwitchTile(wiring.Component):
    """A crossbar switch whose host port writes the route tables and reads the state of links.

    Parameters
    ----------
    params : SwitchParams

    Members: see :class:`~hdl.ports.SwitchSignature`, registers in
    :class:`~hdl.switch_registers.SwitchRegisterMap`.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(SwitchSignature(params))

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, host = self._params, self.host
        registers = SwitchRegisterMap(params.radix)
        m.submodules.switch = switch = Switch(params)
        node = Signal(NODE_BITS, reset_less=True)
        m.d.sync += node.eq(self.node)
        m.d.comb += [
            switch.now.eq(self.now),
            switch.node.eq(self.node),
            self.wake.eq(switch.wake),
            self.activity.starved.eq(switch.starved),
        ]
        for pins, link in zip(switch.links, self.links, strict=True):
            connect(m, pins, flipped(link))

        # An operation is taken into a register first, so that nothing waits on the pins.
        taken, write = Signal(), Signal()
        address, value = Signal.like(host.address), Signal(64)
        answering, answer = Signal(), Signal(64)
        m.d.sync += [taken.eq(host.valid), answering.eq(taken & ~write)]
        with m.If(host.valid):
            m.d.sync += [write.eq(host.write), address.eq(host.address), value.eq(host.data)]
        with m.If(taken):
            m.d.sync += answer.eq(0)
            with m.Switch(address):
                with m.Case(registers.ident.at()):
                    m.d.sync += answer.eq(SWITCH_IDENT)
                with m.Case(registers.radix.at()):
                    m.d.sync += answer.eq(params.radix)
                with m.Case(registers.node.at()):
                    m.d.sync += answer.eq(node)
                for port in range(params.radix):
                    with m.Case(registers.link.at(port)):
                        m.d.sync += answer.eq(switch.status[port])
        m.d.comb += [
            switch.table.valid.eq(taken & write & (address == registers.table.at())),
            switch.table.payload.eq(data.View(RouteWrite, value[:RouteWrite.as_shape().size])),
            host.read_valid.eq(answering),
            host.read_data.eq(answer),
            self.idle.eq(switch.idle & ~taken & ~answering),
        ]
        return m
