"""Link words in a bench: packing, unpacking, and a model of the far end of a link."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from hdl.layouts import field_slices, link_word
from hdl.link.credit import CreditReceiverModel, CreditSenderModel
from hdl.params import LinkParams
from tests.bench import Bench

__all__ = ["Flit", "LinkPeer", "Words"]


class Flit(NamedTuple):
    payload: int
    head: int
    tail: int
    vc: int
    poison: int = 0


class Words:
    """Packs and unpacks link words of one link, and checks that each is well formed."""

    def __init__(self, params: LinkParams) -> None:
        self._slices = field_slices(link_word(params))

    def pack(self, flit: Flit | None, told: tuple[int, int] | None) -> int:
        fields: dict[str, int] = {}
        if flit is not None:
            fields |= {"strobe": 1, "valid": 1, **flit._asdict()}
        if told is not None:
            fields |= {"strobe": 1, "credit": 1, "credit_vc": told[0], "freed": told[1]}
        return sum(value << self._slices[name][0] for name, value in fields.items())

    def unpack(self, word: int) -> tuple[Flit | None, tuple[int, int] | None]:
        """Return (flit, (VC, told total)), each ``None`` if the word has none.

        Raises
        ------
        AssertionError
            If a field that must be zero is not.
        """
        def field(name: str) -> int:
            offset, width = self._slices[name]
            return word >> offset & (1 << width) - 1

        flit = Flit(*map(field, Flit._fields)) if field("valid") else None
        told = (field("credit_vc"), field("freed")) if field("credit") else None
        assert self.pack(flit, told) == word, f"word {word:#x} has fields set that must be zero"
        return flit, told


class LinkPeer:
    """The far end of a link port of the block under test: sends flits under credits, receives,
    and frees what it received at a rate of its own.

    It checks every cycle that its receive buffers do not overflow and that no total it hears
    runs ahead of what it sent.

    Parameters
    ----------
    prefix : str
        Of the port, e.g. ``"links__0"``.
    send_rate, free_rate : float
        Probability to send, and to free a received flit, per cycle.
    latency : int
        Cycles that words take in each direction on top of the pins.
    """

    def __init__(self, bench: Bench, prefix: str, params: LinkParams, *, send_rate: float = 1.0,
                 free_rate: float = 1.0, latency: int = 0) -> None:
        dut = bench.dut
        self._rx, self._tx = (getattr(dut, f"{prefix}__{pin}") for pin in ("rx", "tx"))
        self._bench, self._params, self._prefix = bench, params, prefix
        self._words = Words(params)
        self.send_rate, self.free_rate = send_rate, free_rate
        self.sender, self.receiver = CreditSenderModel(params), CreditReceiverModel(params)
        #: Flits to send, by VC.
        self.queues: list[deque[Flit]] = [deque() for _ in range(params.vcs)]
        #: (cycle on the pins, flit), as they leave and as they arrive.
        self.sent: list[tuple[int, Flit]] = []
        self.received: list[tuple[int, Flit]] = []
        self.arrived = [0] * params.vcs
        self._out: deque[int] = deque([0] * latency)
        self._in: deque[int] = deque([0] * latency)
        self._last_word = 0
        self._rx.value = 0
        getattr(dut, f"{prefix}__up").value = 1
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)
        bench.on_stuck(self._stuck)

    def send(self, *flits: Flit) -> None:
        for flit in flits:
            self.queues[flit.vc].append(flit)

    @property
    def empty(self) -> bool:
        """Everything is sent, and everything received is freed and told."""
        return not any(self.queues) and self.receiver.tell is None and \
            self.arrived == self.receiver.freed

    @property
    def balanced(self) -> bool:
        """The other end has freed, and told, all that was sent to it."""
        return self.sender.sent == self.sender.freed

    def _stuck(self) -> str:
        waiting = {vc: len(queue) for vc, queue in enumerate(self.queues) if queue}
        credit = self.sender.available
        return f"{self._prefix}: to send by VC {waiting}, credit {credit:#x}" if waiting else ""

    def _drive(self) -> None:
        rng, flit = self._bench.rng, None
        ready = [vc for vc, queue in enumerate(self.queues)
                 if queue and self.sender.available >> vc & 1]
        if ready and rng.random() < self.send_rate:
            vc = rng.choice(ready)
            flit = self.queues[vc].popleft()
            self.sender.charge(vc)
            self.sent.append((self._bench.cycle + len(self._out), flit))
        told = self.receiver.tell
        self.receiver.told()
        self._out.append(self._words.pack(flit, told))
        word = self._out.popleft()
        if word != self._last_word:
            self._rx.value = word
        self._last_word = word

    def _sample(self) -> None:
        self._in.append(int(self._tx.value))
        flit, told = self._words.unpack(self._in.popleft())
        cycle, rng = self._bench.cycle, self._bench.rng
        if told is not None:
            vc, freed = told
            self.sender.learn(vc, freed)
            assert self.sender.freed[vc] <= self.sender.sent[vc], \
                f"cycle {cycle}: {self._prefix} was told more of VC {vc} than it sent"
        if flit is not None:
            self.received.append((cycle - len(self._in), flit))
            self.arrived[flit.vc] += 1
            assert self.arrived[flit.vc] - self.receiver.freed[flit.vc] <= self._params.vc_depth, \
                f"cycle {cycle}: {self._prefix} got a flit of VC {flit.vc} without room for it"
        held = [vc for vc in range(self._params.vcs)
                if self.arrived[vc] > self.receiver.freed[vc]]
        if held and rng.random() < self.free_rate:
            self.receiver.free(rng.choice(held))
