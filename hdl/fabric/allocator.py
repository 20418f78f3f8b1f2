"""Allocator: which flits cross the router in this cycle, and on which virtual channels.

Separable and input first: each input chooses one of its virtual channels (VCs) that could go, then
each output chooses one of the inputs that want it. Both choices are round robin, and the pointer
of an input moves only if its choice was served. A VC that an output has passed over goes before
those that it has not, whenever it can go again: credits that come back in step with the turns of
another input would keep it waiting otherwise, however often its input is served.

A route names exactly one output channel (port and VC), so allocating the VC is part of the same
cycle: a head could go if its channel has credit and is not busy with another packet; the rest of
its packet needs credit only, and its tail makes the channel free again. So packets never
interleave within a VC, and a packet that waits holds up nobody on other channels.

Latency law: combinational from the fronts of the buffers to pops and selections.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter, one_hot_index
from hdl.fabric.buffer import front_layout
from hdl.fabric.route import channel_layout
from hdl.params import RouterParams
from hdl.ports import ValidSignature

__all__ = ["Allocator"]


class Allocator(wiring.Component):
    """Virtual-channel and switch allocation in one cycle.

    Members, one of each per port
    -----------------------------
    occupied, tail : ``In(vcs)``
        Of an input: VCs that hold flits; whose front flit is a tail.
    front : ``In(data.ArrayLayout(front_layout(channel_layout(params)), vcs))``
        Of an input: the output channel that the front of each VC wants, and whether as a head.
    available : ``In(vcs)``
        Of an output: VCs with credit.
    pop : ``Out(ValidSignature(unsigned(vc_bits)))``
        Of an input: the VC whose front flit crosses.
    flags : ``Out(data.StructLayout({head, tail, vc}))``
        Of an input that pops: whether the flit is head and tail, and the VC on which it leaves.
    charge : ``Out(vcs)``
        Of an output: the VC on which a flit leaves, one-hot or 0.
    busy : ``Out(vcs)``
        Of an output: VCs that packets hold, a function of registers.
    select : ``Out(ports)``
        Of an output: the input whose flit leaves there, one-hot or 0.

    One of a kind
    -------------
    starved : ``Out(ports)``
        Outputs that a flit wants on a VC without credit.
    """

    def __init__(self, params: RouterParams) -> None:
        self._params = params
        vcs, ports = params.link.vcs, params.ports
        front = front_layout(channel_layout(params))
        super().__init__({
            "occupied": In(vcs).array(ports),
            "tail": In(vcs).array(ports),
            "front": In(data.ArrayLayout(front, vcs)).array(ports),
            "available": In(vcs).array(ports),
            "pop": Out(ValidSignature(unsigned(params.link.vc_bits))).array(ports),
            "flags": Out(data.StructLayout({
                "head": 1, "tail": 1, "vc": params.link.vc_bits})).array(ports),
            "charge": Out(vcs).array(ports),
            "busy": Out(vcs).array(ports),
            "select": Out(ports).array(ports),
            "starved": Out(ports),
        })

    @property
    def params(self) -> RouterParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        ports, vcs = params.ports, params.link.vcs
        port_bits = (ports - 1).bit_length()
        # One bit per output channel, at the channel's own code; and one per (output, input).
        # Both are whole powers of two long, so that an index never leaves them.
        stride, channels = 1 << params.link.vc_bits, 1 << params.link.vc_bits + port_bits
        width = 1 << port_bits

        busy, credit = Signal(channels), Signal(channels)
        # Looked up by what a front wants: a body flit needs credit, a head a free channel too.
        ready = Signal(2 * channels)
        m.d.comb += [
            credit.eq(Cat(Cat(mask, Const(0, stride - vcs)) for mask in self.available)),
            ready.eq(Cat(credit, credit & ~busy)),
        ]

        choices, bids, urgents, denials = [], [], [], []
        for port in range(ports):
            arbiter = Arbiter(vcs)
            m.submodules[f"input{port}"] = arbiter
            front, pop = self.front[port], self.pop[port]
            chosen = Signal(front_layout(channel_layout(params)), name=f"chosen{port}")
            bid = Signal(width * width, name=f"bid{port}")
            urgent = Signal(width * width, name=f"urgent{port}")
            passed = Signal(vcs, name=f"passed{port}")  # VCs that were passed over
            denied = Signal(vcs, name=f"denied{port}")  # VCs that could not go
            wanted = Signal(channels, name=f"wanted{port}")
            m.d.comb += [
                arbiter.request.eq(self.occupied[port] & Cat(
                    ready.bit_select(front[vc].as_value(), 1) for vc in range(vcs))),
                denied.eq(self.occupied[port] ^ arbiter.request),
                pop.payload.eq(one_hot_index(arbiter.grant)),
                chosen.eq(front[pop.payload]),
            ]
            with m.If(arbiter.request.any()):
                m.d.comb += [
                    bid.eq(1 << Cat(Const(port, port_bits), chosen.channel.port)),
                    urgent.eq(Mux((passed & arbiter.grant).any(), bid, 0)),
                ]
                m.d.sync += passed.eq(
                    passed & ~arbiter.grant | Mux(arbiter.accept, 0, arbiter.grant))
            with m.If(denied.any()):
                m.d.comb += wanted.eq(reduce(or_, (
                    denied[vc] << front[vc].channel.as_value() for vc in range(vcs))))
            denials.append(wanted)
            choices.append((arbiter, chosen))
            bids.append(bid)
            urgents.append(urgent)

        matrix, urgent, served = Signal(width * width), Signal(width * width), Signal(ports)
        m.d.comb += [matrix.eq(reduce(or_, bids)), urgent.eq(reduce(or_, urgents))]
        for port in range(ports):
            arbiter = Arbiter(ports)
            m.submodules[f"output{port}"] = arbiter
            row, first = (bits.word_select(port, width)[:ports] for bits in (matrix, urgent))
            m.d.comb += [arbiter.request.eq(Mux(first.any(), first, row)),
                         arbiter.accept.eq(row.any())]
            with m.If(row.any()):
                m.d.comb += self.select[port].eq(arbiter.grant)
        m.d.comb += served.eq(reduce(or_, self.select))

        starved = Signal(channels)
        m.d.comb += [
            starved.eq(reduce(or_, denials) & ~credit),
            self.starved.eq(Cat(starved.word_select(port, stride).any() for port in range(ports)))]

        charges, toggles = [], []
        for port, (arbiter, chosen) in enumerate(choices):
            charge = Signal(channels, name=f"charge{port}")
            toggle = Signal(channels, name=f"toggle{port}")
            pop, flags = self.pop[port], self.flags[port]
            m.d.comb += [
                arbiter.accept.eq(served[port]),
                pop.valid.eq(served[port]),
                flags.head.eq(chosen.head),
                flags.tail.eq(self.tail[port].bit_select(pop.payload, 1)),
                flags.vc.eq(chosen.channel.vc),
                charge.eq(served[port] << chosen.channel.as_value()),
                # A head that is no tail takes its channel, a tail that is no head returns it.
                toggle.eq(Mux(flags.head ^ flags.tail, charge, 0)),
            ]
            charges.append(charge)
            toggles.append(toggle)
        charge = Signal(channels)
        m.d.comb += charge.eq(reduce(or_, charges))
        m.d.comb += [self.charge[port].eq(charge[port * stride:]) for port in range(ports)]
        m.d.comb += [self.busy[port].eq(busy[port * stride:]) for port in range(ports)]
        m.d.sync += busy.eq(busy ^ reduce(or_, toggles))
        return m
