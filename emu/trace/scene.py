"""What a machine consists of, as far as its events need it to be understood."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from emu.fabric import Fabric
from hdl.layouts import field_slices, link_word
from hdl.params import CardParams
from hdl.registers import RegisterMap
from hdl.topology import Link, Topology

__all__ = ["Fields", "Scene"]

#: First bit and width of named fields of a word.
Fields = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Scene:
    """Nodes, links, and where the fields of event records are.

    Parameters
    ----------
    fabric : Fabric
    topology : Topology
    clock_ghz : float
        Cycles per nanosecond.
    """

    fabric: Fabric
    topology: Topology
    clock_ghz: float = 1.0
    #: Where links go: by node and port.
    routes: dict[tuple[int, int], tuple[Link, int]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", {
            (link.source, link.source_port): (link, latency)
            for link, latency in zip(self.fabric.links, self.fabric.latency, strict=True)})

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.fabric.kinds)

    def node_of(self, node_id: int) -> int | None:
        """The card with this node id."""
        return self._cards.get(node_id)

    @cached_property
    def _cards(self) -> dict[int, int]:
        return {self.topology.node_id(rank): rank for rank in range(self.topology.cards)}

    @cached_property
    def link_fields(self) -> Fields:
        """Of ``value`` of a record of a link: the word's control bits. All words of a fabric are
        laid out alike."""
        slices = field_slices(link_word(self.fabric.kinds[0].params.link))
        payload = slices.pop("payload")[1]
        slices.pop("crc")
        return {name: (first - payload, width) for name, (first, width) in slices.items()}

    @cached_property
    def vcs(self) -> int:
        """Virtual channels of a link."""
        return self.fabric.kinds[0].params.link.vcs

    @cached_property
    def reliable(self) -> bool:
        """Whether links send flits again."""
        return self.fabric.kinds[0].params.link.reliable

    @cached_property
    def registers(self) -> RegisterMap | None:
        """The registers of the cards, if there are any."""
        params = self.fabric.kinds[0].params
        if not isinstance(params, CardParams):
            return None
        return RegisterMap(params.nic, params.router.links)

    @cached_property
    def queues(self) -> int:
        """Command queues of a card, without the direct one."""
        params = self.fabric.kinds[0].params
        return params.nic.queues if isinstance(params, CardParams) else 0
