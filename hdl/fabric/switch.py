"""Switch: an input-queued crossbar with virtual output queues, iSLIP and input speedup.

::

    cycle      r                    r + 1              r + 2          r + 3             r + 4
           ┌─────────┐         ┌──────────────┐    ┌──────────┐   ┌────────────┐
    rx pins│ look up │  bits   │ match inputs │pop │ read RAM │   │ cross,     │  tx   tx pins
    ──────►│ port,   ├────────►│ and outputs, ├───►│ of the   ├──►│ form word  ├──────►
           │ write   │         │ charge credit│    │ queues   │   │            │
           └─────────┘         └──────┬───────┘    └──────────┘   └────────────┘
                                      └─► freed total of the input, on its way back at r + 3

Every port is a link port with virtual output queues behind it: one queue per class and output, in
a buffer that the link's credits account for. A packet that waits for one output holds up nobody who
goes to another, as long as the buffer has room.

The outputs are spread over ``speedup`` planes, output ``p`` to plane ``p % speedup``. A plane has
its own queues at every input, its own scheduler and its own crossbar, so an input may give one flit
per cycle to each. An output that falls free then nearly always finds an input that is free for it;
and since no output gets more than a flit per cycle, nothing has to be buffered behind the crossbar.

**Latency law.** Unloaded, a word on the rx pins in cycle ``r`` is on the tx pins in ``r + 4``, and
the flits of a packet follow one per cycle (cut-through). A flow that is alone keeps a link full as
long as the buffer covers the credit round trip, ``2 latency + 6`` cycles plus up to
``classes - 1`` for totals of other classes that are told first. An input whose planes give several
flits in a cycle tells of them one by one.

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
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.scheduler import PlaneScheduler
from hdl.fabric.switch_port import SwitchPort
from hdl.layouts import CYCLE_BITS, NODE_BITS, LinkStatus, RouteWrite, flit
from hdl.once import Once
from hdl.params import SwitchParams
from hdl.ports import LinkSignature, ValidSignature

__all__ = ["Switch"]


class Switch(wiring.Component):
    """A crossbar switch.

    Members
    -------
    now : ``In(48)``
    node : ``In(16)``
        Id of the switch; configuration.
    table : ``In(ValidSignature(RouteWrite))``
        Writes to the route tables, which count from two cycles later, while there is no traffic
        that meets them.
    links : ``Out(LinkSignature(link)).array(radix)``
    status : ``Out(LinkStatus).array(radix)``
    idle, wake : outputs
        With empty inputs nothing changes before ``wake``.
    starved : ``Out(radix)``
        Ports by which a flit could leave if its class had a credit, a function of registers.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__({
            "now": In(CYCLE_BITS),
            "node": In(NODE_BITS),
            "table": In(ValidSignature(RouteWrite)),
            "links": Out(LinkSignature(params.link)).array(params.radix),
            "status": Out(LinkStatus).array(params.radix),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
            "starved": Out(params.radix),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        planes = Once.array("switch_plane", lambda: PlaneScheduler(params), params.speedup)
        ports = Once.array("switch_port", lambda: SwitchPort(params), params.radix)

        # It follows its input during reset, so that a tile out of reset is settled.
        node = Signal(NODE_BITS, reset_less=True)
        entry, entering = Signal(RouteWrite), Signal()
        m.d.sync += [node.eq(self.node), entering.eq(self.table.valid)]
        with m.If(self.table.valid):
            m.d.sync += entry.eq(self.table.payload)

        for number, (port, pins) in enumerate(zip(ports, self.links, strict=True)):
            m.submodules[f"port{number}"] = port
            # A register, so that ports that differ in nothing else are equal to a simulator.
            index = Signal(params.port_bits, init=number, name=f"index{number}")
            m.d.sync += index.eq(index)
            connect(m, wiring.flipped(pins), port.link)
            m.d.comb += [
                port.now.eq(self.now),
                port.node.eq(node),
                port.index.eq(index),
                port.table.valid.eq(entering),
                port.table.payload.eq(entry),
                self.status[number].eq(port.status),
            ]
        crossing = [self._plane(m, number, plane, ports) for number, plane in enumerate(planes)]
        m.d.comb += [
            self.idle.eq(Cat(port.idle for port in ports).all()
                         & ~Cat(crossing, entering).any()),
            self.wake.eq(self._earliest(m, [port.wake for port in ports])),
            self.starved.eq(Cat(planes[port % params.speedup].starved[port // params.speedup]
                                for port in range(params.radix))),
        ]
        return m

    def _plane(self, m: Module, number: int, plane: Any, ports: list[Any]) -> Value:
        """Schedule the outputs of a plane and take flits to them; returns what is under way."""
        params, link = self._params, self._params.link
        m.submodules[f"plane{number}"] = plane
        # The crossbar: a row per input that holds the flit on its way, read by every output.
        rows = memory.Memory(shape=flit(link), depth=params.radix, init=[])
        m.submodules[f"crossbar{number}"] = rows
        mine = ports[number::params.speedup]
        for index, port in enumerate(ports):
            row = rows.write_port()
            m.d.comb += [
                port.pop[number].eq(plane.pop[index]),
                port.pop_port[number].eq(plane.pop_port[index]),
                port.pop_class[number].eq(plane.pop_class[index]),
                row.en.eq(port.flit[number].valid),
                row.addr.eq(index),
                row.data.eq(port.flit[number].payload),
            ]
            for klass in range(link.classes):
                m.d.comb += [
                    plane.start[index][klass].eq(port.start[number][klass]),
                    plane.open[index][klass].eq(port.open[number][klass]),
                    plane.going[index][klass].eq(port.going[number][klass]),
                ]
        m.d.comb += [plane.available[klass].eq(Cat(port.available[klass] for port in mine))
                     for klass in range(link.classes)]

        # What was matched crosses two cycles later.
        def later(value: Value, name: str) -> tuple[Signal, Signal]:
            early, late = (Signal(params.plane_ports, name=f"{name}{number}_{age}")
                           for age in ("early", "late"))
            m.d.sync += [early.eq(value), late.eq(early)]
            return early, late

        popped, crossing = later(reduce(or_, plane.charge), "crossing")
        sources = [later(source, f"source{bit}_")[1] for bit, source in enumerate(plane.source)]
        for index, port in enumerate(mine):
            read = rows.read_port(domain="comb")
            m.d.comb += port.charge.eq(Cat(charge[index] for charge in plane.charge))
            with m.If(crossing[index]):
                m.d.comb += [
                    read.addr.eq(Cat(source[index] for source in sources)),
                    port.send.valid.eq(1),
                    port.send.payload.eq(read.data),
                ]
        return Cat(popped, crossing)

    def _earliest(self, m: Module, times: list[Value]) -> Value:
        """The smallest of ``times``; plain links have no deadlines."""
        if not self._params.link.reliable:
            return times[0]
        while len(times) > 1:
            halves = [Signal(CYCLE_BITS, name="earlier") for _ in times[1::2]]
            m.d.comb += [half.eq(Mux(a < b, a, b)) for half, a, b in zip(
                halves, times[::2], times[1::2], strict=False)]
            times = [*halves, *times[2 * len(halves):]]
        return times[0]
