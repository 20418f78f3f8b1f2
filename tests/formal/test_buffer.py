"""The receive buffer keeps each virtual channel a queue, whatever the others do.

Of one virtual channel (VC), any of them, one flit, any of them, is followed: what was written, and
how many flits of its VC are before it. When all of these have been popped it must be at the front,
with its own marks and the output channel of its own packet, and its payload must be out one cycle
after it is popped. All write moments are tried at once, so this holds for every flit.

The writer keeps within the depth, as credits make it do.
"""

import pytest
from amaranth.hdl import Array, Cat, Mux, Signal, Value

from hdl.fabric.buffer import VcBuffer
from tests.formal.links import NarrowLink
from tests.formal.prove import Case, mutant, prove, reach, refute

CHANNEL_BITS = 2


def buffer_case(block: type[VcBuffer], *, depth: int, vcs: int = 2,
                invariants: bool = True) -> Case:
    params = NarrowLink(classes=1, vcs_per_class=vcs, vc_depth=depth)
    case = Case()
    m = case.m
    buffer = block(params, CHANNEL_BITS)
    inside = case.block(buffer)
    new = buffer.write.payload
    vc = case.fixed(params.vc_bits, "vc")
    case.given(vc < vcs)
    write, pop = case.free(1, "write"), case.free(1, "pop")
    for field, width in (("vc", params.vc_bits), ("head", 1), ("tail", 1), ("poison", 1),
                         ("channel", CHANNEL_BITS)):
        m.d.comb += new[field].eq(case.free(width, f"write_{field}"))
    payload, pop_vc = case.free(params.payload_bits, "payload"), case.free(params.vc_bits, "pop_vc")
    m.d.comb += [buffer.write.valid.eq(write), buffer.write_payload.eq(payload),
                 buffer.pop.valid.eq(pop), buffer.pop.payload.eq(pop_vc)]
    case.given((new.vc < vcs) & (pop_vc < vcs))

    # Each VC, as its contract has it: what it holds, and whether what comes is within a packet.
    levels = [Signal(range(depth + 2), name=f"level{index}") for index in range(vcs)]
    for index, level in enumerate(levels):
        put, take = write & (new.vc == index), pop & (pop_vc == index)
        case.given(~put | (level < depth))
        case.given(~take | (level != 0))
        m.d.sync += level.eq(level + put - take)
        case.must(level <= depth, f"level{index}")
        case.must(buffer.occupied[index] == (level != 0), f"occupied{index}")
    within = Signal()
    put = case.see(write & (new.vc == vc), "put")
    take = case.see(pop & (pop_vc == vc), "take")
    with m.If(put):
        m.d.sync += within.eq(~new.tail)
    case.given(~put | (new.head == ~within))

    level = case.see(Array(levels)[vc], "level")
    channel = Signal(CHANNEL_BITS)  # of the packet that was written last
    with m.If(put & new.head):
        m.d.sync += channel.eq(new.channel)
    followed, ahead = Signal(), Signal(range(depth + 1))
    kept = [Signal(width, name=f"kept_{name}") for name, width in (
        ("payload", params.payload_bits), ("poison", 1), ("head", 1), ("tail", 1),
        ("channel", CHANNEL_BITS))]
    kept_payload, kept_poison, kept_head, kept_tail, kept_channel = kept
    with m.If(~followed & case.free(1, "follow") & put):
        m.d.sync += [followed.eq(1), ahead.eq(level - take), kept_payload.eq(payload),
                     kept_poison.eq(new.poison),
                     kept_head.eq(new.head), kept_tail.eq(new.tail),
                     kept_channel.eq(Mux(new.head, new.channel, channel))]
    with m.Elif(followed & take):
        m.d.sync += [followed.eq(ahead != 0), ahead.eq(ahead - 1)]
    was_popped = Signal()
    m.d.sync += was_popped.eq(followed & take & (ahead == 0))
    popped = Signal(params.payload_bits + 1)
    m.d.sync += popped.eq(Cat(kept_payload, kept_poison))

    front = case.see(buffer.front[vc], "front")
    front_channel, front_head = front[:CHANNEL_BITS], front[CHANNEL_BITS]
    front_tail = case.see(buffer.tail.bit_select(vc, 1), "front_tail")
    at_front = case.see(followed & (ahead == 0), "at_front")
    case.must(~at_front | buffer.occupied.bit_select(vc, 1), "there")
    case.must(~at_front | (front_head == kept_head) & (front_tail == kept_tail), "marks")
    case.must(~at_front | (front_channel == kept_channel), "channel")
    case.must(~was_popped | (Cat(buffer.payload, buffer.poison) == popped), "payload")
    case.reach(levels[0] + levels[-1] == 2 * depth, "full")
    case.reach(followed & (ahead == depth - 1) & take, "last_of_all")
    if invariants:
        bits = (depth - 1).bit_length()
        for index, held in enumerate(levels):
            read, written = (inside[name][index] for name in ("reads", "writes"))
            case.must((read < depth) & (written == _wrapped(read + held, depth)), f"ring{index}")
        # The flits of the VC as they stand in the RAMs, oldest first; and the output channel of
        # each one's packet: that of the last head up to it, or the one kept at the front.
        read = inside["reads"][vc]
        channels = [front_channel]
        for place in range(depth):
            address = Cat(case.see(_wrapped(read + place, depth), f"at{place}")[:bits], vc)
            flit = inside.row("flits", address, f"flit{place}")
            poison = inside.row("poisons", address, f"poison{place}")
            mark = inside.row("marks", address, f"mark{place}")
            its_channel, head, tail = mark[:CHANNEL_BITS], mark[-2], mark[-1]
            if place:
                channels.append(Mux(head, its_channel, channels[-1]))
            else:
                case.must((level == 0) | (front_head == head) & (front_tail == tail)
                          & (~head | (front_channel == its_channel)), "front_kept")
            case.must(~followed | (ahead != place) | (flit == kept_payload)
                      & (poison == kept_poison) & (head == kept_head) & (tail == kept_tail)
                      & (channels[-1] == kept_channel), f"kept{place}")
            case.must((level != place + 1) | (channels[-1] == channel) & (tail == ~within),
                      f"written_last{place}")
        case.must(~followed | (ahead < level), "held")
        case.must((level != 0) | ~within | (front_channel == channel), "within_kept")
    return case


