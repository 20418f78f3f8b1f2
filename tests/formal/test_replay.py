"""Replay delivers every flit once and in order, whatever words are lost, on either wire.

A sender and a receiver of one direction are joined by two wires, one for words with and without
flits, one for words with acks. Each wire keeps the order of its words, and delays or loses them at
will; at the receiver a word may also be refused. Words, ticks and new flits come at any time.

One flit, any of them, is followed: when the receiver takes the flit of its number, it takes what
was sent. Beside each number modulo the link's modulus stands a wider one, so that what is meant by
it is known; the wider ones wrap too. All are compared by their distance from a number that none is
further below than a window.
"""

import pytest
from amaranth.hdl import Mux, Signal, Value

from hdl.link.replay import ReplayReceiver, ReplaySender
from tests.formal.prove import CLOCK, Case, mutant, prove, reach, refute

WIDTH = 2


class Wire:
    """Words under way, in order. A place that does not go keeps its word, and what comes to it is
    lost; any word may be dropped."""

    def __init__(self, case: Case, name: str, places: int, fields: dict[str, int]) -> None:
        self.words = [{field: Signal(width, name=f"{name}{place}_{field}")
                       for field, width in {"word": 1, **fields}.items()}
                      for place in range(places)]
        self.go, self.drop = (case.free(places, f"{name}_{what}") for what in ("go", "drop"))
        self.leaves = case.see(self.words[-1]["word"] & self.go[-1] & ~self.drop[-1],
                               f"{name}_leaves")
        self._case = case

    @property
    def last(self) -> dict[str, Signal]:
        return self.words[-1]

    def enter(self, enters: Value, values: dict[str, Value]) -> None:
        m = self._case.m
        coming = {"word": enters, **values}
        for place, word in enumerate(self.words):
            with m.If(self.go[place] | ~word["word"]):
                m.d.sync += [word[field].eq(coming[field]) for field in word]
            with m.Elif(self.drop[place]):
                m.d.sync += word["word"].eq(0)
            coming = {**word, "word": word["word"] & self.go[place] & ~self.drop[place]}


