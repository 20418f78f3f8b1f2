"""Replay: every flit of one direction of a link arrives in order exactly once, whatever words are
lost (go-back-N).

::

            ┌──────────── ReplaySender ───────────┐          ┌─ ReplayReceiver ─┐
    send ─┬─┼──────────────────────┬─► out, seq, ─┼─ words ─►│ seq = expected?  ├─► take
          └─┼─► RAM ─► read ───────┘   turn       │          │                  │
            │   acked ≤ position ≤ next ◄─────────┼─ words ──│ ack, asked       │
            └─────────────────────────────────────┘          └──────────────────┘

Flits are numbered modulo ``2 ** seq_bits``. The sender keeps each in a RAM until it is
acknowledged. ``position`` is the number of the flit that the wire gets next; normally it is that of
the next new flit, which then goes out in the cycle in which it comes. *Every* word carries
``position``, with a flit or without, so that any word shows the receiver what it has missed.

The receiver takes a flit if its number is the one it expects, drops all others, and tells the total
that it expects, ``ack``, in every word that goes the other way. All totals are absolute: a word
that is lost, or comes late, costs time and nothing else. There are two ways back to ``acked``:

* *Asked.* ``asked`` and ``turn`` are totals of replays, modulo 2. A receiver that finds a word
  missing (a word was refused, or one comes with a number ahead of what is expected) adds 1 to
  ``asked``. A sender that hears ``asked`` differ from its own ``turn`` goes back to the ack told
  with it, and sends with ``turn`` = ``asked`` from then on. The receiver asks only in the turn for
  which it asked last, so once per gap, however many words of the old turn are still on their way;
  and a request is repeated by every later word until the new turn shows that it was heard. Words
  stay in order, so there are never more than two turns about, and modulo 2 tells them apart.
* *Unasked.* If flits have gone unacknowledged from one ``tick`` to the next, the sender goes back
  without a new turn. That serves when nothing else comes through, and after ``limit`` returns, of
  either kind, without any progress of the ack, ``exhausted`` says that the link is of no use.

Why full replay buffers on both sides cannot block acks: an ack needs no flit to ride on, no place
in a replay buffer, no sequence number and no credit. A receiver makes it from one register, in any
cycle in which the link takes a word; and taking a flit needs no place in the receiver's own replay
buffer, since it has a place in the receive buffer of its virtual channel by its credit. So both
windows being full means two senders that wait for words which both are free to send.

Why a number is never mistaken, if ``2 * depth <= 2 ** seq_bits``: let a word leave with number s
when the sender's totals are acked ≤ s ≤ next ≤ acked + depth. Words stay in order, so what the
receiver expects, e, when the word arrives is at least that acked and at most that next. So a flit
(s < next) has s − e from −depth to depth − 1, which differ modulo twice the depth. A word without a
flit may also have s − e = depth, which passes for −depth and is ignored; then all flits of a full
window have been lost, and the next tick resends them.

Latency law: ``out`` is ``send`` of the same cycle while ``position`` is ``next``. A request heard
in cycle ``t`` has its first flit out in ``t + 2``, and flits come one per cycle from then on until
the RAM has been caught up with. A place is free in ``t + 1`` if its ack is heard in ``t``. ``take``
belongs to the word of the same cycle; ``ack`` and ``asked`` follow in the next.

Depth: a place claimed r cycles before its flit is claimed again after 2 L + 4 + r cycles over a
link of latency L (tx register, L to the far pins, ``ack`` register, tx register, L back, ``acked``
register). ``LinkParams.replay_depth`` has r = 4. On a longer link the window limits the rate to
depth ÷ (2 L + 4 + r).
"""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hdl.ports import ValidSignature

__all__ = ["REPLAY_LIMIT", "ReplayReceiver", "ReplaySender"]

#: Consecutive replays of one flit after which the link goes down.
REPLAY_LIMIT = 16


def _check_seq_bits(seq_bits: int) -> None:
    if not isinstance(seq_bits, int) or seq_bits < 1:
        raise ValueError(f"seq_bits must be an integer of at least 1, not {seq_bits!r}")


