"""Acks never wait behind flits: an end of a reliable link that owes one tells it in two cycles.

The end starts in *any* state, reachable or not: so with a full replay buffer, in the middle of a
replay, with credits or without. What arrives is any word but a START, which the end would answer
with one of its own; so at most one cycle goes to a START that was due already. The other end is not
looked at, and may be just as full: two ends cannot wait for each other's acks.
"""

from amaranth.hdl import Signal

from hdl.layouts import LinkKind
from hdl.link.link import LinkEndpoint
from hdl.params import LinkParams
from tests.formal.prove import CLOCK, Case, mutant, prove, reach, refute

LINK = LinkParams(flit_bytes=16, classes=1, vcs_per_class=1, vc_depth=2, latency=1, seq_bits=5,
                  reliable=True)


def ack_case() -> Case:
    case = Case(anywhere=True)
    m = case.m
    end = LinkEndpoint(LINK)
    inside = case.block(end, "end")
    time = Signal(8, name=CLOCK)
    m.d.sync += time.eq(time + 1)

    rx = Signal(end.link.rx.shape())
    m.d.comb += [
        rx.as_value().eq(case.free(len(rx.as_value()), "arrives")),
        end.link.rx.eq(rx), end.link.up.eq(1), end.now.eq(case.free(len(end.now), "now")),
        end.send.valid.eq(case.free(1, "send")), end.drained.eq(case.free(1, "drained")),
        end.send.payload.as_value().eq(case.free(len(end.send.payload.as_value()), "flit")),
        end.free.valid.eq(case.free(1, "free")), end.free.payload.eq(0),
    ]
    running = case.see(inside["running"], "running")
    receiver, sender = inside["receiver"], inside["sender"]
    case.given(running & (rx.kind == LinkKind.RUN))
    owes = case.see(receiver.due, "owes")
    ack = case.see(receiver.ack, "ack")
    full = case.see(~sender.room, "full")

    tells = case.see(receiver.told, "tells")
    waited, told, said = Signal(range(4)), Signal(), Signal.like(ack)
    case.given((time != 0) | (waited == 0) & ~told)
    with m.If(owes & ~tells):
        m.d.sync += waited.eq(waited + 1)
    with m.Else():
        m.d.sync += waited.eq(0)
    m.d.sync += [told.eq(owes & tells), said.eq(ack)]
    tx = end.link.tx
    case.must(waited < 2, "told_soon")
    case.must(~told | tx.strobe & tx.acks & (tx.ack == said), "on_the_pins")
    case.reach(owes & tells & full, "told_while_full")
    return case


def test_an_end_that_owes_an_ack_tells_it_in_two_cycles_from_any_state():
    prove(ack_case(), "acks", bound=5)
    reach(ack_case(), "acks", bound=2)


def test_an_end_whose_acks_ride_on_flits_is_refuted(monkeypatch):
    broken = mutant("hdl.link.reliable", ("(sender.out.valid | freed.tell.valid | receiver.due",
                                          "(sender.out.valid | freed.tell.valid"))
    monkeypatch.setattr("hdl.link.link.elaborate_reliable", broken.elaborate_reliable)
    refute(ack_case(), "acks", bound=5, breaks="told_soon")


def test_an_end_that_must_have_room_to_tell_is_refuted(monkeypatch):
    broken = mutant("hdl.link.reliable", ("sends.eq(running & ~start.valid",
                                          "sends.eq(running & sender.room & ~start.valid"))
    monkeypatch.setattr("hdl.link.link.elaborate_reliable", broken.elaborate_reliable)
    refute(ack_case(), "acks", bound=5, breaks="told_soon")
