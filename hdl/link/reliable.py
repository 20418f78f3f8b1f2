"""The reliable link endpoint: what a plain one does, over words that may be lost.

::

    send ─► ReplaySender ─┐                        ┌─ CRC ◄─ rx pins
    free ─► CreditReceiver ┼► word ─ CRC ─► tx pins├─► ReplayReceiver ─► receive (same cycle)
            ReplayReceiver ┤                       ├─► ReplaySender (ack, asked)
            BringUp ───────┘                       ├─► CreditSender ─► available
                                                   └─► BringUp

Every word has a CRC (see ``crc``); one that does not fit is refused whole. Lost flits come again
(see ``replay``), lost credits are told again: all of them when the other end asks for a replay,
since what it missed may have held some, and from then on one at every tick. So all that a refused
word held is made good in a round trip, and if the request is lost too, after some ticks: at every
tick there is a word. Both ends start together (see ``bringup``), with empty buffers and totals of
zero.

Latency law: that of the plain endpoint, cycle for cycle, while no word is refused. After a replay,
flits leave in the order in which they came, one per cycle, behind those that are sent again, until
the link has caught up.

Flow control: ``available`` needs a credit and a place in the replay buffer, which a reserved flit
keeps until it is acknowledged. Acks and credits need neither.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal

from hdl.layouts import CYCLE_BITS, LinkKind, flit, link_word
from hdl.link.bringup import BringUp, Start
from hdl.link.crc import CRC_BITS, Crc
from hdl.link.credit import CreditReceiver, CreditSender
from hdl.link.replay import ReplayReceiver, ReplaySender
from hdl.params import LinkParams

__all__ = ["START_BITS", "elaborate_reliable", "narrower_marks"]

START_BITS = Start.as_shape().size


def narrower_marks(params: LinkParams) -> Iterator[tuple[int, int]]:
    """Places of strobe and kind, within the payload, of links with smaller flits."""
    for flit_bytes in (16, 32):
        if flit_bytes < params.flit_bytes:
            word = link_word(replace(params, flit_bytes=flit_bytes, reliable=False))
            yield word["strobe"].offset, word["kind"].offset


def elaborate_reliable(end: Any, *, reserve: bool, roomy: bool) -> Module:
    """The hardware of ``end``, a ``LinkEndpoint`` with these options."""
    m = Module()
    params: LinkParams = end.params
    word_layout = link_word(params)
    rx, tx = end.link.rx, end.link.tx
    crc = Crc(word_layout["crc"].offset)
    masks = crc.registers(m)
    # It follows the pin during reset, so that a tile out of reset is already settled.
    up = Signal(reset_less=True)
    m.d.sync += up.eq(end.link.up)

    # A session's state is cleared between sessions.
    running, was_running = Signal(), Signal()
    credit, freed = CreditSender(params, roomy=roomy), CreditReceiver(params)
    sender = ReplaySender(shape=flit(params), depth=params.replay_depth, seq_bits=params.seq_bits)
    receiver = ReplayReceiver(seq_bits=params.seq_bits)
    for name, block in (("credit", credit), ("freed", freed), ("sender", sender),
                        ("receiver", receiver)):
        m.submodules[name] = ResetInserter(~running)(block)
    m.submodules.bringup = bringup = BringUp(params)
    m.d.comb += running.eq(bringup.running)
    m.d.sync += was_running.eq(running)

    # A tick is the first cycle of a period of ``now``.
    shift = params.refresh.bit_length() - 1
    period, tick = Signal(CYCLE_BITS - shift), Signal()
    m.d.comb += tick.eq(~bringup.off & (end.now[shift:] != period))
    #: A word is due; the other end has asked for a replay in this session.
    due, noisy = Signal(), Signal()
    with m.If(tick):
        m.d.sync += period.eq(end.now[shift:])

    # What arrives.
    arrives, fits, runs = Signal(), Signal(), Signal()
    starts, start_fits, refuses = Signal(), Signal(), Signal()
    m.d.comb += [
        arrives.eq(rx.strobe & up),
        starts.eq(up & Mux(rx.strobe, rx.kind == LinkKind.START, Cat(
            rx.payload[strobe] & rx.payload[kind] for strobe, kind in narrower_marks(params)
        ).any())),
    ]
    with m.If(arrives):
        m.d.comb += fits.eq(crc.parities(rx.as_value()[:crc.width], masks) == rx.crc)
    with m.If(starts):
        m.d.comb += start_fits.eq(crc.parities(rx.payload[:START_BITS], masks)
                                  == ~rx.payload[START_BITS:START_BITS + CRC_BITS])
    m.d.comb += [
        runs.eq(arrives & fits & (rx.kind == LinkKind.RUN) & running),
        refuses.eq(arrives & ~fits & ~start_fits),
        bringup.heard.valid.eq(start_fits),
        bringup.heard.payload.eq(rx.payload[:START_BITS]),
        receiver.word.valid.eq(runs),
        receiver.word.payload.seq.eq(rx.seq),
        receiver.word.payload.turn.eq(rx.turn),
        receiver.word.payload.flit.eq(rx.valid),
        receiver.lost.eq(refuses & running),
        sender.heard.valid.eq(runs & rx.acks),
        sender.heard.payload.ack.eq(rx.ack),
        sender.heard.payload.asked.eq(rx.asked),
        credit.learn.valid.eq(runs & rx.credit),
        credit.learn.payload.vc.eq(rx.credit_vc),
        credit.learn.payload.freed.eq(rx.freed),
        end.receive.valid.eq(receiver.take),
        end.receive.payload.payload.eq(rx.payload),
        end.receive.payload.head.eq(rx.head),
        end.receive.payload.tail.eq(rx.tail),
        end.receive.payload.poison.eq(rx.poison),
        end.receive.payload.vc.eq(rx.vc),
    ]
    with m.If(refuses):
        m.d.sync += end.refused.eq(end.refused + 1)

    # What leaves.
    word, start = Signal(word_layout), bringup.start
    sends = Signal()
    m.d.comb += [
        sender.send.valid.eq(end.send.valid),
        sender.send.payload.eq(end.send.payload),
        sender.hold.eq(start.valid | ~running),
        sender.tick.eq(tick),
        sends.eq(running & ~start.valid
                 & (sender.out.valid | freed.tell.valid | receiver.due | due)),
        freed.told.eq(freed.tell.valid & sends),
        receiver.told.eq(sends),
    ]
    m.d.sync += [due.eq(running & (tick | due & ~sends)),
                 noisy.eq(running & (noisy | sender.begins))]
    with m.If(start.valid):
        m.d.comb += [
            word.strobe.eq(1),
            word.kind.eq(LinkKind.START),
            word.payload.eq(Cat(start.payload, ~crc.parities(start.payload.as_value(), masks))),
            [word.payload[bit].eq(1) for place in narrower_marks(params) for bit in place],
        ]
    with m.Elif(sends):
        m.d.comb += [
            word.strobe.eq(1),
            word.seq.eq(sender.seq),
            word.turn.eq(sender.turn),
            word.acks.eq(1),
            word.ack.eq(receiver.ack),
            word.asked.eq(receiver.asked),
        ]
        with m.If(sender.out.valid):
            out = sender.out.payload
            m.d.comb += [word.valid.eq(1), word.payload.eq(out.payload), word.head.eq(out.head),
                         word.tail.eq(out.tail), word.poison.eq(out.poison), word.vc.eq(out.vc)]
        with m.If(freed.tell.valid):
            m.d.comb += [word.credit.eq(1), word.credit_vc.eq(freed.tell.payload.vc),
                         word.freed.eq(freed.tell.payload.freed)]
    m.d.sync += tx.eq(0)
    with m.If(word.strobe):
        m.d.sync += [tx.eq(word),
                     tx.crc.eq(crc.parities(word.as_value()[:crc.width], masks))]
    with m.If(running & sender.again):
        m.d.sync += end.replays.eq(end.replays + 1)

    # Credits, and the rest of the interface. A replay asked for is answered in the new turn even if
    # there is nothing to send again: by the credits that are told then.
    freeing = end.free.valid << end.free.payload
    charging = end.reserve if reserve else end.send.valid << end.send.payload.vc
    m.d.comb += [
        freed.free.eq(freeing),
        freed.refresh.eq(tick & noisy),
        freed.retell.eq(sender.begins),
        credit.charge.eq(charging),
        sender.claim.eq(end.reserve.any() if reserve else end.send.valid),
        end.available.eq(Mux(running & sender.room, credit.available, 0)),
        bringup.now.eq(end.now),
        bringup.up.eq(up),
        bringup.drained.eq(end.drained),
        bringup.tick.eq(tick),
        bringup.exhausted.eq(sender.exhausted),
        end.down.eq(bringup.down),
        end.fault.eq(bringup.fault),
        end.wake.eq(Mux(bringup.off, (1 << CYCLE_BITS) - 1, (period + 1) << shift)),
        end.idle.eq(bringup.steady & ~tx.strobe & (running == was_running)
                    & ~(running & (freed.tell.valid | receiver.due | due | sender.behind
                                   | sender.begins | sender.exhausted))),
    ]
    if roomy:
        m.d.comb += end.roomy.eq(Mux(running & sender.room, credit.roomy, 0))
    return m