def replay_case(sender_block: type[ReplaySender], receiver_block: type[ReplayReceiver], *,
                depth: int = 2, seq_bits: int = 2, places: int = 2, invariants: bool = True,
                calm: int | None = None) -> Case:
    """With ``calm`` the case starts in any state in which the invariants hold, and from then on
    no word is lost or delayed, nothing new is sent, and ticks come every so many cycles."""
    case = Case(anywhere=calm is not None)
    m = case.m
    wide = (4 * depth - 1).bit_length()
    sender = sender_block(shape=WIDTH, depth=depth, seq_bits=seq_bits)
    receiver = receiver_block(seq_bits=seq_bits)
    inside = case.block(sender, "sender")
    case.block(receiver, "receiver")
    holds = case.must
    if calm is not None:
        time, phase = Signal(8, name=CLOCK), case.fixed(range(calm), "phase")
        m.d.sync += time.eq(time + 1)
        case.given(phase < calm)

        def holds(condition: Value, name: str) -> None:
            case.given((time != 0) | condition)

    # New flits, each in a place claimed before or now.
    claim, send, hold, tick = (case.free(1, name) for name in ("claim", "send", "hold", "tick"))
    flit, follow = case.free(WIDTH, "flit"), case.free(1, "follow")
    claims, sends, taken, acked = (Signal(wide, name=name)
                                   for name in ("claims", "sends", "taken", "acked"))
    case.given(~claim | sender.room)
    case.given(~send | claim | (claims != sends))
    m.d.comb += [sender.claim.eq(claim), sender.send.valid.eq(send), sender.send.payload.eq(flit),
                 sender.hold.eq(hold), sender.tick.eq(tick)]
    m.d.sync += [claims.eq(claims + claim), sends.eq(sends + send)]

    # The words: what the number of each means is the last such number up to all that was sent.
    words = Wire(case, "word", places, {"seq": seq_bits, "number": wide, "turn": 1, "flit": 1,
                                        "payload": WIDTH})
    position = case.see(_meant(sender.seq, sends, seq_bits, wide), "position")
    speak, refused = case.free(1, "speak"), case.free(1, "refused")
    words.enter(sender.out.valid | speak, {
        "seq": sender.seq, "number": position, "turn": sender.turn, "flit": sender.out.valid,
        "payload": sender.out.payload})
    came = words.last
    m.d.comb += [receiver.word.valid.eq(words.leaves & ~refused),
                 receiver.lost.eq(words.leaves & refused),
                 receiver.word.payload.seq.eq(came["seq"]),
                 receiver.word.payload.turn.eq(came["turn"]),
                 receiver.word.payload.flit.eq(came["flit"])]
    take = case.see(receiver.take, "take")
    m.d.sync += taken.eq(taken + take)

    # The acks.
    acks = Wire(case, "ack", places, {"ack": seq_bits, "total": wide, "asked": 1})
    told = case.free(1, "told")
    m.d.comb += receiver.told.eq(told)
    acks.enter(told, {"ack": receiver.ack, "total": taken, "asked": receiver.asked})
    m.d.comb += [sender.heard.valid.eq(acks.leaves), sender.heard.payload.ack.eq(acks.last["ack"]),
                 sender.heard.payload.asked.eq(acks.last["asked"])]
    with m.If(acks.leaves):
        m.d.sync += acked.eq(acks.last["total"])

    followed, number, value = Signal(), Signal(wide), Signal(WIDTH)
    with m.If(~followed & send & follow):
        m.d.sync += [followed.eq(1), number.eq(sends), value.eq(flit)]
    with m.If(followed & take & (taken == number)):
        m.d.sync += followed.eq(0)

    def beyond(total: Value) -> Value:
        return (total - acked)[:wide]

    holds(~take | (taken != sends), "taken_was_sent")
    holds(~(take & followed & (taken == number)) | (came["payload"] == value), "in_order")
    holds(beyond(claims) <= depth, "window")
    holds(sender.room == (beyond(claims) < depth), "room")
    holds((beyond(taken) <= beyond(sends)) & (beyond(sends) <= beyond(claims)), "totals")
    holds(receiver.ack == taken[:seq_bits], "ack")
    if calm is not None:
        case.given(words.go.all() & acks.go.all() & ~words.drop.any() & ~acks.drop.any()
                   & ~refused & ~hold & ~send & told & (tick == (time % calm == phase)))
        done = case.see((acked == taken) & (taken == sends), "done")
        case.must((time < 2 * calm + 6 * places + 2 * depth) | done, "done")
    case.reach((beyond(sends) == depth) & (taken == sends), "full_and_taken")
    replayed = Signal()
    with m.If(sender.again):
        m.d.sync += replayed.eq(1)
    case.reach((sends == 3) & (acked == 3) & replayed, "replayed")
    if invariants:
        _invariants(case, inside, holds, words, acks, depth=depth, seq_bits=seq_bits,
                    totals=(acked, taken, sends, claims), position=position,
                    kept=(followed, number, value), read=sender.out.payload)
    return case


