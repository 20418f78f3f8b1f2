"""Switch: an input-queued crossbar with virtual output queues and iSLIP.

::

    cycle      r                    r + 1              r + 2          r + 3             r + 4
           ┌─────────┐         ┌──────────────┐    ┌──────────┐   ┌────────────┐
    rx pins│ look up │  bits   │ match inputs │pop │ read RAM │   │ cross,     │  tx   tx pins
    ──────►│ port,   ├────────►│ and outputs, ├───►│ of the   ├──►│ form word  ├──────►
           │ write   │         │ charge credit│    │ queues   │   │            │
           └─────────┘         └──────┬───────┘    └──────────┘   └────────────┘
                                      └─► freed total of the input, on its way back at r + 3

Every port is a link endpoint with virtual output queues behind it: one queue per class and output,
all in one buffer that the link's credits account for. A packet that waits for one output holds up
nobody who goes to another, as long as the buffer has room.

**Latency law.** Unloaded, a word on the rx pins in cycle ``r`` is on the tx pins in ``r + 4``, and
the flits of a packet follow one per cycle (cut-through). A flow that is alone keeps a link full as
long as the buffer covers the credit round trip, ``2 latency + 6`` cycles plus up to
``classes - 1`` for totals of other classes that are told first.

**Flow control.** A head takes the virtual channel of its class at an output and its tail returns
it: packets of a class do not interleave, packets of different classes may, flit by flit. Credits
are charged when the match is made, two cycles before the flit reaches the endpoint. Both ends use
lane 0 of each class; the switch has no wrap, so it needs no others. Packets of one input, output
and class leave in the order in which they came.

**Why it cannot deadlock.** A class never waits for another (see ``scheduler``), and a packet holds
one output while it waits for credit there only: its rest can always come in (see ``voq``). So a
switch adds to the channels' dependencies just those from an input to the output of a route, as a
FIFO would, and what is acyclic about the routes is acyclic with switches in them.

**Idle.** A switch without flits, without words in its output registers and without totals to tell
changes nothing, pointers of arbiters included.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.scheduler import SwitchScheduler
from hdl.fabric.switch_port import SwitchPort
from hdl.fabric.table import SwitchRegion, table_entry
from hdl.layouts import flit
from hdl.params import SwitchParams
from hdl.ports import LinkSignature, ValidSignature

__all__ = ["Switch"]


class Switch(wiring.Component):
    """A crossbar switch.

    Members
    -------
    region : ``In(SwitchRegion)``
        Which destinations are near; configuration.
    table : ``In(ValidSignature(table_entry(params)))``
        Writes an entry of the port table, which counts from two cycles later, while there is no
        traffic that meets it.
    links : ``Out(LinkSignature(link)).array(radix)``
    idle : ``Out(1)``
        With empty inputs nothing changes.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__({
            "region": In(SwitchRegion),
            "table": In(ValidSignature(table_entry(params))),
            "links": Out(LinkSignature(params.link)).array(params.radix),
            "idle": Out(1),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, link = self._params, self._params.link
        m.submodules.scheduler = scheduler = SwitchScheduler(params)

        # They follow their inputs during reset, so that a tile out of reset is settled.
        region = Signal(SwitchRegion, reset_less=True)
        entry = Signal(table_entry(params), reset_less=True)
        entering = Signal()
        m.d.sync += [region.eq(self.region), entering.eq(self.table.valid)]
        with m.If(self.table.valid):
            m.d.sync += entry.eq(self.table.payload)

        # The crossbar: a row per input that holds the flit on its way, read by every output.
        m.submodules.crossbar = crossbar = memory.Memory(
            shape=flit(link), depth=params.radix, init=[])
        ports = []
        for index, pins in enumerate(self.links):
            m.submodules[f"shared_port{index}"] = port = SwitchPort(params)
            row = crossbar.write_port()
            connect(m, wiring.flipped(pins), port.link)
            m.d.comb += [
                port.region.eq(region),
                port.table.valid.eq(entering),
                port.table.payload.eq(entry),
                port.pop.eq(scheduler.pop[index]),
                port.pop_port.eq(scheduler.pop_port[index]),
                port.pop_class.eq(scheduler.pop_class[index]),
                port.charge.eq(Cat(charge[index] for charge in scheduler.charge)),
                row.en.eq(port.flit.valid),
                row.addr.eq(index),
                row.data.eq(port.flit.payload),
            ]
            for klass in range(link.classes):
                m.d.comb += [
                    scheduler.start[index][klass].eq(port.start[klass]),
                    scheduler.open[index][klass].eq(port.open[klass]),
                    scheduler.going[index][klass].eq(port.going[klass]),
                ]
            ports.append(port)
        m.d.comb += [scheduler.available[klass].eq(Cat(port.available[klass] for port in ports))
                     for klass in range(link.classes)]

        # What was matched crosses two cycles later.
        popped, crossing = Signal(params.radix), Signal(params.radix)
        m.d.sync += [popped.eq(reduce(or_, scheduler.charge)), crossing.eq(popped)]
        sources = []
        for bit, source in enumerate(scheduler.source):
            early, late = (Signal(params.radix, name=f"{name}{bit}") for name in ("early", "late"))
            m.d.sync += [early.eq(source), late.eq(early)]
            sources.append(late)
        for index, port in enumerate(ports):
            read = crossbar.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(Cat(source[index] for source in sources)),
                port.send.valid.eq(crossing[index]),
                port.send.payload.eq(read.data),
            ]

        m.d.comb += self.idle.eq(Cat(port.idle for port in ports).all()
                                 & ~Cat(popped, crossing, entering).any())
        return m
