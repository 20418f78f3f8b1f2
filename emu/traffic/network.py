"""A fabric of traffic nodes on the engine: setting it up, starting it, reading what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.kinds import NodeKind
from emu.ranks import open_fabric
from emu.tables import write_switch_tables
from hdl.params import CardParams, TrafficParams
from hdl.ports import pack_dims
from hdl.topology import Topology, check_deadlock_free
from hdl.traffic.registers import ReceivedSignature, SentSignature, TrafficRegisters

from .setup import Load, id_fields, node_writes

__all__ = ["QUANTUM", "SETTLE", "Totals", "TrafficNetwork", "network_kinds"]

#: The host acts at multiples of this: it divides BookSim's sample of 1000 cycles.
QUANTUM = 100
#: Cycles from the present that a register write needs at most to be in force.
SETTLE = QUANTUM


@dataclass(frozen=True)
class Totals:
    """Totals of all nodes, by name of their register; a column of 64-bit numbers each."""

    cycle: int
    columns: dict[str, np.ndarray]

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["columns"][name]
        except KeyError:
            raise AttributeError(name) from None

    def sum(self, name: str) -> int:
        """Sum over the nodes, exact."""
        return sum(map(int, self.columns[name]))


def network_kinds(topology: Topology, params: TrafficParams, card: CardParams) -> list[NodeKind]:
    """Kinds of the nodes of a network: traffic nodes in place of the cards, then the switches.

    Raises
    ------
    ValueError
        If the nodes' routers cannot serve the topology, or routes over it could deadlock.
    """
    router = params.router
    for rank in range(topology.cards):
        topology.dims(rank, router.dims)
    check_deadlock_free(topology, router.link, rails=router.rails, adaptive=router.adaptive)
    kinds = [NodeKind.traffic(params)] * topology.cards
    if topology.switches:
        kinds += [NodeKind.switch(topology.switch(card))] * topology.switches
    return kinds


class TrafficNetwork:
    """Traffic nodes in place of the cards of a topology.

    Parameters
    ----------
    topology : Topology
    params : TrafficParams
        Of every traffic node; see :func:`~emu.traffic.setup.traffic_params`.
    card : CardParams
        Cards that the nodes stand for: parameters of switches follow from them.
    options :
        Of :class:`~emu.fabric.Fabric`, such as ``faults`` and their ``seed``, and ``progress``.

    Raises
    ------
    ValueError
        If routes over this topology could deadlock, or the router cannot serve it.
    """

    def __init__(self, topology: Topology, params: TrafficParams, card: CardParams,
                 **options: Any) -> None:
        self.topology, self.params = topology, params
        self.registers = TrafficRegisters(params)
        router = params.router
        kinds = network_kinds(topology, params, card)
        tiers = [cycles or router.link.latency for cycles in topology.tier_latency]
        #: Of each link.
        self.latency = [tiers[link.tier] for link in topology.links]
        self.fabric = open_fabric(kinds, topology.links, latency=self.latency,
                                  quantum=QUANTUM, **options)
        for rank in range(topology.cards):
            packed = pack_dims(topology.dims(rank, router.dims))
            self.fabric.set_value(rank, "traffic", "config.node",
                                  topology.node_id(rank).to_bytes(2, "little"))
            self.fabric.set_value(rank, "traffic", "config.dims",
                                  packed.to_bytes((packed.bit_length() + 7) // 8, "little"))
        for node in range(topology.cards, topology.nodes):
            self.fabric.set_value(node, "switch", "node",
                                  topology.node_id(node).to_bytes(2, "little"))
        self.fabric.start()
        write_switch_tables(self.fabric, topology)

    @property
    def cycle(self) -> int:
        """The host's present."""
        return self.fabric.cycle

    def load(self, load: Load, *, measure_from: int) -> int:
        """Set all nodes up and let them start together; return the cycle in which they do. Packets
        created ``measure_from`` cycles later and after are measured."""
        load.sizes.check(self.params.link)
        fields = id_fields(self.topology) if load.pattern.uniform_share > 1e-9 else []
        for node in range(self.topology.cards):
            for offset, value in node_writes(self.topology, self.params, load, node, fields):
                self.fabric.host_write(node, offset, value)
        start = self.cycle + 2 * QUANTUM
        self._write_all("measure_start", start + measure_from)
        self._write_all("start", start)
        self.fabric.advance(2 * QUANTUM)
        return start

    def end_measurement(self) -> int:
        """Measure no packets that are created from now on; return the cycle from which that is."""
        end = self.cycle + SETTLE
        self._write_all("measure_end", end)
        return end

    def stop(self) -> None:
        """Send no packets from now on."""
        self._write_all("stop", self.cycle + SETTLE)
        self.fabric.advance(SETTLE)

    @property
    def longest_flight(self) -> int:
        """Cycles within which a packet crosses an otherwise empty network, and a margin."""
        slowest = max(self.latency, default=0)
        return (self.topology.diameter + 1) * (slowest + 16)

    def at_rest(self) -> bool:
        """No node has anything to do, and nothing is on a link."""
        return self.fabric.at_rest()

    def advance_to(self, cycle: int) -> None:
        """Let time pass until ``cycle``, a multiple of the quantum."""
        if cycle > self.cycle:
            self.fabric.advance(cycle - self.cycle)

    def read(self, *names: str) -> Totals:
        """Read registers of all nodes. The same register is read in the same cycle everywhere,
        within few cycles of the present; a quantum passes."""
        cycle, nodes = self.cycle, range(self.topology.cards)
        offsets = [getattr(self.registers, name).offset for name in names]
        values = self.fabric.host_read_many([(node, offset)
                                             for node in nodes for offset in offsets])
        table = np.array(values, dtype=np.uint64).reshape(len(nodes), len(names))
        return Totals(cycle, {name: table[:, place] for place, name in enumerate(names)})

    def read_all(self) -> Totals:
        """Read all totals of all nodes."""
        return self.read("next", *(f"sent_{name}" for name in SentSignature().members),
                         *(f"received_{name}" for name in ReceivedSignature().members))

    def histogram(self, longest: int) -> np.ndarray:
        """Measured packets by latency, a row per node: columns up to that of ``longest``."""
        bins = min(longest + 1, self.params.bins)
        self._write_all("bin_index", 0)
        values = self.fabric.host_read_many(
            [(node, self.registers.bin.offset)
             for node in range(self.topology.cards) for _ in range(bins)])
        return np.array(values, dtype=np.int64).reshape(self.topology.cards, bins)

    def link_flits(self) -> int:
        """Flits that all links have carried so far."""
        return sum(link.flits for link in self.fabric.link_statistics())

    def close(self) -> None:
        """Release the machine."""
        self.fabric.close()

    def _write_all(self, name: str, value: int) -> None:
        for node in range(self.topology.cards):
            self.fabric.host_write(node, getattr(self.registers, name).offset, value)
