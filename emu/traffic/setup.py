"""From what is asked of the traffic to the registers of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hdl.layouts import pack
from hdl.nic.packets import header_flits
from hdl.params import CardParams, LinkParams, TrafficParams
from hdl.topology import Topology
from hdl.traffic.gap import gap_thresholds
from hdl.traffic.random import cumulative
from hdl.traffic.registers import SIZES, STREAMS, Field, Size, Target, TrafficRegisters
from hdl.traffic.target import FIELDS

from .patterns import Pattern, Share

__all__ = ["Load", "Sizes", "id_fields", "node_writes", "traffic_params"]

#: Payload bytes that a packet may have.
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Sizes:
    """Packet sizes in flits, header included, with weights."""

    flits: tuple[int, ...] = (1,)
    weights: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if len(self.flits) != len(self.weights):
            raise ValueError(f"{len(self.flits)} packet sizes have {len(self.weights)} weights")
        if not 1 <= len(self.flits) <= SIZES:
            raise ValueError(f"a mix has 1 to {SIZES} packet sizes, not {len(self.flits)}")
        if min(self.weights) < 0 or not sum(self.weights) > 0:
            raise ValueError("weights of packet sizes must be at least 0, and one of them more, "
                             f"not {self.weights}")

    @property
    def mean(self) -> float:
        """Mean flits of a packet."""
        return float(np.average(self.flits, weights=self.weights))

    def check(self, link: LinkParams) -> None:
        """Refuse sizes that packets over ``link`` cannot have.

        Raises
        ------
        ValueError
            If there are such.
        """
        least = header_flits(link)
        most = least + _MOST_BYTES // link.flit_bytes
        for flits in self.flits:
            if not least <= flits <= most:
                raise ValueError(f"a packet has {least} to {most} flits of {link.flit_bytes} B, "
                                 f"not {flits}")


@dataclass(frozen=True)
class Load:
    """What every node is to send."""

    pattern: Pattern
    #: Flits per node and cycle.
    rate: float
    sizes: Sizes = Sizes()
    seed: int = 0

    @property
    def probability(self) -> float:
        """Probability that a node creates a packet in a cycle.

        Raises
        ------
        ValueError
            If it is not above 0 and at most 1.
        """
        probability = self.rate / self.sizes.mean
        if not 0 < probability <= 1:
            raise ValueError(f"the rate must be above 0 and at most {self.sizes.mean:g} flits per "
                             f"node and cycle (one packet), not {self.rate:g}")
        return probability


def traffic_params(topology: Topology, card: CardParams, *,
                   adaptive: bool | None = None) -> TrafficParams:
    """Parameters of the nodes that replace the cards of ``topology``: their routers, with one local
    port. ``adaptive`` of ``None`` leaves it to the card."""
    router = replace(topology.router(card.router), rails=1)
    if adaptive is not None:
        router = replace(router, adaptive=adaptive)
    return TrafficParams(router=router)


def id_fields(topology: Topology) -> list[tuple[int, int]]:
    """(size, shift) of the fields of which the ids of cards are all combinations.

    Raises
    ------
    ValueError
        If there are none, or too many.
    """
    fields = [(size, shift) for shift, size in topology.fields or () if size > 1]
    if topology.fields is None or len(fields) > FIELDS:
        raise ValueError(f"{topology.spec}: node ids do not have 1 to {FIELDS} coordinate fields, "
                         "as traffic to all nodes alike needs")
    return fields + [(1, 0)] * (FIELDS - len(fields))


def node_writes(topology: Topology, params: TrafficParams, load: Load,
                node: int, fields: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Register writes (offset, value) that set a node up, all but its times."""
    registers = TrafficRegisters(params)
    for index, threshold in enumerate(gap_thresholds(load.probability)):
        yield registers.gap.at(index), threshold
    flits = load.sizes.flits + load.sizes.flits[-1:] * (SIZES - len(load.sizes.flits))
    below = cumulative(load.sizes.weights, sum(load.sizes.weights), SIZES)
    for index in range(SIZES):
        yield registers.size.at(index), _word(Size, below=below[index], flits=flits[index])
    state = np.random.SeedSequence([load.seed, node]).generate_state(2 * STREAMS, np.uint64)
    for index, word in enumerate(state):
        yield registers.seed.at(index), int(word)
    for index, (size, shift) in enumerate(fields):
        yield registers.field.at(index), _word(Field, size=size, shift=shift)
    shares: tuple[Share, ...] = load.pattern.shares[node]
    if not shares:
        return
    below = cumulative([each.share for each in shares], 1.0, params.targets)
    nodes = [topology.node_id(each.node) for each in shares]
    for index in range(params.targets):
        yield registers.target.at(index), _word(
            Target, below=below[index], node=nodes[min(index, len(nodes) - 1)])


def _word(layout: type, **values: int) -> int:
    return int.from_bytes(pack(layout, values), "little")