class ReplaySender(wiring.Component):
    """The sender's side.

    Parameters
    ----------
    shape : ShapeLike
        Of a flit.
    depth : int
        Flits that may be unacknowledged, a power of two.
    seq_bits : int
        Twice the depth fits.
    limit : int
        Replays without progress after which ``exhausted`` is set, 1…255.

    Members
    -------
    room : ``Out(1)``
        A place is free, a function of registers.
    claim : ``In(1)``
        Claims a place, while ``room``.
    send : ``In(ValidSignature(shape))``
        A flit whose place was claimed, in this cycle or before.
    hold : ``In(1)``
        No flit can go out in this cycle.
    out : ``Out(ValidSignature(shape))``
        The flit that goes out in this cycle.
    seq : ``Out(seq_bits)``, turn : ``Out(1)``
        Of every word that goes out in this cycle; registers.
    heard : ``In(ValidSignature({ack, asked}))``
        Of a good word that arrives in this cycle.
    tick : ``In(1)``
        Flits that were unacknowledged at the last tick, and nothing since, are sent again.
    begins : ``Out(1)``
        A new turn begins with the next cycle. A function of registers.
    behind : ``Out(1)``
        Flits wait to go out. A function of registers.
    waiting : ``Out(1)``
        Flits have gone out that are not acknowledged. A function of registers.
    exhausted : ``Out(1)``
        ``limit`` replays in a row have brought no progress; a register, never cleared but by reset.
    again : ``Out(1)``
        The flit of this cycle has gone out before.
    """

    def __init__(self, *, shape: ShapeLike, depth: int, seq_bits: int,
                 limit: int = REPLAY_LIMIT) -> None:
        _check_seq_bits(seq_bits)
        if depth < 1 or depth & (depth - 1) or 2 * depth > 1 << seq_bits:
            raise ValueError(f"depth must be a power of two of which twice fits seq_bits = "
                             f"{seq_bits}, not {depth!r}")
        if not 1 <= limit <= 255:
            raise ValueError(f"limit must be from 1 to 255, not {limit!r}")
        self._shape, self._depth, self._seq_bits, self._limit = shape, depth, seq_bits, limit
        super().__init__({
            "room": Out(1),
            "claim": In(1),
            "send": In(ValidSignature(shape)),
            "hold": In(1),
            "out": Out(ValidSignature(shape)),
            "seq": Out(seq_bits),
            "turn": Out(1),
            "heard": In(ValidSignature(data.StructLayout({"ack": seq_bits, "asked": 1}))),
            "tick": In(1),
            "begins": Out(1),
            "behind": Out(1),
            "waiting": Out(1),
            "exhausted": Out(1),
            "again": Out(1),
        })

    @property
    def depth(self) -> int:
        return self._depth

    @property
    def seq_bits(self) -> int:
        return self._seq_bits

    @property
    def limit(self) -> int:
        return self._limit

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, depth = self._seq_bits, self._depth
        row_bits = (depth - 1).bit_length()
        #: Numbers: the oldest flit not acknowledged, what the wire gets next, what it never had,
        #: the next new flit, the next place to claim. They rise in this order.
        acked, position, unsent, upcoming, claimed = (
            Signal(bits, name=name)
            for name in ("acked", "position", "unsent", "upcoming", "claimed"))
        asked = Signal()
        # The RAM's output is the flit at ``position``.
        loaded = Signal()
        m.submodules.flits = flits = memory.Memory(shape=self._shape, depth=max(2, depth), init=[])
        write, read = flits.write_port(), flits.read_port()

        # What goes out.
        goes, following = Signal(), Signal(bits)
        out = Signal.like(self.out.payload)
        m.d.comb += out.eq(self.send.payload)
        with m.If(loaded):
            m.d.comb += out.eq(read.data)
        m.d.comb += [
            self.behind.eq(position != upcoming),
            self.waiting.eq(acked != unsent),
            goes.eq(~self.hold & (loaded | self.send.valid & ~self.behind)),
            self.out.valid.eq(goes),
            self.out.payload.eq(out),
            self.seq.eq(position),
            self.again.eq(goes & (position != unsent)),
            following.eq(position + goes),
            write.en.eq(self.send.valid),
            write.addr.eq(upcoming[:row_bits]),
            write.data.eq(self.send.payload),
        ]
        with m.If(self.send.valid):
            m.d.sync += upcoming.eq(upcoming + 1)
        with m.If(self.claim):
            m.d.sync += claimed.eq(claimed + 1)
        with m.If(goes & ~self.again):
            m.d.sync += unsent.eq(unsent + 1)

        # What is heard.
        progress, expires = Signal(), Signal()
        stale = Signal()
        m.d.comb += [
            self.room.eq(~(claimed - acked)[row_bits]),
            self.begins.eq(asked != self.turn),
            progress.eq(self.heard.valid & (self.heard.payload.ack != acked)),
            expires.eq(self.tick & stale & self.waiting & ~progress),
        ]
        with m.If(self.heard.valid):
            m.d.sync += [acked.eq(self.heard.payload.ack), asked.eq(self.heard.payload.asked)]
        m.d.sync += self.turn.eq(asked)

        # Where the wire goes on: also past what an ack, told late, has overtaken.
        target, overtaken, jumps = Signal(bits), Signal(), Signal()
        m.d.comb += [
            overtaken.eq((position - acked)[:bits] > (unsent - acked)[:bits]),
            jumps.eq(self.begins | expires | overtaken),
            target.eq(Mux(jumps, acked, following)),
            read.en.eq((jumps | self.behind) & (target != upcoming)),
            read.addr.eq(target[:row_bits]),
        ]
        m.d.sync += [position.eq(target), loaded.eq(read.en)]

        tries = Signal(range(self._limit + 1))
        with m.If(progress):
            m.d.sync += [stale.eq(0), tries.eq(0)]
        with m.Else():
            with m.If(self.tick):
                m.d.sync += stale.eq(self.waiting)
            with m.If((self.begins & self.waiting | expires) & (tries != self._limit)):
                m.d.sync += tries.eq(tries + 1)
        with m.If(tries == self._limit):
            m.d.sync += self.exhausted.eq(1)
        return m


