"""Scheduler of a switch: which queue of each input gives a flit in this cycle.

Two tiers. First every packet that has left in part goes on, if its next flit and a credit are
there; then iSLIP matches the inputs and outputs that are still free, for packets that start. So a
packet that can move leaves in one piece, and an input does not spread itself over many half-sent
packets, which would hold outputs that it cannot feed.

An output belongs to at most one packet per class, so only packets of different classes meet in the
first tier: each input chooses one of its packets, then each output one of the classes. Between an
input and an output with several classes ready, the classes take turns too.

*No class waits for another.* What is asked for can move in this very cycle: a packet without a
flit, a credit or its output's virtual channel asks for nothing, and its link cycles are free for
everybody else. A class that is ready waits at most for the packet that is moving: while one is, no
other may start on its output; when its tail has gone, all classes compete under round robin.

Latency law: combinational from the bits of the queues to pops and selections; pointers follow one
cycle later. Without requests nothing changes.

Choices that exist once per port are made on words with one bit per port (:class:`LaneArbiter`): as
many arbiters as a word has bits for the price of one.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter
from hdl.fabric.islip import Islip, index_masks, masked_index
from hdl.params import Policy, SwitchParams

__all__ = ["LaneArbiter", "SwitchScheduler"]


class LaneArbiter(wiring.Component):
    """``lanes`` arbiters of ``n`` requesters each, side by side: bit ``l`` of every word belongs
    to arbiter ``l``, which is an ``Arbiter`` in all it does.

    Members
    -------
    request : ``In(lanes).array(n)``
    grant : ``Out(lanes).array(n)``
        At most one of ``n`` has a bit set.
    accept : ``In(lanes)``
        The grants that are used in this cycle, among those given.
    """

    def __init__(self, lanes: int, n: int, *, policy: Policy = Policy.ROUND_ROBIN) -> None:
        for name, value in (("lanes", lanes), ("n", n)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
        if not isinstance(policy, Policy):
            raise ValueError(f"policy must be one of {', '.join(map(str, Policy))}, not {policy!r}")
        self._lanes, self._n, self._policy = lanes, n, policy
        super().__init__({"request": In(lanes).array(n), "grant": Out(lanes).array(n),
                          "accept": In(lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, n = self._lanes, self._n
        if n == 1:
            m.d.comb += self.grant[0].eq(self.request[0])
            return m
        # Of each requester, the lanes in which it comes behind the one served last.
        after = [Signal(lanes, name=f"after{index}") for index in range(n)]
        found = Signal(lanes)
        first = [self.request[index] & after[index] for index in range(n)]
        m.d.comb += found.eq(reduce(or_, first))
        served: list[Value] = []  # lanes that an earlier requester has taken
        for index in range(n):
            pool = Signal(lanes, name=f"pool{index}")
            m.d.comb += pool.eq(first[index] | self.request[index] & ~found)
            earlier = reduce(or_, served) if served else None
            m.d.comb += self.grant[index].eq(pool if earlier is None else pool & ~earlier)
            if earlier is not None and self._policy is Policy.ROUND_ROBIN:
                with m.If(self.accept.any()):
                    m.d.sync += after[index].eq(
                        after[index] & ~self.accept | earlier & self.accept)
            served.append(pool)
        return m


class SwitchScheduler(wiring.Component):
    """Class, input and output allocation in one cycle.

    Members
    -------
    start, open, going : ``In(radix).array(radix, classes)``
        Bits of the queues of each input, see ``VirtualOutputQueues``.
    available : ``In(radix).array(classes)``
        Of a class: outputs with credit.
    pop : ``Out(radix).array(radix)``
        Of an input: the output to which it gives a flit, one-hot, or 0.
    pop_port : ``Out(port_bits).array(radix)``
        Its index.
    pop_class : ``Out(classes).array(radix)``
        The class of that flit, one-hot; 0 without one.
    charge : ``Out(radix).array(classes)``
        Of a class: outputs that get a flit.
    source : ``Out(radix).array(port_bits)``
        Bit ``b`` of the index of the input from which each output gets a flit.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        radix, classes = params.radix, params.link.classes
        super().__init__({
            "start": In(radix).array(radix, classes),
            "open": In(radix).array(radix, classes),
            "going": In(radix).array(radix, classes),
            "available": In(radix).array(classes),
            "pop": Out(radix).array(radix),
            "pop_port": Out(params.port_bits).array(radix),
            "pop_class": Out(classes).array(radix),
            "charge": Out(radix).array(classes),
            "source": Out(radix).array(params.port_bits),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        radix, classes, policy = params.radix, params.link.classes, params.policy
        ports = range(radix)

        # Outputs whose virtual channel of a class is free, and that have credit.
        free = [Signal(radix, name=f"free{klass}") for klass in range(classes)]
        m.d.comb += [free[klass].eq(self.available[klass]
                                    & ~reduce(or_, (self.open[port][klass] for port in ports)))
                     for klass in range(classes)]

        chosen, continuing, starting, proposals = [], [], [], []
        for port in ports:
            m.submodules[f"class{port}"] = choice = LaneArbiter(radix, classes, policy=policy)
            m.submodules[f"input{port}"] = arbiter = Arbiter(radix, policy=policy)
            goes, starts = Signal(radix, name=f"goes{port}"), Signal(radix, name=f"starts{port}")
            going = [self.going[port][klass] & self.available[klass] for klass in range(classes)]
            start = [self.start[port][klass] & free[klass] for klass in range(classes)]
            m.d.comb += [
                goes.eq(reduce(or_, going)),
                starts.eq(reduce(or_, start) & ~goes),
                choice.accept.eq(self.pop[port]),
                arbiter.request.eq(goes),
            ]
            m.d.comb += [choice.request[klass].eq(going[klass] | start[klass] & ~goes)
                         for klass in range(classes)]
            chosen.append(choice.grant)
            continuing.append(arbiter)
            starting.append(starts)
            proposals.append([arbiter.grant & choice.grant[klass] for klass in range(classes)])

        # Packets under way: at each output, one of the classes.
        m.submodules.outputs = outputs = LaneArbiter(radix, classes, policy=policy)
        taken = Signal(radix)
        m.d.comb += [outputs.request[klass].eq(reduce(or_, (row[klass] for row in proposals)))
                     for klass in range(classes)]
        m.d.comb += [taken.eq(reduce(or_, outputs.request)), outputs.accept.eq(taken)]

        # Packets that start, where neither input nor output is taken.
        m.submodules.islip = islip = Islip(radix, iterations=params.iterations, policy=policy)
        masks = [mask[:radix] for mask in index_masks(m, 1 << params.port_bits)]
        for port in ports:
            won = Signal(radix, name=f"won{port}")
            m.d.comb += [
                won.eq(reduce(or_, (proposals[port][klass] & outputs.grant[klass]
                                    for klass in range(classes)))),
                continuing[port].accept.eq(won.any()),
                islip.request[port].eq(Mux(won.any(), 0, starting[port] & ~taken)),
                self.pop[port].eq(won | islip.match[port]),
                self.pop_port[port].eq(masked_index(self.pop[port], masks)),
            ]
            m.d.comb += self.pop_class[port].eq(Cat(
                (self.pop[port] & chosen[port][klass]).any() for klass in range(classes)))
        m.d.comb += [self.charge[klass].eq(reduce(or_, (
            self.pop[port] & chosen[port][klass] for port in ports))) for klass in range(classes)]
        m.d.comb += [self.source[bit].eq(reduce(or_, (
            self.pop[port] for port in ports if port >> bit & 1)))
            for bit in range(params.port_bits)]
        return m
