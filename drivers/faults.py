"""Dead links, as software sees them: which links of a machine are down, and what an error says.

Both ends of a cable report it in their nodes' ``link`` registers. A cable is named by the end of
the lower node, as the topology names links (``1:+x`` for card 1's port in the + direction of the
first dimension, ``s3:17`` for port 17 of switch 3).
"""

from __future__ import annotations

from hdl import layouts
from hdl.layouts import LinkStatus, Status
from hdl.params import NicParams
from hdl.registers import RegisterMap
from hdl.topology import Topology

from .backend import Backend
from .commands import CompletionRecord

__all__ = ["LINK_STATUSES", "cable_name", "dead_links", "describe_error", "link_of", "node_of"]

#: Status codes of a command that say that a link may have died.
LINK_STATUSES = (Status.LINK_DOWN, Status.TIMEOUT, Status.POISON)


def dead_links(backend: Backend) -> list[str]:
    """Names of the cables that are down now, each with the reason that an end of it gives; time
    passes."""
    topology = backend.topology
    # Cards and switches have the registers at the same offsets.
    register = RegisterMap(NicParams(), 64).link
    places = [(link.source, link.source_port) for link in topology.links]
    words = backend.read_registers([(node, register.at(port)) for node, port in places])
    names: dict[str, str] = {}
    for (node, port), word in zip(places, words, strict=True):
        status = layouts.unpack(LinkStatus, word)
        if status["down"]:
            fault = status["fault"]
            names.setdefault(cable_name(topology, node, port), getattr(fault, "name", str(fault)))
    return [f"{name} ({fault})" for name, fault in names.items()]


def cable_name(topology: Topology, node: int, port: int) -> str:
    """Name of the cable at a port, by whichever of its ends."""
    link = topology.link_at.get((node, port))
    if link is None:
        return f"{topology.node_name(node)}:{topology.port_name(node, port)}"
    if (link.target, link.target_port) < (node, port):
        link = topology.link_at.get((link.target, link.target_port), link)
    return topology.link_name(link)


def node_of(topology: Topology, node_id: int) -> int | None:
    """The node with this id, or ``None``."""
    try:
        return topology.rank(node_id)
    except ValueError:
        return next((node for node in range(topology.cards, topology.nodes)
                     if topology.node_id(node) == node_id), None)


def link_of(topology: Topology, record: CompletionRecord) -> str | None:
    """The cable that a record of a command names: that whose death sent a packet of it back."""
    if record.status != Status.LINK_DOWN:
        return None
    node = node_of(topology, record.peer)
    if node is None:
        return f"port {record.link} of node {record.peer:#x}"
    return cable_name(topology, node, record.link)


def describe_error(topology: Topology, record: CompletionRecord) -> str:
    """One line about a command that failed."""
    op, status = (getattr(value, "name", value) for value in (record.op, record.status))
    # A late error knows the command's tag alone.
    what = "a command" if record.queue == 0xF else op
    text = (f"card {record.card}: {what} with tag {record.tag} ended at cycle {record.ended} with "
            f"{status}")
    link = link_of(topology, record)
    if link is not None:
        return f"{text} of link {link}"
    if record.status == Status.TIMEOUT:
        return text
    node = node_of(topology, record.peer)
    if node is None:
        return f"{text} from node {record.peer:#x}"
    return f"{text} from {'card' if node < topology.cards else 'switch'} {topology.node_name(node)}"
