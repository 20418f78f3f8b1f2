"""Bring-up: how the two ends of a reliable link agree to run, and why they stop.

::

                signal                 agreed & drained
        OFF ───────────► START ◄──────────────────────────► RUN
         ▲                 │ ▲     restart, replay limit     │
         └── signal lost ──┼─┴───────────────────────────────┘
                           └── other parameters ──► REFUSED (until reset)

An end that is not running says so with START words: what it is built like, a number of its own for
this attempt (``own``, a stamp of ``now``), and the other end's number, once it has ``heard`` it. It
repeats them at every tick, and at once when it learns something, so losing them costs time only. An
end runs once it hears its own number back, and answers a START of the same attempt with a START
that says ``running``, so that the other end gets there too. A START word carries a CRC of its own
at a place that no parameter moves, and is known by the strobe of any flit size, so ends that are
built differently understand each other so far.

Why no word of an old session is taken for one of a new one. Words stay in order. Call x, y the
numbers of two ends X and Y in attempts of theirs; a session is a pair (x, y). X takes what is not
START only while it runs. It runs (x, y) only after a START from y that echoes x, so Y had then
heard x, and whatever Y sent in earlier sessions arrived before. What Y sends later, while it keeps
y, is of (x, y): it would run with another x' only if it heard x' after x, and then X is no longer
in x. If Y leaves y, it runs again as y' only after a START from X that echoes y', and X, while it
runs (x, y), echoes y alone. So all that X takes is of its own session, and the totals of a session
start at zero on both sides. Numbers need to differ only from those that may still be on their way,
which are as old as the link is long: 24 bits of ``now`` are plenty, since an end that was reset is
also known by having ``heard`` nobody, whatever its number.

Faults: SIGNAL, the signal went away. PEER_RESET, the other end was reset while this one ran;
PEER_DOWN, it gave up the session, or has not answered for :data:`PATIENCE` ticks. MISMATCH, it is
built differently. REPLAY_LIMIT, a flit could not be brought over. After all but MISMATCH the link
starts again when it can. ``down`` is clear while the link runs, and before it has run for the first
time, unless it failed to.

Latency law: over a link of latency L that loses nothing, both ends run 2 L + 5 cycles after the
signal is there and both are out of reset. A loss is made good at the next tick.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS, LinkFault
from hdl.params import LinkParams
from hdl.ports import ValidSignature

__all__ = ["NUMBER_BITS", "PATIENCE", "REVISION", "BringUp", "Profile", "Start", "profile"]

#: Of the protocol of reliable links.
REVISION = 1
NUMBER_BITS = 24
#: Ticks without an agreement after which a link that has not run is reported down.
PATIENCE = 16


class Profile(data.Struct):
    """What must be equal at both ends."""

    revision: 8
    flit_bytes: 8
    classes: 4
    vcs_per_class: 4
    vc_depth: 12
    seq_bits: 8


class Start(data.Struct):
    """What a START word says, in the first 96 bits of its payload. Their CRC follows, inverted, so
    that no flip makes a START of a word without a payload."""

    profile: Profile
    own: NUMBER_BITS
    other: NUMBER_BITS
    #: ``other`` is the number heard last.
    heard: 1
    #: The sender runs (``own``, ``other``) already.
    running: 1
    #: The sender has not run since its reset.
    fresh: 1
    reserved: 1


def profile(params: LinkParams) -> dict[str, int]:
    """The profile of an end with these parameters."""
    return {"revision": REVISION, "flit_bytes": params.flit_bytes, "classes": params.classes,
            "vcs_per_class": params.vcs_per_class, "vc_depth": params.vc_depth,
            "seq_bits": params.seq_bits}


class _State(enum.Enum, shape=2):
    OFF = 0
    START = 1
    RUN = 2
    REFUSED = 3


class BringUp(wiring.Component):
    """Bring-up of one end.

    Parameters
    ----------
    params : LinkParams

    Members
    -------
    now : ``In(48)``
    up : ``In(1)``
        Signal present; a register.
    drained : ``In(1)``
        This end's receive buffers are empty, so the link may run.
    tick : ``In(1)``
    heard : ``In(ValidSignature(Start))``
        A good START word arrives.
    exhausted : ``In(1)``
        A flit was resent too often.
    start : ``Out(ValidSignature(Start))``
        What this cycle's word is, in place of all else; a function of registers.
    running : ``Out(1)``, off : ``Out(1)``, down : ``Out(1)``, fault : ``Out(LinkFault)``
        Registers; ``off`` without a signal.
    steady : ``Out(1)``
        Nothing happens here before a tick, a word or a change of an input; a function of registers.
    """

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        super().__init__({
            "now": In(CYCLE_BITS),
            "up": In(1),
            "drained": In(1),
            "tick": In(1),
            "heard": In(ValidSignature(Start)),
            "exhausted": In(1),
            "start": Out(ValidSignature(Start)),
            "running": Out(1),
            "off": Out(1),
            "down": Out(1),
            "fault": Out(LinkFault),
            "steady": Out(1),
        })

    @property
    def params(self) -> LinkParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(_State)
        own, other = Signal(NUMBER_BITS), Signal(NUMBER_BITS)
        # The other's number is known; it has told ours; there is a START to send; this end has run.
        known, agreed, due, ran = Signal(), Signal(), Signal(), Signal()
        patience = Signal(range(PATIENCE + 1))
        said, told = self.start.payload, self.heard.payload
        equal, echoed = Signal(), Signal()
        m.d.comb += [
            self.running.eq(state == _State.RUN),
            self.off.eq(state == _State.OFF),
            self.steady.eq(~due & ~(agreed & (state == _State.START))
                           & ((state == _State.REFUSED) | (self.off ^ self.up))),
            self.start.valid.eq(due & self.up),
            [getattr(said.profile, name).eq(value)
             for name, value in profile(self._params).items()],
            said.own.eq(own),
            said.other.eq(other),
            said.heard.eq(known),
            said.running.eq(self.running),
            said.fresh.eq(~ran),
            equal.eq(told.profile.as_value() == said.profile.as_value()),
            echoed.eq(told.heard & (told.other == own)),
        ]
        m.d.sync += due.eq(0)

        def attempt() -> list:
            """A new attempt to start begins."""
            return [state.eq(_State.START), own.eq(self.now[:NUMBER_BITS]), known.eq(0),
                    agreed.eq(0), due.eq(1), patience.eq(0)]

        def fails(fault: LinkFault) -> list:
            return [self.down.eq(1), self.fault.eq(fault)]

        hears = self.heard.valid & self.up
        with m.Switch(state):
            with m.Case(_State.OFF):
                with m.If(self.up):
                    m.d.sync += attempt()
            with m.Case(_State.START):
                with m.If(self.tick):
                    m.d.sync += due.eq(1)
                    with m.If(~self.down):
                        m.d.sync += patience.eq(patience + 1)
                        with m.If(patience == PATIENCE - 1):
                            m.d.sync += fails(LinkFault.PEER_DOWN)
                with m.If(hears & equal):
                    m.d.sync += [known.eq(1), other.eq(told.own), agreed.eq(echoed)]
                    with m.If(~(known & (told.own == other)) | ~echoed):
                        m.d.sync += due.eq(1)
                with m.If(agreed & self.drained & ~(hears & ~echoed)):
                    m.d.sync += [state.eq(_State.RUN), ran.eq(1), self.down.eq(0),
                                 self.fault.eq(LinkFault.NONE)]
            with m.Case(_State.RUN):
                with m.If(hears):
                    with m.If(~(told.heard & (told.own == other))):
                        m.d.sync += [*attempt(), known.eq(1), other.eq(told.own),
                                     self.down.eq(1), self.fault.eq(
                                         Mux(told.fresh, LinkFault.PEER_RESET,
                                             LinkFault.PEER_DOWN))]
                    with m.Elif(~told.running):
                        m.d.sync += due.eq(1)
                with m.Elif(self.exhausted):
                    m.d.sync += [*attempt(), *fails(LinkFault.REPLAY_LIMIT)]
            with m.Case(_State.REFUSED):
                with m.If(self.tick):
                    m.d.sync += due.eq(1)
        with m.If((state != _State.REFUSED) & (state != _State.OFF)):
            with m.If(~self.up):
                m.d.sync += [state.eq(_State.OFF), *fails(LinkFault.SIGNAL), due.eq(0),
                             agreed.eq(0)]
            with m.Elif(hears & ~equal):
                m.d.sync += [state.eq(_State.REFUSED), *fails(LinkFault.MISMATCH), due.eq(1)]
        return m
