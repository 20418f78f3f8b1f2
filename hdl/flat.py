"""Several equal cards as one design, links included: what the tile-by-tile engine is compared with.

::

        card 0                                   card 1
        network ── tx ─⊕─►[ latency registers ]──► rx network
           │           fault        up                │
        gemm, done                                 gemm, done
           │                                          │
        compute                                    compute

The tiles are instances of the Verilog modules that the engine runs one by one, so flat and tiled
machine differ in nothing but what joins them. Memory and host ports, configuration, ``idle`` and
``wake`` of every tile come out; so does each link's transmitted word and each stream between tiles,
for the event log.

Latency law: a word in ``tx`` in cycle t is in the peer's ``rx`` in cycle t + the link's latency, as
on the engine's channels. Unlike there, empty words travel too.

Faults: the bits of ``fault`` are flipped of the word that leaves in the same cycle. In a cycle in
which ``up`` of the port that a link leads to is low, all words on the link are lost: the one in
``tx``, those in the registers, and the one in ``rx``.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, Mux, ResetSignal, Shape, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import ADDRESS_BITS, CYCLE_BITS
from .params import CardParams
from .ports import (
    ComputeSignature,
    ConfigSignature,
    GemmDone,
    GemmRequest,
    HostSignature,
    LinkSignature,
    MemoryReadSignature,
    MemoryWriteSignature,
    NetworkSignature,
    RailMemorySignature,
)
from .topology import Link
from .verilog import Generated, generate

__all__ = ["FlatFabric", "ObservedLink", "ObservedStream", "generate_flat"]


class ObservedLink(wiring.Signature):
    """What is seen of a link that stays inside, at the port that it leaves, and what can be done
    to it. ``up`` is that of the port, and of the link that leads to it."""

    manifest_kind = "link"

    def __init__(self, link: LinkSignature) -> None:
        word = link.members["tx"].shape
        super().__init__({"tx": Out(word), "up": In(1), "fault": In(Shape.cast(word).width)})


class ObservedStream(wiring.Signature):
    """A stream inside, seen from outside."""

    manifest_kind = "stream"

    def __init__(self, inner: stream.Signature) -> None:
        super().__init__({
            "payload": Out(inner.members["payload"].shape), "valid": Out(1), "ready": Out(1)})


def _network_view(params: CardParams) -> wiring.Signature:
    link = LinkSignature(params.link)
    return wiring.Signature({
        "config": In(ConfigSignature(params.router)),
        "links": Out(ObservedLink(link)).array(params.router.links),
        "host": Out(HostSignature()),
        "memory": Out(RailMemorySignature(params.link.flit_bytes)).array(params.rails),
        "gemm": Out(ObservedStream(stream.Signature(GemmRequest))),
        "done": Out(ObservedStream(stream.Signature(GemmDone))),
        "idle": Out(1), "wake": Out(CYCLE_BITS),
        "activity": NetworkSignature(params).members["activity"]})


def _compute_view(params: CardParams) -> wiring.Signature:
    flit_bytes = params.link.flit_bytes
    return wiring.Signature({
        "memory_bytes": In(ADDRESS_BITS + 1),
        "read": Out(MemoryReadSignature(flit_bytes)).array(params.compute.read_ports),
        "write": Out(MemoryWriteSignature(flit_bytes)),
        "idle": Out(1), "wake": Out(CYCLE_BITS),
        "activity": ComputeSignature(params).members["activity"]})


class FlatFabric(wiring.Component):
    """Cards joined by delayed links.

    Parameters
    ----------
    params : CardParams
        Of every card.
    cards : int
        Number of cards.
    links : iterable of Link
        Directed links between them.
    latency : sequence of int
        Of each link.
    network, compute : str
        Names of the tiles' Verilog modules.

    Members
    -------
    now : ``In(48)``
    network, compute : arrays of one view per card
        The tiles' ports, without those that are joined inside.
    """

    def __init__(self, *, params: CardParams, cards: int, links: Iterable[Link],
                 latency: Sequence[int], network: str = "network",
                 compute: str = "compute") -> None:
        self._params = params
        self._cards = cards
        self._links = tuple(zip(links, latency, strict=True))
        self._modules = network, compute
        super().__init__({
            "now": In(CYCLE_BITS),
            "network": Out(_network_view(params)).array(cards),
            "compute": Out(_compute_view(params)).array(cards)})

    @property
    def params(self) -> CardParams:
        return self._params

    def elaborate(self, platform):
        m = Module()
        networks = [_Pins(NetworkSignature(self._params), f"network{rank}")
                    for rank in range(self._cards)]
        computes = [_Pins(ComputeSignature(self._params), f"compute{rank}")
                    for rank in range(self._cards)]
        for rank, (network, compute) in enumerate(zip(networks, computes, strict=True)):
            m.submodules[f"network{rank}"] = network.instance(self._modules[0])
            m.submodules[f"compute{rank}"] = compute.instance(self._modules[1])
            m.d.comb += [network["now"].eq(self.now), compute["now"].eq(self.now)]
            for name, source, target in (("gemm", network, compute), ("done", compute, network)):
                m.d.comb += [
                    target[f"{name}__payload"].eq(source[f"{name}__payload"]),
                    target[f"{name}__valid"].eq(source[f"{name}__valid"]),
                    source[f"{name}__ready"].eq(target[f"{name}__ready"])]
            for pins, view in ((network, self.network[rank]), (compute, self.compute[rank])):
                for path, member, port in view.signature.flatten(view):
                    if path[-1] == "fault":
                        continue
                    pin = pins["__".join(map(str, path))]
                    raw = port.as_value() if hasattr(port, "as_value") else port
                    m.d.comb += pin.eq(raw) if member.flow is In else raw.eq(pin)
        for link, latency in self._links:
            word = (networks[link.source][f"links__{link.source_port}__tx"]
                    ^ self.network[link.source].links[link.source_port].fault)
            up = self.network[link.target].links[link.target_port].up
            for stage in range(latency):
                delayed = Signal(len(word),
                                 name=f"link{link.source}_{link.source_port}_stage{stage}")
                m.d.sync += delayed.eq(Mux(up, word, 0))
                word = delayed
            m.d.comb += networks[link.target][f"links__{link.target_port}__rx"].eq(
                Mux(up, word, 0))
        return m


class _Pins:
    """A signal for every port of a tile instance, by Verilog name."""

    def __init__(self, signature: wiring.Signature, prefix: str) -> None:
        self._flows = {}
        self._signals = {}
        for path, member in _flatten(signature):
            name = "__".join(map(str, path))
            self._flows[name] = member.flow
            self._signals[name] = Signal(_width(member), name=f"{prefix}__{name}")

    def __getitem__(self, name: str) -> Signal:
        return self._signals[name]

    def instance(self, module: str) -> Instance:
        ports = {f"{'i' if self._flows[name] is In else 'o'}_{name}": signal
                 for name, signal in self._signals.items()}
        return Instance(module, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)


def _flatten(signature: wiring.Signature) -> Iterable[tuple[tuple[str | int, ...], Any]]:
    pins = signature.create(path=("pins",))
    return [(path, member) for path, member, _ in signature.flatten(pins)]


def _width(member: Any) -> int:
    return Shape.cast(member.shape).width


def generate_flat(*, params: CardParams, cards: int, links: Iterable[Link],
                  latency: Sequence[int], network: Generated, compute: Generated,
                  name: str = "flat") -> Generated:
    """Return one Verilog text with the flat fabric and the tiles it instantiates."""
    fabric = FlatFabric(params=params, cards=cards, links=links, latency=latency,
                        network=network.name, compute=compute.name)
    top = generate(fabric, name)
    views = [f"{tile}[{rank}]." for rank in range(cards) for tile in ("network", "compute")]
    manifest = top.manifest | {"views": views}
    return Generated("\n".join((top.text, network.text, compute.text)), manifest)
