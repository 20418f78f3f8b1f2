"""Traffic patterns: where each node sends its packets.

Names, formulas and parameters are those of BookSim 2 (``src/traffic.cpp``), and like there a node
may send to itself: its packet enters the router and comes out again. Nodes are cards by rank.
``incast`` is ours.

A pattern gives each node a list of destinations with probabilities; what is missing to 1 goes to
all nodes alike, the node itself included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hdl.topology import Topology

__all__ = ["PATTERNS", "Pattern", "Share", "parse_pattern"]


@dataclass(frozen=True)
class Share:
    """One destination and the part of a node's packets that goes there."""

    node: int
    share: float


@dataclass(frozen=True)
class Pattern:
    """Where the packets of every node go."""

    #: As it was asked for.
    text: str
    #: By node; empty is uniform.
    shares: tuple[tuple[Share, ...], ...]
    #: Nodes that the pattern overloads; the flows to all others are their victims.
    hot: frozenset[int] = frozenset()

    @property
    def uniform_share(self) -> float:
        """The largest part of a node's packets that goes to all nodes alike."""
        return max(1 - sum(each.share for each in shares) for shares in self.shares)


_Arguments = Sequence[Sequence[int]]


@dataclass(frozen=True)
class _Context:
    topology: Topology
    seed: int
    arguments: _Arguments

    @property
    def nodes(self) -> int:
        return self.topology.cards

    @property
    def bits(self) -> int:
        """log2 of the number of nodes.

        Raises
        ------
        ValueError
            If it is not a power of two.
        """
        if self.nodes & self.nodes - 1:
            raise ValueError(f"the number of nodes must be a power of two, and {self.nodes} is not")
        return self.nodes.bit_length() - 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes per dimension.

        Raises
        ------
        ValueError
            If its nodes have no coordinates.
        """
        if self.topology.fields is None:
            raise ValueError("the topology must have coordinates, as ring:8, mesh:8x8 or "
                             "torus:4x4x4 have")
        return tuple(size for _, size in self.topology.fields)

    def nodes_of(self, place: int) -> list[int]:
        """The nodes that argument ``place`` lists.

        Raises
        ------
        ValueError
            If one of them does not exist.
        """
        nodes = list(self.arguments[place])
        for node in nodes:
            if not 0 <= node < self.nodes:
                raise ValueError(f"there is no node {node}: nodes are 0 to {self.nodes - 1}")
        return nodes


def _permutation(destination: Callable[[int], int], nodes: int) -> list[tuple[Share, ...]]:
    return [(Share(destination(node), 1.0),) for node in range(nodes)]


def _uniform(context: _Context) -> list[tuple[Share, ...]]:
    return [()] * context.nodes


def _bitcomp(context: _Context) -> list[tuple[Share, ...]]:
    ones = (1 << context.bits) - 1
    return _permutation(lambda node: node ^ ones, context.nodes)


def _transpose(context: _Context) -> list[tuple[Share, ...]]:
    half, odd = divmod(context.bits, 2)
    if odd:
        raise ValueError("the number of nodes must be an even power of two, and "
                         f"{context.nodes} is not")
    low = (1 << half) - 1
    return _permutation(lambda node: node >> half | (node & low) << half, context.nodes)


def _bitrev(context: _Context) -> list[tuple[Share, ...]]:
    bits = context.bits
    return _permutation(lambda node: int(f"{node:0{bits}b}"[::-1], 2) if bits else 0,
                        context.nodes)


def _shuffle(context: _Context) -> list[tuple[Share, ...]]:
    bits, ones = context.bits, context.nodes - 1
    return _permutation(lambda node: (node << 1 & ones) | node << 1 >> bits, context.nodes)


def _digits(context: _Context, step: Callable[[int], int]) -> list[tuple[Share, ...]]:
    """Add ``step`` of the dimension's size to every coordinate."""
    def destination(node: int) -> int:
        result, stride = 0, 1
        for size in context.sizes:
            result += (node // stride + step(size)) % size * stride
            stride *= size
        return result
    return _permutation(destination, context.nodes)


def _tornado(context: _Context) -> list[tuple[Share, ...]]:
    return _digits(context, lambda size: (size + 1) // 2 - 1)


def _neighbor(context: _Context) -> list[tuple[Share, ...]]:
    return _digits(context, lambda size: 1)


def _randperm(context: _Context) -> list[tuple[Share, ...]]:
    seed = context.arguments[0][0] if context.arguments else context.seed
    order = np.random.default_rng([seed, 0x7065_726D]).permutation(context.nodes)
    return _permutation(lambda node: int(order[node]), context.nodes)


def _diagonal(context: _Context) -> list[tuple[Share, ...]]:
    nodes = context.nodes
    return [(Share((node + 1) % nodes, 1 / 3), Share(node, 2 / 3)) for node in range(nodes)]


def _asymmetric(context: _Context) -> list[tuple[Share, ...]]:
    half = context.nodes // 2
    if not half:
        raise ValueError("there must be at least 2 nodes")
    return [(Share(node % half, 1 / 2), Share(node % half + half, 1 / 2))
            for node in range(context.nodes)]


def _taper64(context: _Context) -> list[tuple[Share, ...]]:
    if context.nodes != 64:
        raise ValueError(f"there must be exactly 64 nodes, not {context.nodes}")
    return [tuple(Share((node + 8 * row + column) % 64, 1 / 18)
                  for row in (-1, 0, 1) for column in (-1, 0, 1)) for node in range(64)]


def _hot_nodes(context: _Context) -> list[int]:
    if context.arguments:
        return context.nodes_of(0)
    return [int(np.random.default_rng([context.seed, 0x686F_7421]).integers(context.nodes))]


def _hotspot(context: _Context) -> list[tuple[Share, ...]]:
    nodes = _hot_nodes(context)
    rates = list(context.arguments[1]) if len(context.arguments) > 1 else [1]
    rates += rates[-1:] * (len(nodes) - len(rates))
    if len(rates) > len(nodes) or min(rates) <= 0:
        raise ValueError(f"rates must be positive, one per hot node, not {rates}")
    total = sum(rates)
    shares = tuple(Share(node, rate / total) for node, rate in zip(nodes, rates, strict=True))
    return [shares] * context.nodes


def _incast(context: _Context) -> list[tuple[Share, ...]]:
    hot = set(_hot_nodes(context))
    percent = context.arguments[1][0] if len(context.arguments) > 1 else 50
    if not 0 < percent <= 100:
        raise ValueError(f"the share of the hot nodes must be from 1 to 100 percent, not {percent}")
    shares = tuple(Share(node, percent / 100 / len(hot)) for node in sorted(hot))
    return [() if node in hot else shares for node in range(context.nodes)]


#: Every pattern, what it is, and how many arguments it takes at most.
PATTERNS: dict[str, tuple[Callable[[_Context], list[tuple[Share, ...]]], int, str]] = {
    "uniform": (_uniform, 0, "to all nodes alike"),
    "bitcomp": (_bitcomp, 0, "to the complement of the own number"),
    "transpose": (_transpose, 0, "upper and lower half of the own number swapped"),
    "bitrev": (_bitrev, 0, "bits of the own number reversed"),
    "shuffle": (_shuffle, 0, "bits of the own number rotated left by one"),
    "randperm": (_randperm, 1, "a random permutation: randperm(SEED)"),
    "tornado": (_tornado, 0, "⌈k/2⌉ − 1 further in every dimension of k nodes"),
    "neighbor": (_neighbor, 0, "1 further in every dimension"),
    "diagonal": (_diagonal, 0, "2/3 to oneself, 1/3 to the next number"),
    "asymmetric": (_asymmetric, 0, "half each to the same place in either half of the numbers"),
    "taper64": (_taper64, 0, "half to nine nodes around, half to all alike; 64 nodes"),
    "hotspot": (_hotspot, 2, "all to hot nodes: hotspot({NODE,…},{RATE,…})"),
    "incast": (_incast, 2, "a share to hot nodes, the rest to all alike: incast({NODE,…},PERCENT)"),
}


def parse_pattern(text: str, topology: Topology, seed: int = 0) -> Pattern:
    """Return the pattern that ``text`` names, e.g. ``tornado`` or ``hotspot({0,63},{3,1})``, on a
    topology. ``seed`` chooses what is left to chance.

    Raises
    ------
    ValueError
        If there is no such pattern, or the topology does not suit it.
    """
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", text.replace(" ", ""))
    if match is None or match[1] not in PATTERNS:
        raise ValueError(f"unknown pattern {text!r}: accepted are {', '.join(PATTERNS)}")
    shares, most, _ = PATTERNS[match[1]]
    try:
        arguments = _arguments(match[2] or "")
        if len(arguments) > most:
            raise ValueError(f"it takes {most} arguments at most, not {len(arguments)}")
        context = _Context(topology, seed, arguments)
        hot = frozenset(_hot_nodes(context)) if match[1] in ("hotspot", "incast") else frozenset()
        return Pattern(text, tuple(shares(context)), hot)
    except ValueError as error:
        raise ValueError(f"pattern {text!r} on {topology.spec}: {error}") from None


def _arguments(text: str) -> list[list[int]]:
    """``{1,2},3`` as [[1, 2], [3]]."""
    if not re.fullmatch(r"((\{\d+(,\d+)*\}|\d+)(,(\{\d+(,\d+)*\}|\d+))*)?", text):
        raise ValueError(f"arguments must be numbers or lists like {{1,2}}, not {text!r}")
    return [[int(number) for number in re.findall(r"\d+", part)]
            for part in re.findall(r"\{[^}]*\}|\d+", text)]