def _wrapped(pointer: Value, depth: int) -> Value:
    return Mux(pointer >= depth, pointer - depth, pointer)


@pytest.mark.parametrize("depth", [3, 4])
def test_a_flit_leaves_its_vc_once_and_in_order(depth):
    prove(buffer_case(VcBuffer, depth=depth), f"buffer{depth}", induction=1)


def test_all_vcs_can_be_full_at_once():
    reach(buffer_case(VcBuffer, depth=3, invariants=False), "buffer", bound=9)


@pytest.mark.parametrize(("old", "new", "broken_property"), [
    ("flit_read.addr.eq(Cat(here", "flit_read.addr.eq(Cat(after", "payload"),
    ("last & ~in_place", "last", "occupied"),
    ("Mux(mark.front.head & ~last & (pop == vc)", "Mux(~last & (pop == vc)", "channel"),
    ("Mux(pop == vc, mark.front.head, state.front[vc].head)", "mark.front.head", "marks"),
    ("left.occupied & written", "state.occupied & written", "marks"),
], ids=["next payload", "emptied beside a write", "channel of a body",
        "another's head", "front of an emptied VC"])
def test_a_broken_buffer_is_refuted(old, new, broken_property):
    broken = mutant("hdl.fabric.buffer", (old, new)).VcBuffer
    refute(buffer_case(broken, depth=3, invariants=False), "buffer", bound=8,
           breaks=broken_property)
