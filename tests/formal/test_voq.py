"""Virtual output queues: each a queue, in slots that all share, and starting by its rule.

Of one queue, any of them, one flit, any of them, is followed: when all flits before it in its queue
have been popped, the next one popped is it, and what comes out one cycle later is what was written.
The bits that scheduling looks at are compared with counts of flits and tails in each queue.

Packets of a class do not interleave, the writer keeps within the depth of a class, and only queues
that may give a flit are popped.

The proof rests on where each flit is: beside each queue stands the list of its slots, as they were
chosen, and the lists through the RAM of next slots must lead along it. Every slot is in one queue,
or was given back, or was never used, once.
"""

import pytest
from amaranth.hdl import Array, Cat, Const, Mux, Signal

from hdl.fabric.voq import VirtualOutputQueues
from hdl.params import SwitchParams
from tests.formal.links import NarrowLink
from tests.formal.prove import Case, mutant, prove, reach, refute


def voq_case(block: type[VirtualOutputQueues], *, radix: int = 2, classes: int = 1,
             depth: int = 3, invariants: bool = True) -> Case:
    params = SwitchParams(radix=radix, speedup=1,
                          link=NarrowLink(classes=classes, vcs_per_class=1, vc_depth=depth))
    case = Case()
    m = case.m
    voq = block(params)
    inside = case.block(voq)
    new = voq.write.payload

    write, tail, poison = (case.free(1, name) for name in ("write", "tail", "poison"))
    to, to_class = case.free(range(radix), "to"), case.free(len(new.klass), "to_class")
    payload = case.free(params.link.payload_bits, "payload")
    pop, at, at_class = (case.free(1, "pop"), case.free(range(radix), "at"),
                         case.free(len(new.klass), "at_class"))
    crowded = case.free(classes, "crowded")
    m.d.comb += voq.crowded.eq(crowded)
    case.given((to < radix) & (to_class < classes) & (at < radix) & (at_class < classes))
    m.d.comb += [
        voq.write.valid.eq(write), new.port.eq(to), new.klass.eq(to_class), new.tail.eq(tail),
        new.poison.eq(poison), voq.write_payload.eq(payload), voq.pop_port.eq(at),
        voq.pop.eq(Mux(pop, 1 << at, 0)), voq.pop_class.eq(Mux(pop, 1 << at_class, 0)),
    ]

    queues = [(klass, port) for klass in range(classes) for port in range(radix)]
    levels, opened, marked = ({queue: Signal(width, name=f"{name}{queue[0]}_{queue[1]}")
                               for queue in queues} for name, width in (
        ("level", (depth + 1).bit_length()), ("opened", 1), ("marks", depth)))
    leaves_tail = Signal()  # the front of the popped queue is a tail: known one cycle later
    puts = {queue: case.see(write & (to_class == queue[0]) & (to == queue[1]),
                            f"put{queue[0]}_{queue[1]}") for queue in queues}
    takes = {queue: case.see(pop & (at_class == queue[0]) & (at == queue[1]),
                             f"take{queue[0]}_{queue[1]}") for queue in queues}
    for klass in range(classes):
        within, port = Signal(name=f"within{klass}"), Signal(range(radix), name=f"port{klass}")
        put = case.see(write & (to_class == klass), f"put{klass}")
        with m.If(put):
            m.d.sync += [within.eq(~tail), port.eq(to)]
        case.given(~put | ~within | (to == port))
        held = sum(levels[queue] for queue in queues if queue[0] == klass)
        case.given(~put | (held < depth))
        case.must(held <= depth, f"depth{klass}")
    may = Cat(voq.start[klass][port] | voq.going[klass][port] for klass, port in queues)
    case.given(~pop | may.bit_select(at_class * radix + at, 1))

    # What the front of a queue is: the tails as they were written, in a ring beside each queue.
    for queue in queues:
        name = f"{queue[0]}_{queue[1]}"
        marks = marked[queue]  # bit 0 is the front
        level, put, take = levels[queue], puts[queue], takes[queue]
        rest, left = case.see(Mux(take, marks >> 1, marks), f"rest{name}"), level - take
        m.d.sync += [marks.eq(rest | (put & tail) << left[:len(level)]),
                     level.eq(level + put - take)]
        with m.If(take):
            m.d.sync += opened[queue].eq(~marks[0])
            m.d.comb += leaves_tail.eq(marks[0])
        klass, port = queue
        others = Cat(levels[each] != 0 for each in queues if each[0] == klass and each != queue)
        may_start = (level != 0) & ~opened[queue] & (
            marks.any() | ~(others.any() | crowded[klass]))
        case.must(voq.start[klass][port] == may_start, f"start{name}")
        case.must(voq.holds[klass] == ((level != 0) | others.any()), f"holds{name}")
        case.must(voq.open[klass][port] == opened[queue], f"open{name}")
        case.must(voq.going[klass][port] == (opened[queue] & (level != 0)), f"going{name}")

    at_queue = case.fixed(range(len(queues)), "at_queue")
    case.given(at_queue < len(queues))
    put = case.see(Array(puts.values())[at_queue], "put")
    take = case.see(Array(takes.values())[at_queue], "take")
    level = case.see(Array(levels.values())[at_queue], "level")
    followed, ahead = Signal(), Signal(range(depth + 1))
    kept = Signal(params.link.payload_bits + 2)
    with m.If(~followed & case.free(1, "follow") & put):
        m.d.sync += [followed.eq(1), ahead.eq(level - take), kept.eq(Cat(payload, tail, poison))]
    with m.Elif(followed & take):
        m.d.sync += [followed.eq(ahead != 0), ahead.eq(ahead - 1)]
    popped, mine, ends, heads = Signal(), Signal(), Signal(), Signal()
    expected, lane = Signal.like(kept), Signal(len(voq.flit.payload.vc))
    m.d.sync += [popped.eq(pop), mine.eq(followed & take & (ahead == 0)), expected.eq(kept),
                 ends.eq(leaves_tail), lane.eq(at_class),
                 heads.eq(~Array(opened.values())[at_class * radix + at])]
    out = voq.flit.payload
    case.must(voq.flit.valid == popped, "out")
    case.must(~popped | (out.tail == ends) & (out.head == heads) & (out.vc == lane), "marks")
    case.must(~mine | (Cat(out.payload, out.tail, out.poison) == expected), "order")
    case.reach(mine & (level == depth - 1), "last_of_many")
    case.reach(Cat(each != 0 for each in levels.values()).all(), "all_hold")
    if invariants:
        _invariants(case, inside, params, levels, opened, marked, puts, takes,
                    kept=(followed, at_queue, ahead, kept))
    return case


