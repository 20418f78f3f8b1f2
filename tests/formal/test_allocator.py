"""The router's allocator gives each channel to one packet at a time, and starves no VC.

One virtual channel (VC) of one input, any of them, is watched while it could go: it holds a flit,
and the output channel that it wants has credit and, for a head, is free. Two counts are bounded:

* flits of other VCs that leave its input meanwhile: below the number of VCs. That is the rule that
  an input's pointer moves only if its choice was served;
* flits of other inputs that leave through its output while it is its input's choice: below the
  number of ports.

Packets do not interleave within an input VC, which is the buffers' promise.
"""

import pytest
from amaranth.hdl import Array, Cat, Mux, Signal

from hdl.fabric.allocator import Allocator
from hdl.params import RouterParams
from tests.formal.links import NarrowLink
from tests.formal.prove import Case, mutant, prove, reach, refute

ROUTER = RouterParams(link=NarrowLink(classes=1, vcs_per_class=2), dim_ports=(2,), rails=1)


def allocator_case(block: type[Allocator], *, params: RouterParams = ROUTER,
                   invariants: bool = True) -> Case:
    case = Case()
    m = case.m
    ports, vcs = params.ports, params.link.vcs
    allocator = block(params)
    inside = case.block(allocator)

    occupied = [case.free(vcs, f"occupied{port}") for port in range(ports)]
    tails = [case.free(vcs, f"tail{port}") for port in range(ports)]
    available = [case.free(vcs, f"available{port}") for port in range(ports)]
    wanted_port, wanted_vc, heads, opened, could = {}, {}, {}, {}, {}
    for port in range(ports):
        m.d.comb += [allocator.occupied[port].eq(occupied[port]),
                     allocator.tail[port].eq(tails[port]),
                     allocator.available[port].eq(available[port])]
        for vc in range(vcs):
            here = port, vc
            place = f"{port}_{vc}"
            wanted_port[here] = case.free(range(ports), f"port{place}")
            wanted_vc[here] = case.free(params.link.vc_bits, f"vc{place}")
            heads[here] = case.free(1, f"head{place}")
            case.given((wanted_port[here] < ports) & (wanted_vc[here] < vcs))
            front = allocator.front[port][vc]
            m.d.comb += [front.channel.port.eq(wanted_port[here]), front.head.eq(heads[here]),
                         front.channel.vc.eq(wanted_vc[here])]
            # Within a packet what comes is a body, and wants the packet's channel.
            opened[here] = (Signal(name=f"open{place}"),
                            Signal(range(ports), name=f"open{place}_port"),
                            Signal(params.link.vc_bits, name=f"open{place}_vc"))
            is_open, on_port, on_vc = opened[here]
            case.given(heads[here] == ~is_open)
            case.given(~is_open | (wanted_port[here] == on_port) & (wanted_vc[here] == on_vc))

    def busy(port, vc):
        return Cat(each & (on_port == port) & (on_vc == vc)
                   for each, on_port, on_vc in opened.values()).any()

    popped = [Signal(vcs, name=f"popped{port}") for port in range(ports)]
    outputs = [case.see(allocator.select[port], f"select{port}") for port in range(ports)]
    for here in opened:
        port, vc = here
        credit = Array(available)[wanted_port[here]].bit_select(wanted_vc[here], 1)
        could[here] = case.see(
            occupied[port][vc] & credit & ~(heads[here] & busy(wanted_port[here], wanted_vc[here])),
            f"could{port}_{vc}")
        pop = allocator.pop[port]
        goes = case.see(pop.valid & (pop.payload == vc), f"goes{port}_{vc}")
        m.d.comb += popped[port][vc].eq(goes)
        is_open, on_port, on_vc = opened[here]
        with m.If(goes):
            m.d.sync += [is_open.eq(~tails[port][vc]), on_port.eq(wanted_port[here]),
                         on_vc.eq(wanted_vc[here])]
        case.must(~goes | could[here], f"could{port}{vc}")
        case.must(~goes | Array(outputs)[wanted_port[here]][port]
                  & (Array(allocator.charge)[wanted_port[here]] == 1 << wanted_vc[here]),
                  f"goes_there{port}{vc}")
        flags = allocator.flags[port]
        case.must(~goes | (flags.head == heads[here]) & (flags.tail == tails[port][vc])
                  & (flags.vc == wanted_vc[here]), f"flags{port}{vc}")
    for port, select in enumerate(outputs):
        case.must((select & (select - 1)[:ports]) == 0, f"one_input{port}")
        case.must(allocator.pop[port].valid == Cat(each[port] for each in outputs).any(),
                  f"popped{port}")
        case.must(select.any() == allocator.charge[port].any(), f"charged{port}")

    # Fairness, for the watched VC.
    at, of = case.fixed(range(ports), "at"), case.fixed(params.link.vc_bits, "of")
    case.given((at < ports) & (of < vcs))
    mine = 1 << of
    waits = case.see(Array(Cat(could[port, vc] for vc in range(vcs))
                           for port in range(ports))[at].bit_select(of, 1), "waits")
    mine_popped = case.see(Array(popped)[at], "leaves")
    served = case.see((mine_popped & mine).any(), "served")
    passed = Signal(range(vcs + 1))
    with m.If(~waits | served):
        m.d.sync += passed.eq(0)
    with m.Elif(mine_popped.any()):
        m.d.sync += passed.eq(passed + 1)
    case.must(passed < vcs, "fair_input")
    case.reach((passed == vcs - 1) & served, "last")

    choices = [case.see(inside.part(f"input{port}").grant, f"choice{port}")
               for port in range(ports)]
    to = Array(Array(wanted_port[port, vc] for vc in range(vcs))[of] for port in range(ports))[at]
    bids = case.see(waits & (Array(choices)[at] & mine).any(), "bids")
    output = case.see(Array(outputs)[to], "output")
    before_to = Signal(range(ports))
    m.d.sync += before_to.eq(to)
    beaten = Signal(range(ports + 1))
    count = case.see(Mux(to == before_to, beaten, 0), "count")
    m.d.sync += beaten.eq(Mux(bids & ~served, count + output.any(), 0))
    case.must(beaten < ports, "fair_output")
    case.reach((count == ports - 1) & served, "last_input")
    if invariants:
        for port in range(ports):
            for vc in range(vcs):
                taken = inside["busy"][_code(params, port, vc)]
                case.must(taken == busy(port, vc), f"busy{port}{vc}")
        places = list(opened.values())
        for index, (is_open, on_port, on_vc) in enumerate(places):
            case.must((on_port < ports) & (on_vc < vcs), f"open{index}")
            for other, other_port, other_vc in places[:index]:
                case.must(~(is_open & other & (on_port == other_port) & (on_vc == other_vc)),
                          f"apart{index}")
        after_inputs = [inside[f"input{port}.after"] for port in range(ports)]
        after_outputs = [inside[f"output{port}.after"] for port in range(ports)]
        for index, after in enumerate(after_inputs + after_outputs):
            case.must((after + (after & -after))[:len(after)] == 0, f"after{index}")
        case.must(passed + _ahead(case, Array(after_inputs)[at], of, vcs, "of") < vcs, "nearer")
        # Who was beaten once goes before those who were not, in turn with the others.
        waited = case.see((Array(inside.named(f"passed{port}") for port in range(ports))[at]
                           & mine).any(), "waited")
        ahead = _ahead(case, Array(after_outputs)[before_to], at, ports, "at")
        case.must((beaten == 0) | waited & (beaten + ahead < ports), "nearer_input")
    return case


