"""Two ends of a reliable link in a bench, with everything that can go wrong between them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from amaranth.hdl import Module, Mux, ResetInserter, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import CYCLE_BITS, LinkFault, field_slices, flit, link_word
from hdl.link.link import LinkEndpoint
from hdl.params import LinkParams
from hdl.ports import ValidSignature
from tests.bench import Bench

__all__ = ["End", "Flit", "FaultyPair"]


class Flit(NamedTuple):
    payload: int
    head: int
    tail: int
    poison: int
    vc: int


class FaultyPair(wiring.Component):
    """Endpoints ``a`` and ``b``, ``latency`` cycles apart. Each can be reset and lose its signal;
    ``flip`` of an end is added to the words that it sends. Words of unequal width are cut off, or
    filled with zeros. With ``twin``, plain endpoints get the same inputs and run beside them.
    """

    def __init__(self, a: LinkParams, b: LinkParams, *, twin: LinkParams | None = None) -> None:
        self._params, self._twin = {"a": a, "b": b}, twin
        members = {"now": In(CYCLE_BITS)}
        for end, params in self._params.items():
            members |= {
                f"reset_{end}": In(1),
                f"up_{end}": In(1),
                f"flip_{end}": In(link_word(params).size),
                f"drained_{end}": In(1),
                f"send_{end}": In(ValidSignature(flit(params))),
                f"available_{end}": Out(params.vcs),
                f"receive_{end}": Out(ValidSignature(flit(params))),
                f"free_{end}": In(ValidSignature(unsigned(params.vc_bits))),
                f"idle_{end}": Out(1),
                f"wake_{end}": Out(CYCLE_BITS),
                f"down_{end}": Out(1),
                f"fault_{end}": Out(LinkFault),
                f"replays_{end}": Out(32),
                f"refused_{end}": Out(32),
                f"tx_{end}": Out(link_word(params)),
            }
            if twin is not None:
                members |= {f"twin_available_{end}": Out(params.vcs),
                            f"twin_receive_{end}": Out(ValidSignature(flit(params)))}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._join(m, self._params, "")
        if self._twin is not None:
            self._join(m, dict.fromkeys("ab", self._twin), "twin_")
        return m

    def _join(self, m: Module, params: dict[str, LinkParams], prefix: str) -> None:
        ends = {}
        for end in "ab":
            ends[end] = endpoint = LinkEndpoint(params[end])
            m.submodules[f"{prefix}{end}"] = ResetInserter(getattr(self, f"reset_{end}"))(endpoint)
            m.d.comb += [
                endpoint.link.up.eq(getattr(self, f"up_{end}")),
                endpoint.now.eq(self.now),
                endpoint.drained.eq(getattr(self, f"drained_{end}")),
                getattr(self, f"{prefix}available_{end}").eq(endpoint.available),
            ]
            for name in ("send", "free"):
                port, inner = getattr(self, f"{name}_{end}"), getattr(endpoint, name)
                m.d.comb += [inner.valid.eq(port.valid), inner.payload.eq(port.payload)]
            port = getattr(self, f"{prefix}receive_{end}")
            m.d.comb += [port.valid.eq(endpoint.receive.valid),
                         port.payload.eq(endpoint.receive.payload)]
            if not prefix:
                m.d.comb += [getattr(self, f"{name}_{end}").eq(getattr(endpoint, name))
                             for name in ("idle", "wake", "down", "fault", "replays", "refused")]
                m.d.comb += getattr(self, f"tx_{end}").eq(endpoint.link.tx)
        for source, target in ("ab", "ba"):
            tx, rx = ends[source].link.tx, ends[target].link.rx
            word = Signal(tx.shape().size, name=f"{prefix}{source}_leaves")
            flip = 0 if prefix else getattr(self, f"flip_{source}")
            m.d.comb += word.eq(Mux(tx.strobe, tx.as_value() ^ flip, 0))
            for step in range(params[source].latency):
                later = Signal(len(word), name=f"{prefix}{source}{step}")
                m.d.sync += later.eq(word)
                word = later
            m.d.comb += rx.eq(word)


class End:
    """One end: sends and frees at random, and checks that what arrives is what the other end sent,
    in order, once, and never beyond a buffer.

    Words that leave are struck with probability ``error_rate``, ``burst`` in a row.
    """

    def __init__(self, bench: Bench, name: str, params: LinkParams, *,
                 send_rate: float = 1.0, free_rate: float = 1.0) -> None:
        dut = bench.dut
        self.bench, self.name, self.params = bench, name, params
        self.send_rate, self.free_rate = send_rate, free_rate
        self.vcs = list(range(params.vcs))
        self.fields = field_slices(flit(params))
        self.word = field_slices(link_word(params))
        self.word_bits = link_word(params).size
        self.ports = {port: getattr(dut, f"{port}_{name}") for port in (
            "reset", "up", "flip", "drained", "available", "idle", "wake", "down", "fault",
            "replays", "refused", "tx")}
        self.ports |= {f"{port}.{part}": getattr(dut, f"{port}_{name}__{part}")
                       for port in ("send", "receive", "free") for part in ("payload", "valid")}
        self.sent: deque[Flit] = deque()  # and not yet received
        self.total, self.received = 0, 0
        #: Cycles in which flits were sent, and received.
        self.departures: list[int] = []
        self.arrivals: list[int] = []
        self.held = [0] * params.vcs
        self.error_rate = 0.0
        self.burst = 1
        self.struck = 0
        self._left = 0
        self.offer: Flit | None = None
        self.freeing: int | None = None
        for port, value in (("reset", 0), ("up", 1), ("flip", 0), ("drained", 1),
                            ("send.valid", 0), ("free.valid", 0)):
            self.ports[port].value = value
        self.drained: int | None = None
        bench.on_drive(self.drive)
        bench.on_sample(self.sample)
        bench.on_stuck(lambda: f"{name}: {len(self.sent)} flits not received, available "
                               f"{self.read('available'):#x}, fault {self.read('fault')}")

    def read(self, port: str) -> int:
        return int(self.ports[port].value)

    @property
    def fault(self) -> LinkFault:
        return LinkFault(self.read("fault"))

    def pack(self, flit: Flit) -> int:
        return sum(value << self.fields[field][0] for field, value in flit._asdict().items())

    def drive(self) -> None:
        rng = self.bench.rng
        ready = [vc for vc in self.vcs if self.read("available") >> vc & 1]
        self.offer = None
        if ready and rng.random() < self.send_rate:
            self.offer = Flit(rng.getrandbits(self.params.flit_bits), rng.getrandbits(1),
                              rng.getrandbits(1), rng.getrandbits(1), rng.choice(ready))
            self.ports["send.payload"].value = self.pack(self.offer)
        self.ports["send.valid"].value = int(self.offer is not None)
        full = [vc for vc, held in enumerate(self.held) if held]
        self.freeing = rng.choice(full) if full and rng.random() < self.free_rate else None
        self.ports["free.valid"].value = int(self.freeing is not None)
        if self.freeing is not None:
            self.ports["free.payload"].value = self.freeing
        self.ports["drained"].value = int(not full) if self.drained is None else self.drained
        self.ports["flip"].value = self.flip()

    def flip(self) -> int:
        if self._left == 0 and self.error_rate and self.bench.rng.random() < self.error_rate:
            self._left = self.burst
        if self._left == 0:
            return 0
        self._left -= 1
        if self.error_rate == 1:
            return 1
        flips = 0
        for _ in range(self.bench.rng.choice((1, 1, 2, 3, 40))):
            flips ^= 1 << self.bench.rng.randrange(self.word_bits)
        return flips & ~(1 << self.word["strobe"][0]) or 1

    def sample(self) -> None:
        cycle = self.bench.cycle
        if self.read("receive.valid"):
            value = self.read("receive.payload")
            arrived = Flit(*(value >> self.fields[field][0] & (1 << self.fields[field][1]) - 1
                             for field in Flit._fields))
            assert self.peer.sent, f"cycle {cycle}: {self.name} received what nobody sent"
            expected = self.peer.sent.popleft()
            assert arrived == expected, f"cycle {cycle}: {self.name} received another flit"
            self.held[arrived.vc] += 1
            self.received += 1
            self.arrivals.append(cycle)
            assert self.held[arrived.vc] <= self.params.vc_depth, \
                f"cycle {cycle}: VC {arrived.vc} of {self.name} overflows"
        tx = self.read("tx")
        if tx >> self.word["strobe"][0] & 1 and self.read("flip"):
            self.struck += 1
        if self.freeing is not None:
            self.held[self.freeing] -= 1
        if self.offer is not None:
            self.sent.append(self.offer)
            self.departures.append(cycle)
            self.total += 1