def _invariants(case, inside, params, levels, opened, marked, puts, takes, kept) -> None:
    """What else holds in every state that can be reached, so that the proof needs one step."""
    depth = params.link.vc_depth
    slots = params.link.classes * depth
    followed, at_queue, ahead, value = kept
    rows = {name: Array(inside.row(name, Const(slot, len(inside["slot"])), f"{name}{slot}")
                        for slot in range(slots))
            for name in ("flits", "tails", "nexts", "free")}
    uses = [[] for _ in range(slots)]
    for index, (queue, level) in enumerate(levels.items()):
        klass, port = queue
        name, place = f"{klass}_{port}", klass << params.plane_bits | port
        first, front, last, whole = (
            inside.row(ram, Const(place, params.plane_bits + len(inside["new"].klass)),
                       f"{ram}{name}") for ram in ("first", "front", "last", "whole_last"))
        # The slots of the queue's flits, oldest first.
        places = [Signal(len(inside["slot"]), name=f"slot{name}_{index}") for index in range(depth)]
        for here, (mine, after) in enumerate(zip(places, [*places[1:], places[-1]], strict=True)):
            newest = level - takes[queue] == here
            case.m.d.sync += mine.eq(Mux(puts[queue] & newest, inside["slot"],
                                         Mux(takes[queue], after, mine)))
        held = [case.see(level > here, f"held{name}_{here}") for here in range(depth)]
        marks = case.see(Cat(marked[queue][here] & held[here] for here in range(depth)),
                         f"tails{name}")
        case.must(marks == marked[queue], f"marks{name}")
        case.must(inside["occupied"][klass][port] == held[0], f"occupied{name}")
        case.must(inside["opened"][klass][port] == opened[queue], f"opened{name}")
        case.must(inside["whole"][klass][port] == marks.any(), f"whole{name}")
        moved = inside["moved"][klass][port]
        case.must(~held[0] | (places[0] == Mux(moved, front, first)), f"front{name}")
        for here, mine in enumerate(places):
            case.must(~held[here] | (mine < slots), f"slot{name}{here}")
            case.must((level != here + 1) | (last == mine), f"last{name}{here}")
            later = marks[here + 1:].any() if here + 1 < depth else Const(0, 1)
            case.must(~marks[here] | later | (whole == mine), f"whole{name}{here}")
            case.must(~held[here] | (rows["tails"][mine][0] == marks[here]), f"tail{name}{here}")
            if here:
                case.must(~held[here] | (rows["nexts"][places[here - 1]] == mine),
                          f"next{name}{here}")
            case.must(~(followed & (at_queue == index) & (ahead == here))
                      | held[here] & (Cat(rows["flits"][mine], rows["tails"][mine]) == value),
                      f"kept{name}{here}")
            for slot in range(slots):
                uses[slot].append(held[here] & (mine == slot))
    case.must(~followed | (ahead < Array(levels.values())[at_queue]), "kept_held")
    for slot in range(slots):
        uses[slot] += [(inside["back"] > here) & (rows["free"][here] == slot)
                       for here in range(slots)]
        uses[slot].append(inside["unused"] <= slot)
        case.must(sum(uses[slot]) == 1, f"once{slot}")
    case.must((inside["back"] <= slots) & (inside["unused"] <= slots), "stack")
    for here in range(slots):
        case.must((inside["back"] <= here) | (rows["free"][here] < slots), f"free{here}")


def test_every_queue_keeps_order_and_starts_by_its_rule():
    prove(voq_case(VirtualOutputQueues), "voq", induction=1)
    reach(voq_case(VirtualOutputQueues, invariants=False), "voq", bound=8)


@pytest.mark.slow
@pytest.mark.parametrize(("radix", "classes", "depth"), [(3, 1, 4), (2, 2, 2)])
def test_every_queue_keeps_order_on_larger_instances(radix, classes, depth):
    prove(voq_case(VirtualOutputQueues, radix=radix, classes=classes, depth=depth),
          f"voq{radix}_{classes}_{depth}", induction=1)


@pytest.mark.parametrize(("old", "new", "broken_property"), [
    ("free_read.addr.eq(back - 1)", "free_read.addr.eq(0)", "order"),
    ("(whole[klass] | alone) & ~opened", "held & ~opened", "start"),
    ("(moved[klass] | pop) & (occupied[klass] | ~push)", "moved[klass] | pop", "order"),
    ("Mux(empties & valid & (push_queue == pop_queue)", "Mux(empties & valid & 0", "order"),
], ids=["a slot twice", "starts too early", "stale front", "lost as it empties"])
def test_broken_queues_are_refuted(old, new, broken_property):
    broken = mutant("hdl.fabric.voq", (old, new)).VirtualOutputQueues
    refute(voq_case(broken, invariants=False), "voq", bound=9, breaks=broken_property)
