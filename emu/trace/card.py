"""What a card does, as spans: its operations, commands, waits, rails and GEMMs.

A card is *busy* from the doorbell that finds it with nothing to do until the last command posted so
far has ended. A busy card is, in every cycle, in one *phase*:

``work``   commands are in flight
``wait``   none is, and the head of a queue waits for a counter
``fetch``  neither: commands are on their way from memory, or being looked at

so the phases of a busy span tile it. Commands last from their stamp ``started`` to their stamp
``ended``; a doorbell's stamp is the cycle of its write.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from hdl.layouts import (
    CommandActivity,
    GemmActivity,
    GemmPhase,
    Op,
    RailActivity,
    ReplyState,
    RxState,
    TxState,
    queue_activity,
    unpack,
)

from .scene import Scene
from .spans import Span, SpanSink, Track

__all__ = ["CardTimeline", "StateTrack"]

_NOTHING: Mapping[str, Any] = {}
_TX = {TxState.SEND: "send", TxState.MEMORY: "wait for memory", TxState.CREDIT: "wait for credit",
       TxState.REPLY: "give way to a reply"}
_RX = {RxState.TAKE: "take", RxState.MEMORY: "wait for memory",
       RxState.ORDER: "wait for an older packet", RxState.REPLY: "wait for room for a reply"}
_REPLY = {ReplyState.SEND: "send", ReplyState.CREDIT: "wait for credit"}
_GEMM = {phase: phase.name.lower() for phase in GemmPhase if phase is not GemmPhase.REST}


class StateTrack:
    """A track whose spans are the states of something."""

    def __init__(self, sink: SpanSink, track: Track) -> None:
        self._sink, self._track = sink, track
        self._state: str | None = None
        self._details: Mapping[str, Any] = _NOTHING
        self._since = 0

    def set(self, cycle: int, state: str | None,
            details: Mapping[str, Any] = _NOTHING) -> None:
        """From ``cycle`` on it is in ``state``; ``None`` is not shown."""
        if state == self._state and details == self._details:
            return
        if self._state is not None and cycle > self._since:
            self._sink.span(Span(self._track, self._since, cycle, self._state, self._details))
        self._state, self._since, self._details = state, cycle, details


@lru_cache(maxsize=1 << 12)
def _decode(layout: Any, value: int) -> dict[str, Any]:
    return unpack(layout, value)


class CardTimeline:
    """The spans of one card, from the words of its activity and from its doorbells."""

    def __init__(self, scene: Scene, node: int, sink: SpanSink) -> None:
        registers = scene.registers
        assert registers is not None
        self._node, self._sink = node, sink
        self._tails = {registers.queue_tail.at(queue): queue for queue in range(scene.queues)}
        self._direct = registers.direct.at(7)
        self._posted, self._started, self._ended = [0] * scene.queues, 0, 0
        self._total = 0
        self._queues = scene.queues + 1
        self._waits = 0  # queues that wait for a counter
        self._busy = StateTrack(sink, Track(node, (0,), "card"))
        self._phase = StateTrack(sink, Track(node, (1,), "phase"))
        self._tracks: dict[tuple[int, ...], StateTrack] = {}
        #: Of each slot in use: when its command started, and what it is.
        self._open: dict[int, tuple[int, str, dict[str, Any]]] = {}
        self._turns = 0, 0
        rules = {"commands": self._commands, "queues": self._queue_waits, "gemm": self._gemm}
        self._rules = [rules[name] if name in rules else
                       partial(self._rail, int(name.removeprefix("rails.")))
                       if name.startswith("rails.") else None
                       for name in scene.fabric.activity(node)]

    def doorbell(self, cycle: int, address: int, value: int) -> None:
        """The host has written a register."""
        if address in self._tails:
            queue = self._tails[address]
            new = (value - self._posted[queue]) & 0xFFFF_FFFF
            self._posted[queue] = value
        else:
            new = int(address == self._direct)
        if new:
            if self._total == self._ended:
                self._busy.set(cycle, "busy")
            self._total += new
            self._set_phase(cycle)

    def activity(self, cycle: int, word: int, value: int) -> None:
        """A word of the card's activity has changed."""
        rule = self._rules[word]
        if rule is not None:
            rule(cycle, value)

    def finish(self, cycle: int) -> None:
        """Show what is still going on in ``cycle``."""
        for track in (self._busy, self._phase, *self._tracks.values()):
            track.set(cycle, None)
        for slot in list(self._open):
            self._close(slot, cycle, {"unfinished": True})

    def _set_phase(self, cycle: int) -> None:
        if self._total == self._ended:
            self._phase.set(cycle, None)
        else:
            self._phase.set(cycle, "work" if self._started != self._ended else
                            "wait" if self._waits else "fetch")

    def _commands(self, cycle: int, value: int) -> None:
        words = _decode(CommandActivity, value)
        started, ended = words["started"], words["ended"]
        turns = started["turn"], ended["turn"]
        stamp = cycle - 1
        if turns[1] != self._turns[1]:
            self._ended += 1
            self._close(ended["slot"], stamp, {"failed": True} if ended["failed"] else {})
        if turns[0] != self._turns[0]:
            self._started += 1
            op, queue = started["op"], started["queue"]
            self._open[started["slot"]] = stamp, op.name if isinstance(op, Op) else f"op {op}", {
                "tag": started["tag"], "queue": "direct" if queue == self._queues - 1 else queue}
        self._turns = turns
        if self._total == self._ended:
            self._busy.set(stamp, None)
        self._set_phase(stamp)

    def _close(self, slot: int, cycle: int, more: dict[str, Any]) -> None:
        begin, name, details = self._open.pop(slot)
        self._sink.span(Span(Track(self._node, (3, slot), f"slot {slot}"), begin, cycle, name,
                             details | more))

    def _queue_waits(self, cycle: int, value: int) -> None:
        words = _decode(_queue_layout(self._queues), value)
        for queue in range(self._queues):
            state = next((f"wait for {what}" for what in ("counter", "fence", "room")
                          if words[what] >> queue & 1), None)
            name = "direct queue" if queue == self._queues - 1 else f"queue {queue}"
            self._track((2, queue), name).set(cycle, state)
        self._waits = words["counter"]
        self._set_phase(cycle)

    def _rail(self, rail: int, cycle: int, value: int) -> None:
        words = _decode(RailActivity, value)
        tx = _TX.get(words["tx"])
        self._track((4, rail, 0), f"rail {rail} tx").set(
            cycle, tx, {"slot": words["slot"]} if tx else _NOTHING)
        self._track((4, rail, 1), f"rail {rail} replies").set(cycle, _REPLY.get(words["reply"]))
        self._track((4, rail, 2), f"rail {rail} rx").set(cycle, _RX.get(words["rx"]))

    def _gemm(self, cycle: int, value: int) -> None:
        words = _decode(GemmActivity, value)
        phase = _GEMM.get(words["phase"])
        self._track((5,), "gemm").set(cycle, phase, {"slot": words["slot"]} if phase else _NOTHING)

    def _track(self, order: tuple[int, ...], name: str) -> StateTrack:
        if order not in self._tracks:
            self._tracks[order] = StateTrack(self._sink, Track(self._node, order, name))
        return self._tracks[order]


_queue_layout = lru_cache(maxsize=16)(queue_activity)
