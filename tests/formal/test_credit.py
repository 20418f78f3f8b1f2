"""Credits on any link: no total and no buffer ever over- or underflows, and none is lost for good.

A sender and a receiver of credits are joined by two wires. The flits' wire delays for any time. The
totals' wire keeps their order, and delays, loses and repeats words at will. The receive buffer is
its number of flits; one may leave it at any time.

Beside each total modulo the link's modulus stands a wider one, so that what is meant by the blocks'
totals is known; these wrap too, later. All are compared by their distance from the total that the
sender has heard, since none is ever further from it than the depth.
"""

import pytest
from amaranth.hdl import Array, Cat, Mux, Signal

from hdl.link.credit import CreditReceiver, CreditSender
from tests.formal.links import NarrowLink
from tests.formal.prove import Case, mutant, prove, reach, refute

DEPTHS = (3, 4)  # the modulus is 4 and 8: just above the depth, and far above it


def credit_case(sender_block: type[CreditSender], receiver_block: type[CreditReceiver], *,
                depth: int, vcs: int = 2, places: int = 2, lossless: bool = False,
                invariants: bool = True) -> Case:
    """``places`` words of totals are under way at most; ``lossless`` moves them on every cycle."""
    params = NarrowLink(classes=1, vcs_per_class=vcs, vc_depth=depth)
    case = Case()
    m = case.m
    bits = params.total_bits
    wide = bits + 1
    sender, receiver = sender_block(params, roomy=True), receiver_block(params)
    in_sender, in_receiver = case.block(sender, "sender"), case.block(receiver, "receiver")

    # The flits: some are charged, some arrive, some leave the buffer.
    sent, arrived, freed, heard = ([Signal(wide, name=f"{name}{vc}") for vc in range(vcs)]
                                   for name in ("sent", "arrived", "freed", "heard"))
    charge, arrive, free = (case.free(vcs, name) for name in ("charge", "arrive", "free"))
    case.given((charge & ~sender.available) == 0)
    m.d.comb += [sender.charge.eq(charge), receiver.free.eq(free)]
    for vc in range(vcs):
        case.given(~arrive[vc] | (sent[vc] != arrived[vc]))
        case.given(~free[vc] | (arrived[vc] != freed[vc]))
        m.d.sync += [sent[vc].eq(sent[vc] + charge[vc]), arrived[vc].eq(arrived[vc] + arrive[vc]),
                     freed[vc].eq(freed[vc] + free[vc])]

    # The totals: a place that does not go keeps its word, and what comes to it is lost.
    go, drop = case.free(places, "go"), case.free(places, "drop")
    hear, told = case.free(1, "hear"), case.free(1, "told")
    if lossless:
        case.given(go.all() & ~drop.any() & hear)
    tell = receiver.tell.payload
    true_total = case.see(Array(freed)[tell.vc], "true_total")
    m.d.comb += receiver.told.eq(told & receiver.tell.valid)
    words = [(Signal(name=f"word{place}"), Signal(params.vc_bits, name=f"word{place}_vc"),
              Signal(bits, name=f"word{place}_freed"), Signal(wide, name=f"word{place}_total"))
             for place in range(places)]
    entering = (receiver.told, tell.vc, tell.freed, true_total)
    for place, word in enumerate(words):
        with m.If(go[place] | ~word[0]):
            m.d.sync += [mine.eq(theirs) for mine, theirs in zip(word, entering, strict=True)]
        with m.If(drop[place]):
            m.d.sync += word[0].eq(0)
        entering = (word[0] & go[place], *word[1:])
    last, last_vc, last_freed, last_total = words[-1]
    m.d.comb += [sender.learn.valid.eq(last & hear), sender.learn.payload.vc.eq(last_vc),
                 sender.learn.payload.freed.eq(last_freed)]
    for vc in range(vcs):
        with m.If(last & hear & (last_vc == vc)):
            m.d.sync += heard[vc].eq(last_total)

    def distance(total: Signal, vc: int) -> Signal:
        return (total - heard[vc])[:wide]

    for vc in range(vcs):
        used = case.see(distance(sent[vc], vc), f"used{vc}")
        case.must(used <= depth, f"credits{vc}")
        held = case.see((arrived[vc] - freed[vc])[:wide], f"held{vc}")
        case.must((held <= depth) & (~arrive[vc] | (held < depth)), f"buffer{vc}")
        case.must((distance(freed[vc], vc) <= distance(arrived[vc], vc))
                  & (distance(arrived[vc], vc) <= used), f"order{vc}")
        case.must(sender.available[vc] == (used < depth), f"available{vc}")
        case.must(sender.roomy[vc] == (2 * used <= depth), f"roomy{vc}")
    case.must(~receiver.tell.valid | (tell.freed == true_total[:bits]), "tell")
    case.reach(Cat(distance(sent[vc], vc) == depth for vc in range(vcs)).all(), "all_used")
    case.reach(sent[0] == 1 << bits, "wrapped")
    if invariants:
        for vc in range(vcs):
            case.must(in_sender["sent"][vc] == sent[vc][:bits], f"sent_inside{vc}")
            case.must(in_sender["limit"][vc] == (heard[vc] + depth)[:bits], f"limit_inside{vc}")
            case.must(in_receiver["freed"][vc] == freed[vc][:bits], f"freed_inside{vc}")
            # Words of a VC under way: between what was heard and what is true, oldest first.
            newer = freed[vc]
            for place, (word, of, total_bits, total) in enumerate(words):
                mine = word & (of == vc)
                case.must(~mine | (total_bits == total[:bits])
                          & (distance(total, vc) <= distance(newer, vc)), f"word{place}_{vc}")
                newer = case.see(Mux(mine, total, newer), f"newest{place}_{vc}")
            if lossless:
                told_last = Cat(word & (of == vc) & (total == freed[vc])
                                for word, of, _, total in words).any()
                case.must((heard[vc] == freed[vc]) | told_last | in_receiver["changed"][vc],
                          f"home{vc}")
    return case