def _invariants(case, inside, holds, words, acks, *, depth, seq_bits, totals, position, kept,
                read) -> None:
    """What else holds in every state that can be reached, so that the proof needs one step."""
    acked, taken, sends, claims = totals
    followed, number, value = kept
    wide = len(taken)
    low = case.see((claims - depth)[:wide], "low")  # none is below

    def above(total: Value) -> Value:
        return (total - low)[:wide]

    unsent = case.see(_meant(inside["unsent"], sends, seq_bits, wide), "unsent")
    for name, total in (("acked", acked), ("upcoming", sends), ("claimed", claims)):
        holds(inside[name] == total[:seq_bits], f"{name}_inside")
    holds((above(position) <= above(unsent)) & (above(unsent) <= above(sends)), "position")
    holds((above(acked) <= above(taken)) & (above(taken) <= above(unsent)), "acked")
    holds(~inside["loaded"] | (position != sends), "loaded")
    row = inside.row("flits", number[:(depth - 1).bit_length()], "row")
    holds(~followed | (above(number) < above(sends)) & (above(taken) <= above(number))
          & (row == value), "kept")
    holds(~(followed & inside["loaded"] & (position == number)) | (read == value), "read")
    newer = taken
    for place, word in enumerate(acks.words):
        holds(~word["word"] | (word["ack"] == word["total"][:seq_bits])
              & (above(acked) <= above(word["total"]))
              & (above(word["total"]) <= above(newer)), f"ack_word{place}")
        newer = case.see(Mux(word["word"], word["total"], newer), f"newest_ack{place}")
    for place, word in enumerate(words.words):
        # From a window below what is taken up to what was sent.
        is_flit = word["word"] & word["flit"]
        holds(~word["word"] | (word["seq"] == word["number"][:seq_bits])
              & ((word["number"] - taken + depth)[:wide] <= (unsent - taken + depth)[:wide]),
              f"word{place}")
        holds(~is_flit | (word["number"] != unsent), f"flit{place}")
        holds(~(is_flit & followed & (word["number"] == number)) | (word["payload"] == value),
              f"payload{place}")
        for ahead in words.words[place + 1:]:
            # What is ahead brings the receiver no further than a window beyond this one.
            holds(~(word["word"] & ahead["word"] & ahead["flit"])
                  | ((ahead["number"] - word["number"] + 2 * depth)[:wide] < 3 * depth),
                  f"apart{place}")


def _meant(total: Value, most: Value, bits: int, wide: int) -> Value:
    """The largest number up to ``most`` that is ``total`` modulo ``2 ** bits``."""
    return (most - (most - total)[:bits])[:wide]


@pytest.mark.parametrize(("depth", "seq_bits"), [
    (1, 1), (2, 2), (2, 3), pytest.param(4, 3, marks=pytest.mark.slow)])
def test_flits_arrive_once_and_in_order_whatever_is_lost(depth, seq_bits):
    prove(replay_case(ReplaySender, ReplayReceiver, depth=depth, seq_bits=seq_bits),
          f"replay{depth}_{seq_bits}", induction=1)


def test_the_window_can_be_full_and_flits_are_sent_again():
    reach(replay_case(ReplaySender, ReplayReceiver, places=1, invariants=False), "replay",
          bound=16)


def test_a_wire_that_loses_no_more_brings_everything_from_any_state():
    prove(replay_case(ReplaySender, ReplayReceiver, places=1, calm=10), "replay-calm", bound=34)


@pytest.mark.parametrize(("old", "new", "broken_property"), [
    ("valid & word.flit & (distance == 0)", "valid & word.flit", "in_order"),
    ("valid & word.flit & (distance == 0)", "valid & word.flit & ~distance[0]", "taken_was_sent"),
    ("read.addr.eq(target", "read.addr.eq(position", "in_order"),
    ("(claimed - acked)[row_bits]", "(claimed - acked)[bits - 1] & 0", "room"),
    ("loaded.eq(read.en)", "loaded.eq(1)", "taken_was_sent"),
], ids=["any number is taken", "numbers modulo the window", "reads one row late",
        "no window", "sends what is not there"])
def test_a_broken_replay_is_refuted(old, new, broken_property):
    broken = mutant("hdl.link.replay", (old, new))
    refute(replay_case(broken.ReplaySender, broken.ReplayReceiver, places=1, invariants=False),
           "replay", bound=14, breaks=broken_property)


def test_a_sender_that_never_expires_is_refuted():
    broken = mutant("hdl.link.replay", ("expires.eq(self.tick & stale", "expires.eq(0 & stale"))
    refute(replay_case(broken.ReplaySender, ReplayReceiver, places=1, calm=10), "replay-calm",
           bound=34, breaks="done")
