"""A tile on planes: gates and blocks, what registers and memories do with them, and ports."""

from __future__ import annotations

from dataclasses import dataclass, field

from .graph import Arm, Graph
from .netlist import Tile

__all__ = ["Fetch", "Hold", "Lowered", "Memory", "Store", "Write"]


@dataclass(frozen=True)
class Memory:
    """A memory of every lane: ``rows`` is a power of two, at least ``depth``."""

    name: str
    width: int
    depth: int
    rows: int
    init: tuple[int, ...]


@dataclass(frozen=True)
class Hold:
    """Registers ``q[at]`` … keep their value but for arms that hold."""

    at: int
    width: int
    arms: tuple[Arm, ...]


@dataclass(frozen=True)
class Store:
    """Registers ``q[at]`` … take ``default``, overridden by each arm in turn."""

    at: int
    width: int
    default: tuple[int, ...]
    arms: tuple[Arm, ...] = ()


@dataclass(frozen=True)
class Write:
    """A write to a memory; ``enable`` has a literal per bit, or one for all."""

    memory: int
    address: tuple[int, ...]
    data: tuple[int, ...]
    enable: tuple[int, ...]


@dataclass(frozen=True)
class Fetch:
    """A synchronous read into registers ``q[at]`` …; ``after`` the writes if it sees them."""

    at: int
    width: int
    memory: int
    address: tuple[int, ...]
    enable: int
    after: bool


@dataclass
class Lowered:
    """A tile on planes."""

    tile: Tile
    graph: Graph
    registers: int
    #: Registers that start or are reset to 1; all others are 0.
    init: list[int] = field(default_factory=list)
    #: Register and its value in reset, of those that have one.
    resets: dict[int, int] = field(default_factory=dict)
    #: Next state of registers, bit by bit.
    following: dict[int, int] = field(default_factory=dict)
    actions: list[Hold | Store | Write | Fetch] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Where the planes of an input start, and how many there are.
    inputs: dict[str, tuple[int, int]] = field(default_factory=dict)
