"""Route tables as software writes them: of switches through a register, of cards by commands.

A table overrides what a card's router computes (see ``hdl/fabric/lookup``), so software can give
the machine other routes than its own while it is idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hdl.fabric.lookup import table_route
from hdl.fabric.route import next_hop
from hdl.fabric.table import LEVELS
from hdl.layouts import RouteEntry, RouteLevel, RouteWrite, pack
from hdl.params import CardParams
from hdl.topology import Topology, check_deadlock_free
from hdl.topology.base import TableEntry

__all__ = ["RouteTable", "check_routes", "route_words"]


@dataclass(frozen=True)
class RouteTable:
    """The route table of one node.

    Attributes
    ----------
    levels : sequence of mappings
        ``mask``, ``value`` and ``shift`` of at most four levels, tried in their order. None for
        computed routes alone.
    entries : sequence of TableEntry
    """

    levels: Sequence[Mapping[str, int]] = ()
    entries: Sequence[TableEntry] = ()

    def at(self, port: int) -> dict[tuple[int, int], dict[str, int]]:
        """The entries in force at an input port, by (level, index), as the look-up has them."""
        return {(each.level, each.index): {"port": each.port, "lane": each.lane or 0,
                                           "fixed": int(each.lane is not None)}
                for each in self.entries if each.input in (None, port)}


def route_words(levels: Sequence[Mapping[str, int]], entries: Iterable[TableEntry]) -> list[int]:
    """The writes (``RouteWrite``) that put a table in force; levels that are not given are cleared.

    Raises
    ------
    ValueError
        If there are more than four levels, or a value does not fit its field.
    """
    if len(levels) > LEVELS:
        raise ValueError(f"a route table has at most {LEVELS} levels, not {len(levels)}")
    words = [_word({"level": each.level, "entry": 1, "body": _body(RouteEntry, {
        "index": each.index, "port": each.port, "lane": each.lane or 0,
        "fixed": each.lane is not None, "input": each.input or 0,
        "every_input": each.input is None})}) for each in entries]
    # Entries first: a level never matches before what it leads to is there.
    return words + [_word({"level": number, "body": _body(
        RouteLevel, {**levels[number], "valid": 1} if number < len(levels) else {})})
        for number in range(LEVELS)]


def check_routes(topology: Topology, params: CardParams,
                 tables: Mapping[int, RouteTable]) -> None:
    """Refuse route tables of cards that do not deliver every packet, or that could deadlock.

    Raises
    ------
    DeadlockError
        With the cycle of channels named.
    ValueError
        If a route is broken, or these cards have no tables.
    """
    router = params.router
    if not router.table_bits:
        raise ValueError("these cards have no route tables: RouterParams.table_bits is 0")
    by_id = {topology.node_id(topology.check_rank(card)): table for card, table in tables.items()}

    def hop(node: int, dst: int, in_port: int, in_lane: int, rail: int,
            dims: Sequence[Mapping[str, int]], *, dim_ports: Sequence[int], lanes: int,
            path: int = 0) -> tuple[int, tuple[int, ...]]:
        links = sum(dim_ports)
        if (table := by_id.get(node)) is not None:
            found = table_route(node, dst, in_port, in_lane, rail, table.levels,
                                table.at(in_port), table_bits=router.table_bits, links=links,
                                lanes=lanes)
            if found is not None:
                return found
        return next_hop(node, dst, in_port, in_lane, rail, dims, dim_ports=dim_ports, lanes=lanes,
                        path=path)

    check_deadlock_free(topology, params.link, rails=params.rails, next_hop=hop)


def _word(values: dict[str, Any]) -> int:
    return int.from_bytes(pack(RouteWrite, values), "little")


def _body(layout: type, values: Mapping[str, Any]) -> int:
    return int.from_bytes(pack(layout, values), "little")
