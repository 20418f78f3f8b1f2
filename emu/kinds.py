"""Kinds of nodes: what a fabric is mixed of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hdl.topology import Link
from hdl.verilog import Generated

from .build import Builder, Progress, has_lanes, model_name
from .lanes import LaneTile

__all__ = ["Built", "Made", "NodeKind", "make"]


@dataclass(frozen=True)
class NodeKind:
    """What a node is made of. Nodes with equal tiles and parameters share their models.

    The first tile has the links and the host port. Tiles with streams of one name are joined by
    them.
    """

    #: What messages call such a node.
    name: str
    #: Names of tiles, and functions that make them of the parameters.
    tiles: tuple[tuple[str, Callable[[Any], Any]], ...]
    #: With ``link`` and, for tiles with memory ports, ``memory``.
    params: Any
    #: Models of the tiles can show waves.
    waves: bool = False

    @classmethod
    def card(cls, params: Any) -> NodeKind:
        """An accelerator card, of ``CardParams``."""
        from hdl.card import ComputeTile, NetworkTile
        return cls("card", (("network", NetworkTile), ("compute", ComputeTile)), params)

    @classmethod
    def switch(cls, params: Any) -> NodeKind:
        """A crossbar switch, of ``SwitchParams``."""
        from hdl.switch import SwitchTile
        return cls("switch", (("switch", SwitchTile),), params)

    @classmethod
    def traffic(cls, params: Any) -> NodeKind:
        """A node that makes and checks traffic, of ``TrafficParams``."""
        from hdl.traffic import TrafficTile
        return cls("traffic", (("traffic", TrafficTile),), params)


@dataclass(frozen=True)
class Made:
    """A kind, built: the models of its tiles in an engine, and what the engine asks about it."""

    models: tuple[str, ...]
    #: Link ports.
    ports: int
    #: A tile has memory ports.
    memory: bool
    #: Names of the streams between tiles, in the engine's order.
    streams: tuple[str, ...]
    #: Names of the words of activity, in the engine's order.
    activity: tuple[str, ...]


#: An engine's file, and what became of each kind in it.
Built = tuple[str, dict[NodeKind, Made]]


def make(kinds: Sequence[NodeKind], links: Sequence[Link], latency: Sequence[int], *, flat: bool,
         lanes: Mapping[NodeKind, int] | None = None,
         progress: Progress | None) -> Built:
    """Build an engine for these nodes; return its file and what became of each kind.

    ``lanes`` says how many nodes of a kind share a model of their first tile: 1, the default, for
    one that Verilator makes.

    Raises
    ------
    ValueError
        If a flat design is asked for of anything but equal cards.
    BuildError, ToolchainError
        If the engine cannot be built.
    """
    distinct = list(dict.fromkeys(kinds))
    if flat and any(kind.waves for kind in distinct):
        raise ValueError("a flat design shows no waves: accepted are tiles apart")
    if flat and (len(distinct) != 1 or distinct[0].name != "card"):
        raise ValueError("a flat design has cards of one kind only, not "
                         f"{', '.join(kind.name for kind in distinct)}")
    builder = Builder(progress=progress)
    tiles = {kind: [builder.verilog(factory, kind.params, name, waves=kind.waves)
                    for name, factory in kind.tiles]
             for kind in distinct}
    if flat:
        (kind, (network, compute)), = tiles.items()
        design = builder.flat(params=kind.params, cards=len(kinds), links=tuple(links),
                              latency=tuple(latency), network=network, compute=compute)
        made = {kind: _made((network, compute), (model_name(design),) * 2)}
        return str(builder.engine([design])), made
    for kind, each in tiles.items():
        builder.profile(kind, each)
    sources: dict[NodeKind, list[Generated | LaneTile]] = {
        kind: [_in_lanes(kind, each[0], (lanes or {}).get(kind, 1)), *each[1:]]
        for kind, each in tiles.items()}
    made = {kind: _made(tiles[kind], tuple(map(model_name, each)))
            for kind, each in sources.items()}
    return str(builder.engine(tile for each in sources.values() for tile in each)), made


def _in_lanes(kind: NodeKind, first: Generated, lanes: int) -> Generated | LaneTile:
    return first if lanes == 1 or not has_lanes(first) else LaneTile(
        first, kind.tiles[0][1], kind.params, lanes)


def _made(tiles: Sequence[Generated], models: tuple[str, ...]) -> Made:
    interfaces = [entry for tile in tiles for entry in tile.manifest["interfaces"]]
    first = tiles[0].manifest["interfaces"]
    return Made(models, ports=sum(entry["kind"] == "link" for entry in first),
                memory=any(entry["kind"] in ("read", "write") for entry in interfaces),
                streams=tuple(dict.fromkeys(entry["path"] for entry in interfaces
                                            if entry["kind"] == "stream")),
                activity=tuple(name for entry in interfaces if entry["kind"] == "activity"
                               for name in entry["ports"]))
