"""Small fabrics for tests of routes: ids and configuration, written from their definition."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

__all__ = ["FABRICS", "Fabric"]


@dataclass(frozen=True)
class Fabric:
    """A mesh or torus of up to three dimensions; ids give each coordinate ``width`` bits."""

    sizes: tuple[int, ...]
    wrap: bool
    width: int = 3

    @property
    def name(self) -> str:
        return f"{'torus' if self.wrap else 'mesh'}:{'x'.join(map(str, self.sizes))}"

    @property
    def dims(self) -> list[dict[str, int]]:
        """``DimConfig`` values of three dimensions."""
        present = [{"mask": (1 << self.width) - 1 << self.width * index,
                    "size": size << self.width * index, "wrap": int(self.wrap)}
                   if size > 1 else {"mask": 0, "size": 0, "wrap": 0}
                   for index, size in enumerate(self.sizes)]
        return present + [{"mask": 0, "size": 0, "wrap": 0}] * (3 - len(present))

    def node(self, place: tuple[int, ...]) -> int:
        return sum(x << self.width * index for index, x in enumerate(place))

    def place(self, node: int) -> tuple[int, ...]:
        return tuple(node >> self.width * index & (1 << self.width) - 1
                     for index in range(len(self.sizes)))

    @property
    def nodes(self) -> list[int]:
        return [self.node(place) for place in itertools.product(*map(range, self.sizes))]

    def neighbour(self, node: int, port: int) -> int:
        """The node that a link port leads to."""
        place = list(self.place(node))
        dim, down = divmod(port, 2)
        place[dim] += -1 if down else 1
        if not 0 <= place[dim] < self.sizes[dim]:
            assert self.wrap, f"{self.name}: port {port} of {node:#x} is open"
            place[dim] %= self.sizes[dim]
        return self.node(tuple(place))

    def hops(self, a: int, b: int) -> int:
        return sum(min(abs(x - y), size - abs(x - y)) if self.wrap else abs(x - y)
                   for x, y, size in zip(self.place(a), self.place(b), self.sizes, strict=True))


FABRICS = (
    Fabric((1,), True), Fabric((2,), True), Fabric((8,), True), Fabric((7,), True),
    Fabric((6,), False), Fabric((5, 3, 2), True), Fabric((4, 1, 4), True),
    Fabric((3, 2, 2), False), Fabric((2, 2, 2), True),
)
