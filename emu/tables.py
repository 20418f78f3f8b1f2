"""Route tables of switches: written through their host ports before the traffic starts."""

from __future__ import annotations

from drivers.routes import route_words
from hdl.switch_registers import SwitchRegisterMap
from hdl.topology import Topology

from .fabric import Fabric

__all__ = ["write_switch_tables"]

#: Cycles that an operation needs from the host port to where it acts.
_DELIVERY = 8


def write_switch_tables(fabric: Fabric, topology: Topology) -> None:
    """Write the route tables of all switches of ``topology``, which runs on ``fabric``; time passes
    until they are in force."""
    longest = 0
    for node in range(topology.cards, topology.nodes):
        writes = route_words(topology.switch_levels(node), topology.switch_table(node))
        table = SwitchRegisterMap(fabric.kinds[node].params.radix).table.offset
        for word in writes:
            fabric.host_write(node, table, word)
        longest = max(longest, len(writes))
    if longest:
        fabric.advance(longest + _DELIVERY)
