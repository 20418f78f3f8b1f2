"""Scheduler of a switch: which queue of each input gives a flit to a plane of outputs.

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
many arbiters as a word has bits for the price of one. What belongs to an input is computed only
while the input asks for something, so that ports at rest cost a simulator next to nothing.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import behind, first_of
from hdl.fabric.islip import Islip, index_masks, masked_index
from hdl.params import Policy, SwitchParams

__all__ = ["LaneArbiter", "PlaneScheduler"]


def _lane_grants(request: Sequence[Value], after: Sequence[Signal]) -> list[Value]:
    """Of ``n`` requesters in many lanes, the one that each lane serves."""
    if len(request) == 1:
        return list(request)
    first = [wants & mask for wants, mask in zip(request, after, strict=True)]
    found = reduce(or_, first)
    pool = [early | wants & ~found for early, wants in zip(first, request, strict=True)]
    return [pool[0], *(pool[index] & ~reduce(or_, pool[:index]) for index in range(1, len(pool)))]


def _lane_served(m: Module, grant: Sequence[Value], after: Sequence[Signal],
                 accept: Value) -> None:
    """Move the pointers of the lanes in ``accept`` behind what was granted."""
    for index in range(1, len(grant)):
        earlier = reduce(or_, grant[:index])
        m.d.sync += after[index].eq(after[index] & ~accept | earlier & accept)


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
        # Of each requester, the lanes in which it comes behind the one served last.
        after = [Signal(self._lanes, name=f"after{index}") for index in range(self._n)]
        m.d.comb += [grant.eq(value) for grant, value in zip(
            self.grant, _lane_grants(self.request, after), strict=True)]
        if self._policy is Policy.ROUND_ROBIN:
            with m.If(self.accept.any()):
                _lane_served(m, self.grant, after, self.accept)
        return m


class PlaneScheduler(wiring.Component):
    """Class, input and output allocation of one plane in one cycle.

    Members
    -------
    start, open, going : ``In(plane_ports).array(radix, classes)``
        Bits of the queues of each input, see ``VirtualOutputQueues``.
    available : ``In(plane_ports).array(classes)``
        Of a class: outputs with credit.
    pop : ``Out(plane_ports).array(radix)``
        Of an input: the output to which it gives a flit, one-hot, or 0.
    pop_port : ``Out(plane_bits).array(radix)``
        Its index.
    pop_class : ``Out(classes).array(radix)``
        The class of that flit, one-hot; 0 without one.
    charge : ``Out(plane_ports).array(classes)``
        Of a class: outputs that get a flit.
    source : ``Out(plane_ports).array(port_bits)``
        Bit ``b`` of the index of the input from which each output gets a flit.
    starved : ``Out(plane_ports)``
        Outputs for which an input has a flit of a class without credit.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        radix, outputs, classes = params.radix, params.plane_ports, params.link.classes
        super().__init__({
            "start": In(outputs).array(radix, classes),
            "open": In(outputs).array(radix, classes),
            "going": In(outputs).array(radix, classes),
            "available": In(outputs).array(classes),
            "pop": Out(outputs).array(radix),
            "pop_port": Out(params.plane_bits).array(radix),
            "pop_class": Out(classes).array(radix),
            "charge": Out(outputs).array(classes),
            "source": Out(outputs).array(params.port_bits),
            "starved": Out(outputs),
        })

    @property
    def params(self) -> SwitchParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        radix, outputs, policy = params.radix, params.plane_ports, params.policy
        classes, ports = range(params.link.classes), range(params.radix)
        fair = policy is Policy.ROUND_ROBIN

        # Outputs whose virtual channel of a class is free, and that have credit.
        free = [Signal(outputs, name=f"free{klass}") for klass in classes]
        m.d.comb += [free[klass].eq(self.available[klass]
                                    & ~reduce(or_, (self.open[port][klass] for port in ports)))
                     for klass in classes]

        def words(name: str, width: int = outputs) -> list[Signal]:
            return [Signal(width, name=f"{name}{port}") for port in ports]

        asking, goes, starts, proposal = words("asking", 1), words("goes"), words("starts"), \
            words("proposal")
        chosen = [words(f"chosen{klass}_") for klass in classes]
        proposals = [words(f"proposal{klass}_") for klass in classes]
        after, denied = words("after"), words("denied")
        class_after = [words(f"class_after{klass}_") for klass in classes]
        for port in ports:
            m.d.comb += asking[port].eq(reduce(or_, (
                *self.start[port], *self.going[port])).any())
            with m.If(asking[port]):
                going = [self.going[port][klass] & self.available[klass] for klass in classes]
                start = [self.start[port][klass] & free[klass] & ~goes[port] for klass in classes]
                grants = _lane_grants([go | new for go, new in zip(going, start, strict=True)],
                                      [words[port] for words in class_after])
                m.d.comb += [
                    denied[port].eq(reduce(or_, (
                        (self.start[port][klass] | self.going[port][klass])
                        & ~self.available[klass] for klass in classes))),
                    goes[port].eq(reduce(or_, going)),
                    starts[port].eq(reduce(or_, start)),
                    proposal[port].eq(first_of(goes[port], after[port])),
                ]
                for klass in classes:
                    m.d.comb += [
                        chosen[klass][port].eq(grants[klass]),
                        proposals[klass][port].eq(proposal[port] & chosen[klass][port]),
                    ]

        # Packets under way: at each output, one of the classes.
        m.submodules.outputs = arbiter = LaneArbiter(outputs, len(classes), policy=policy)
        taken = Signal(outputs)
        m.d.comb += [arbiter.request[klass].eq(reduce(or_, proposals[klass])) for klass in classes]
        m.d.comb += [taken.eq(reduce(or_, arbiter.request)), arbiter.accept.eq(taken)]

        # Packets that start, where neither input nor output is taken.
        m.submodules.islip = islip = Islip(radix, outputs, iterations=params.iterations,
                                           policy=policy)
        masks = index_masks(m, outputs, params.plane_bits)
        won = words("won")
        for port in ports:
            with m.If(asking[port]):
                m.d.comb += [
                    won[port].eq(reduce(or_, (proposals[klass][port] & arbiter.grant[klass]
                                              for klass in classes))),
                    self.pop[port].eq(won[port] | islip.match[port]),
                ]
                with m.If(~won[port].any()):
                    m.d.comb += islip.request[port].eq(starts[port] & ~taken)
            with m.If(self.pop[port].any()):
                m.d.comb += [
                    self.pop_port[port].eq(masked_index(self.pop[port], masks)),
                    self.pop_class[port].eq(Cat(
                        (self.pop[port] & chosen[klass][port]).any() for klass in classes)),
                ]
                if fair:
                    _lane_served(m, [chosen[klass][port] for klass in classes],
                                 [words[port] for words in class_after], self.pop[port])
            if fair:
                with m.If(won[port].any()):
                    m.d.sync += after[port].eq(behind(proposal[port]))
        with m.If(Cat(asking).any()):
            m.d.comb += self.starved.eq(reduce(or_, denied))
            m.d.comb += [self.charge[klass].eq(reduce(or_, (
                self.pop[port] & chosen[klass][port] for port in ports))) for klass in classes]
            m.d.comb += [self.source[bit].eq(reduce(or_, (
                self.pop[port] for port in ports if port >> bit & 1)))
                for bit in range(params.port_bits)]
        return m