def _code(params: RouterParams, port: int, vc: int) -> int:
    """The channel's own code: its layout as a number."""
    return port << params.link.vc_bits | vc


def _ahead(case: Case, after: Signal, index: Signal, n: int, name: str) -> Signal:
    """How many come before requester ``index`` in turn."""
    pointer = case.see(after[:n], f"after_{name}")
    mine = case.see((1 << index)[:n], f"mine_{name}")
    below = (mine - 1)[:n]
    before = case.see(Mux((pointer & mine).any(), pointer & below, pointer | below),
                      f"before_{name}")
    return case.see(sum(before[place] for place in range(n)), f"ahead_{name}")


def test_channels_are_given_once_and_no_vc_starves():
    prove(allocator_case(Allocator), "allocator", induction=1)


def test_the_bounds_are_reached():
    reach(allocator_case(Allocator, invariants=False), "allocator", bound=8)


@pytest.mark.parametrize(("old", "new", "broken_property"), [
    ("arbiter.accept.eq(served[port])", "arbiter.accept.eq(1)", "fair_input"),
    ("arbiter.accept.eq(row.any())", "arbiter.accept.eq(0)", "fair_output"),
    ("credit & ~busy", "credit", "could"),
    ("Mux(flags.head ^ flags.tail, charge, 0)", "Mux(flags.head, charge, 0)", "fair_input"),
], ids=["moves unserved", "never moves", "interleaves", "never free"])
def test_a_broken_allocator_is_refuted(old, new, broken_property):
    broken = mutant("hdl.fabric.allocator", (old, new)).Allocator
    refute(allocator_case(broken, invariants=False), "allocator", bound=10,
           breaks=broken_property)
