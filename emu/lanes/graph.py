"""Logic on planes: gates of single bits, and blocks that work on many planes at once.

A *plane* holds one bit of every lane, in one machine word. Planes live in arrays: ``q`` registers,
``i`` inputs, ``t`` what blocks compute. A *literal* is a plane or its complement: twice the number
of a node, plus one for the complement. Gates are hashed, so equal ones are one, and folded as they
are made; a complement costs nothing anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["FALSE", "TRUE", "Arm", "Bitwise", "Block", "Copy", "Graph", "Mul", "Read", "Select",
           "runs"]

FALSE, TRUE = 0, 1

#: Planes that a block moves at once, at the least: fewer are gates.
MINIMUM_RUN = 8


@dataclass(frozen=True)
class Arm:
    """``values`` are taken where ``cond`` holds."""

    cond: int
    values: tuple[int, ...]


@dataclass
class Block:
    """Something that computes the planes ``t[at]`` … ``t[at + width - 1]``."""

    at: int
    width: int

    def operands(self) -> Iterator[tuple[int, int]]:
        """Literals that are read, each with the literal that must hold in some lane for it to
        matter (``TRUE``: always)."""
        raise NotImplementedError


@dataclass
class Select(Block):
    """``default``, overridden by each arm in turn."""

    default: tuple[int, ...]
    arms: tuple[Arm, ...]

    def operands(self) -> Iterator[tuple[int, int]]:
        yield from ((literal, TRUE) for literal in self.default)
        for arm in self.arms:
            yield arm.cond, TRUE
            yield from ((literal, arm.cond) for literal in arm.values)


@dataclass
class Bitwise(Block):
    """``a & b`` or ``a ^ b``."""

    operator: str
    a: tuple[int, ...]
    b: tuple[int, ...]

    def operands(self) -> Iterator[tuple[int, int]]:
        yield from ((literal, TRUE) for literal in (*self.a, *self.b))


@dataclass
class Copy(Block):
    """``values`` as they are at the beginning of the cycle."""

    values: tuple[int, ...]

    def operands(self) -> Iterator[tuple[int, int]]:
        yield from ((literal, TRUE) for literal in self.values)


@dataclass
class Mul(Block):
    """The low bits of a product."""

    a: tuple[int, ...]
    b: tuple[int, ...]

    def operands(self) -> Iterator[tuple[int, int]]:
        yield from ((literal, TRUE) for literal in (*self.a, *self.b))


@dataclass
class Read(Block):
    """An asynchronous read of memory number ``memory``."""

    memory: int
    address: tuple[int, ...]

    def operands(self) -> Iterator[tuple[int, int]]:
        yield from ((literal, TRUE) for literal in self.address)


@dataclass
class Graph:
    """Nodes by number. ``op`` is ``C`` (constant false), ``S`` (a plane of an array: ``a`` its
    name's code, ``b`` its index), or a gate ``A`` (and), ``X`` (xor), ``M`` (``a ? b : c``)."""

    op: list[str] = field(default_factory=lambda: ["C"])
    a: list[int] = field(default_factory=lambda: [0])
    b: list[int] = field(default_factory=lambda: [0])
    c: list[int] = field(default_factory=lambda: [0])
    blocks: list[Block] = field(default_factory=list)
    #: The block that computes a plane of ``t``.
    producer: list[int] = field(default_factory=list)
    _known: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    def _node(self, op: str, a: int, b: int, c: int = 0) -> int:
        key = (op, a, b, c)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.op)
            self.op.append(op)
            self.a.append(a)
            self.b.append(b)
            self.c.append(c)
        return found

    def source(self, array: str, index: int) -> int:
        """The literal of plane ``index`` of an array."""
        return 2 * self._node("S", ord(array), index)

    def plane(self, literal: int) -> tuple[str, int] | None:
        """Array and index of a literal's plane; None for a constant or a gate."""
        node = literal >> 1
        return (chr(self.a[node]), self.b[node]) if self.op[node] == "S" else None

    def block(self, block: Block) -> list[int]:
        """Add a block; return the literals of what it computes."""
        self.producer.extend([len(self.blocks)] * block.width)
        self.blocks.append(block)
        return [self.source("t", block.at + bit) for bit in range(block.width)]

    @property
    def next_plane(self) -> int:
        """Where the next block is to put its planes."""
        return len(self.producer)

    def and_(self, a: int, b: int) -> int:
        if a > b:
            a, b = b, a
        if a == FALSE or a ^ b == 1:
            return FALSE
        if a in (TRUE, b):
            return b
        return 2 * self._node("A", a, b)

    def or_(self, a: int, b: int) -> int:
        return self.and_(a ^ 1, b ^ 1) ^ 1

    def xor(self, a: int, b: int) -> int:
        flip = (a ^ b) & 1
        a, b = a & ~1, b & ~1
        if a > b:
            a, b = b, a
        if a == b:
            return flip
        if a == FALSE:
            return b ^ flip
        return 2 * self._node("X", a, b) ^ flip

    def mux(self, cond: int, then: int, other: int) -> int:
        """``cond ? then : other``."""
        if cond <= TRUE:
            return then if cond else other
        if cond & 1:
            cond, then, other = cond ^ 1, other, then
        if then in (cond, TRUE):
            return self.or_(cond, other)
        if then in (cond ^ 1, FALSE):
            return self.and_(cond ^ 1, other)
        if other in (cond, FALSE):
            return self.and_(cond, then)
        if other in (cond ^ 1, TRUE):
            return self.or_(cond ^ 1, then)
        if then == other:
            return then
        if then ^ other == 1:
            return self.xor(cond, other)
        flip = other & 1
        return 2 * self._node("M", cond, then ^ flip, other ^ flip) ^ flip

    def any(self, literals: Sequence[int]) -> int:
        """Their disjunction, as a balanced tree."""
        return self.all([literal ^ 1 for literal in literals]) ^ 1

    def all(self, literals: Sequence[int]) -> int:
        """Their conjunction, as a balanced tree."""
        return self._tree(self.and_, literals, TRUE)

    def parity(self, literals: Sequence[int]) -> int:
        return self._tree(self.xor, literals, FALSE)

    @staticmethod
    def _tree(join: Callable[[int, int], int], literals: Sequence[int], empty: int) -> int:
        level = list(literals) or [empty]
        while len(level) > 1:
            rest = level[len(level) & ~1:]
            level = [join(a, b) for a, b in zip(level[::2], level[1::2], strict=False)] + rest
        return level[0]

    def follows(self, first: int, second: int) -> bool:
        """``second`` is the next plane of the same array as ``first``, or the same constant."""
        if (first ^ second) & 1:
            return False
        a, b = first >> 1, second >> 1
        if self.op[a] == "C" or self.op[b] == "C":
            return a == b
        return (self.op[a] == self.op[b] == "S" and self.a[a] == self.a[b]
                and self.b[b] == self.b[a] + 1)

    def moves(self, literal: int) -> bool:
        """A block can read this literal in one go with those beside it."""
        return self.op[literal >> 1] in "CS"


def runs(graph: Graph, columns: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, int, bool]]:
    """Split bits, each with its operands, into ``(start, stop, block)``: ``block`` where every
    operand lies in consecutive planes for long enough."""
    start = 0
    while start < len(columns):
        stop = start + 1
        if all(map(graph.moves, columns[start])):
            while stop < len(columns) and all(map(graph.follows, columns[stop - 1],
                                                  columns[stop])):
                stop += 1
        yield start, stop, stop - start >= MINIMUM_RUN
        start = stop
