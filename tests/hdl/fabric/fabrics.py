"""Small fabrics for tests of routes: ids, configuration and links, from their definition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hdl.ports import DimKind
from hdl.topology.base import ABSENT

__all__ = ["FABRICS", "MIXED", "Fabric", "grid"]

LINE, RING, FULL, UP = DimKind.LINE, DimKind.RING, DimKind.FULL, DimKind.UP


@dataclass(frozen=True)
class Fabric:
    """The product of dimensions of any kind; ids give each coordinate ``width`` bits."""

    dimensions: tuple[tuple[DimKind, int], ...]
    #: Ports per dimension of its routers, which may have more dimensions and ports than it needs.
    dim_ports: tuple[int, ...] = (2, 2, 2)
    width: int = 3

    @property
    def name(self) -> str:
        shape = "-".join(f"{kind.name.lower()}{size}" for kind, size in self.dimensions)
        return f"{shape}@{''.join(map(str, self.dim_ports))}"

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.dimensions)

    @property
    def links(self) -> int:
        return sum(self.dim_ports)

    @property
    def dims(self) -> list[dict[str, Any]]:
        """``DimConfig`` values."""
        present = [{"mask": (1 << self.width) - 1 << self.width * index,
                    "size": size << self.width * index, "kind": kind} if size > 1 else ABSENT
                   for index, (kind, size) in enumerate(self.dimensions)]
        return present + [ABSENT] * (len(self.dim_ports) - len(present))

    def node(self, place: tuple[int, ...]) -> int:
        return sum(x << self.width * index for index, x in enumerate(place))

    def place(self, node: int) -> tuple[int, ...]:
        return tuple(node >> self.width * index & (1 << self.width) - 1
                     for index in range(len(self.dimensions)))

    @property
    def nodes(self) -> list[int]:
        return [self.node(place) for place in itertools.product(*map(range, self.sizes))]

    def dim_of(self, port: int) -> tuple[int, int]:
        """(dimension, port within it) of a link port."""
        for dim, ports in enumerate(self.dim_ports):
            if port < ports:
                return dim, port
            port -= ports
        raise AssertionError(f"{self.name}: no link port {port}")

    def neighbour(self, node: int, port: int, dst: int) -> tuple[int, int]:
        """(node, port there) that a packet to ``dst`` comes to by a link port."""
        dim, index = self.dim_of(port)
        kind, size = self.dimensions[dim]
        place, base = list(self.place(node)), port - index
        own = place[dim]
        if kind is UP:
            assert index == 0, f"{self.name}: port {port} is open"
            place[dim] = self.place(dst)[dim]
            return self.node(tuple(place)), base
        if kind is FULL:
            others = [x for x in range(size) if x != own]
            place[dim] = others[index]
            back = [x for x in range(size) if x != place[dim]].index(own)
            return self.node(tuple(place)), base + back
        assert index < 2, f"{self.name}: port {port} is open"
        place[dim] += (1, -1)[index]
        if not 0 <= place[dim] < size:
            assert kind is RING, f"{self.name}: port {port} of {node:#x} is open"
            place[dim] %= size
        return self.node(tuple(place)), base + 1 - index

    def hops(self, a: int, b: int) -> int:
        """Hops of a shortest way, one to a switch and on counting once."""
        return sum(self._distance(kind, size, x, y) for (kind, size), x, y in zip(
            self.dimensions, self.place(a), self.place(b), strict=True))

    @staticmethod
    def _distance(kind: DimKind, size: int, x: int, y: int) -> int:
        if kind in (FULL, UP):
            return int(x != y)
        return min(abs(x - y), size - abs(x - y)) if kind is RING else abs(x - y)

    def pairs(self) -> Iterator[tuple[int, int]]:
        return itertools.product(self.nodes, self.nodes)


def grid(sizes: tuple[int, ...], wrap: bool, **changes: Any) -> Fabric:
    """A mesh or torus."""
    return Fabric(tuple((RING if wrap else LINE, size) for size in sizes), **changes)


#: Of routers with two ports in each of three dimensions.
FABRICS = (
    grid((1,), True), grid((2,), True), grid((8,), True), grid((7,), True), grid((6,), False),
    grid((5, 3, 2), True), grid((4, 1, 4), True), grid((3, 2, 2), False), grid((2, 2, 2), True),
    Fabric(((FULL, 3), (RING, 4), (UP, 5))), Fabric(((UP, 7), (FULL, 2), (LINE, 3))),
)
#: Of routers of other shapes.
MIXED = (
    Fabric(((FULL, 5), (RING, 5)), (4, 2, 1, 3)),
    Fabric(((FULL, 4), (LINE, 3), (UP, 3), (FULL, 2)), (4, 2, 1, 3)),
    Fabric(((RING, 4), (RING, 2), (FULL, 2), (FULL, 4)), (4, 2, 1, 3)),
    Fabric(((LINE, 3), (FULL, 3), (UP, 4), (UP, 2)), (4, 2, 1, 3)),
)
