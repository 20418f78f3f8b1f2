"""The network interface of a card: control side, rails, and the memory ports they share.

::

        host ──► control ──transfers──► rail 0 … rail R−1 ◄──► router (local port per rail)
                  │   ▲ done, responses, increments │  │
           fetch, records                       tx_read, rx_read, write
                  └────────► arbiters of rail 0 ◄───┘
                                    │
                                memory[0]               memory[1 …]

Command fetches share rail 0's tx read port and completion records its write port; the three
memory ports of the other rails are their own. Every output is a function of registers.
"""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from hdl.connect import connect
from hdl.layouts import (
    ADDRESS_BITS,
    CYCLE_BITS,
    NODE_BITS,
    CommandActivity,
    LinkStatus,
    RailActivity,
    RouteWrite,
    queue_activity,
)
from hdl.params import CardParams
from hdl.ports import (
    GemmDone,
    GemmRequest,
    HostSignature,
    LinkSignature,
    RailMemorySignature,
    ValidSignature,
)

from .control import Control
from .memory import ReadArbiter, WriteArbiter
from .rail import Rail

__all__ = ["Nic"]


class Nic(wiring.Component):
    """NIC of a card.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    now, node, memory_bytes : inputs
        Global cycle; this card's node id and memory size, already registered.
    status : ``In(data.ArrayLayout(LinkStatus, links))``
        State of the router's links.
    table : ``Out(ValidSignature(RouteWrite))``
        Writes to the router's table; only with ``table_bits``.
    host : ``Out(HostSignature())``
    memory : ``Out(RailMemorySignature(flit_bytes)).array(rails)``
    gemm, done : streams to and from the compute tile
    locals : ``Out(LinkSignature(link)).array(rails)``
        To the router's local ports.
    idle, wake : ``Out(1)``, ``Out(48)``
        With empty inputs nothing would change before ``wake``.
    commands, queues, activity : outputs
        What is being done; the last one an array over the rails.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        flit_bytes = params.link.flit_bytes
        super().__init__({
            "now": In(CYCLE_BITS), "node": In(NODE_BITS), "memory_bytes": In(ADDRESS_BITS + 1),
            "status": In(data.ArrayLayout(LinkStatus, params.router.links)),
            "host": Out(HostSignature()),
            "memory": Out(RailMemorySignature(flit_bytes)).array(params.rails),
            "gemm": Out(stream.Signature(GemmRequest)),
            "done": In(stream.Signature(GemmDone)),
            "locals": Out(LinkSignature(params.link)).array(params.rails),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "commands": Out(CommandActivity),
            "queues": Out(queue_activity(params.nic.queues + 1)),
            "activity": Out(RailActivity).array(params.rails),
            **({"table": Out(ValidSignature(RouteWrite))} if params.router.table_bits else {}),
        })

    @property
    def params(self) -> CardParams:
        return self._params

    def elaborate(self, platform):
        m = Module()
        params = self._params
        m.submodules.control = control = Control(params)
        rails = [Rail(params, index) for index in range(params.rails)]
        m.d.comb += [control.now.eq(self.now), control.node.eq(self.node),
                     control.memory_bytes.eq(self.memory_bytes), control.status.eq(self.status),
                     self.wake.eq(control.wake), self.commands.eq(control.commands),
                     self.queues.eq(control.queues)]
        if params.router.table_bits:
            connect(m, control.table, flipped(self.table))
        connect(m, control.host, flipped(self.host))
        connect(m, control.gemm, flipped(self.gemm))
        connect(m, control.done, flipped(self.done))

        idle = [control.idle]
        # What one side hands to the other in this cycle changes the receiver's state.
        busy = []
        for index, rail in enumerate(rails):
            m.submodules[f"rail{index}"] = rail
            m.d.comb += [rail.node.eq(self.node), rail.memory_bytes.eq(self.memory_bytes),
                         self.activity[index].eq(rail.activity)]
            connect(m, control.transfers[index], rail.transfer)
            connect(m, rail.done, control.transfer_done[index])
            connect(m, rail.response, control.responses[index])
            connect(m, rail.increment, control.increments[index])
            m.d.comb += [control.sent[index].eq(rail.sent),
                         control.received[index].eq(rail.received)]
            connect(m, rail.local, flipped(self.locals[index]))
            memory = self.memory[index]
            connect(m, rail.rx_read, flipped(memory.rx_read))
            if index == 0:
                m.submodules.reads = reads = ReadArbiter(flit_bytes=params.link.flit_bytes)
                m.submodules.writes = writes = WriteArbiter(flit_bytes=params.link.flit_bytes)
                connect(m, rail.tx_read, reads.tx)
                connect(m, control.fetch, reads.fetch)
                connect(m, reads.port, flipped(memory.tx_read))
                connect(m, rail.write, writes.payload)
                connect(m, control.records, writes.records)
                connect(m, writes.port, flipped(memory.write))
            else:
                connect(m, rail.tx_read, flipped(memory.tx_read))
                connect(m, rail.write, flipped(memory.write))
            idle.append(rail.idle)
            busy += [rail.done.valid, rail.response.valid, rail.increment.valid,
                     rail.sent, rail.received]
        m.d.comb += self.idle.eq(Cat(*idle).all() & ~Cat(*busy).any())
        return m