class ReplayReceiver(wiring.Component):
    """The receiver's side.

    Parameters
    ----------
    seq_bits : int

    Members
    -------
    word : ``In(ValidSignature({seq, turn, flit}))``
        A good word arrives; ``flit`` says that it holds one.
    lost : ``In(1)``
        A word arrives that is refused.
    take : ``Out(1)``
        The flit that arrives in this cycle is the next one, combinational.
    ack : ``Out(seq_bits)``, asked : ``Out(1)``
        Of every word that goes the other way; registers.
    due : ``Out(1)``
        They have changed, or must be told again; a register.
    told : ``In(1)``
        They are on their way.
    """

    def __init__(self, *, seq_bits: int) -> None:
        _check_seq_bits(seq_bits)
        self._seq_bits = seq_bits
        super().__init__({
            "word": In(ValidSignature(data.StructLayout({"seq": seq_bits, "turn": 1, "flit": 1}))),
            "lost": In(1),
            "take": Out(1),
            "ack": Out(seq_bits),
            "asked": Out(1),
            "due": Out(1),
            "told": In(1),
        })

    @property
    def seq_bits(self) -> int:
        return self._seq_bits

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self._seq_bits
        word, valid = self.word.payload, self.word.valid
        #: Of the last good word.
        turn = Signal()
        ahead, again, asks = Signal(), Signal(), Signal()
        distance = Signal(bits)
        m.d.comb += [
            distance.eq(word.seq - self.ack),
            self.take.eq(valid & word.flit & (distance == 0)),
            ahead.eq((distance != 0) & ~distance[-1]),
            again.eq(word.flit & distance[-1]),
            asks.eq(Mux(valid, ahead & (word.turn == self.asked),
                        self.lost & (turn == self.asked))),
        ]
        with m.If(self.told):
            m.d.sync += self.due.eq(0)
        with m.If(valid | self.lost):
            m.d.sync += self.asked.eq(self.asked ^ asks)
            with m.If(self.take | asks | valid & again):
                m.d.sync += self.due.eq(1)
        with m.If(valid):
            m.d.sync += turn.eq(word.turn)
        with m.If(self.take):
            m.d.sync += self.ack.eq(self.ack + 1)
        return m