@pytest.mark.parametrize("depth", DEPTHS)
def test_no_total_and_no_buffer_over_or_underflows_whatever_the_wire_does(depth):
    prove(credit_case(CreditSender, CreditReceiver, depth=depth), f"credit{depth}", induction=1)


def test_a_wire_without_loss_brings_every_credit_home():
    prove(credit_case(CreditSender, CreditReceiver, depth=3, lossless=True), "credit-home",
          induction=1)


def test_all_credits_can_be_used_and_totals_wrap():
    reach(credit_case(CreditSender, CreditReceiver, depth=3, places=1, invariants=False),
          "credit-reach", bound=24)


@pytest.mark.parametrize(("old", "new", "broken"), [
    ("told.freed + params.vc_depth", "told.freed + params.vc_depth + 1", "available"),
    ("sent.as_value() ^ limit.as_value()", "~(sent.as_value() & 0)", "available"),
    ("sent[vc] + self.charge[vc]", "sent[vc] + self.charge.any()", "available"),
    ("freed[vc] + self.free[vc]", "freed[vc] + 1", "tell"),
], ids=["a credit too many", "no limit", "every VC charged", "every VC freed"])
def test_broken_credits_are_refuted(old, new, broken):
    blocks = mutant("hdl.link.credit", (old, new))
    case = credit_case(blocks.CreditSender, blocks.CreditReceiver, depth=2, places=1,
                       invariants=False)
    refute(case, "credit", bound=12, breaks=broken)


def test_a_depth_that_reaches_the_modulus_is_refuted(monkeypatch):
    monkeypatch.setattr(NarrowLink, "total_bits", property(lambda self: 2))
    case = credit_case(CreditSender, CreditReceiver, depth=4, places=1, invariants=False)
    refute(case, "credit-modulus", bound=12, breaks="available")


def test_a_receiver_that_forgets_a_change_is_refuted():
    blocks = mutant("hdl.link.credit", (
        "changed & ~Mux(self.told, arbiter.grant, 0) | self.free | again",
        "(changed | self.free | again) & ~Mux(self.told, arbiter.grant, 0)"))
    case = credit_case(CreditSender, blocks.CreditReceiver, depth=2, places=1, lossless=True)
    refute(case, "credit-home", bound=12, breaks="home")
