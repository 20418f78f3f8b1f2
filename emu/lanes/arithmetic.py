"""Sums, comparisons and reductions as gates: bits in, bits out, lowest first."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import FALSE, TRUE, Graph

__all__ = ["Arithmetic"]

Bits = Sequence[int]


class Arithmetic:
    """Adds gates to a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def operator(self, name: str, operands: Sequence[Bits]) -> list[int]:
        """The literals of an operator of Amaranth's netlist."""
        graph, first = self._graph, operands[0]
        match name:
            case "~":
                return [literal ^ 1 for literal in first]
            case "-":
                if len(operands) == 1:
                    return self.add([FALSE] * len(first), [bit ^ 1 for bit in first], TRUE)
                return self.add(first, [bit ^ 1 for bit in operands[1]], TRUE)
            case "+":
                return self.add(first, operands[1], FALSE)
            case "b" | "r|":
                return [graph.any(first)]
            case "r&":
                return [graph.all(first)]
            case "r^":
                return [graph.parity(first)]
            case "==":
                return [self.differ(*operands) ^ 1]
            case "!=":
                return [self.differ(*operands)]
        sign, relation = name[0], name[1:]
        a, b = (list(operand) for operand in operands)
        if sign == "s":
            a[-1], b[-1] = a[-1] ^ 1, b[-1] ^ 1
        if relation in (">", "<="):
            a, b = b, a
        return [self.less(a, b) ^ (relation in ("<=", ">="))]

    def add(self, a: Bits, b: Bits, carry: int) -> list[int]:
        graph, result = self._graph, []
        for x, y in zip(a, b, strict=True):
            half = graph.xor(x, y)
            result.append(graph.xor(half, carry))
            # A constant or equal operand leaves a simpler carry than a multiplexer.
            if x <= TRUE or y <= TRUE:
                other, constant = (y, x) if x <= TRUE else (x, y)
                carry = (graph.or_ if constant else graph.and_)(other, carry)
            else:
                carry = graph.mux(half, carry, x)
        return result

    def less(self, a: Bits, b: Bits) -> int:
        """Unsigned ``a < b``."""
        graph, below = self._graph, FALSE
        for x, y in zip(a, b, strict=True):
            if x <= TRUE:
                below = graph.and_(y, below) if x else graph.or_(y, below)
            elif y <= TRUE:
                below = graph.or_(x ^ 1, below) if y else graph.and_(x ^ 1, below)
            else:
                below = graph.mux(graph.xor(x, y), y, below)
        return below

    def differ(self, a: Bits, b: Bits) -> int:
        graph = self._graph
        return graph.any([graph.xor(x, y) for x, y in zip(a, b, strict=True)])

    def multiply(self, a: Bits, b: Bits) -> list[int]:
        """The low ``len(a)`` bits of a product of which one operand has few bits that vary."""
        if sum(x > TRUE for x in a) < sum(x > TRUE for x in b):
            a, b = b, a
        graph, width = self._graph, len(a)
        total = [FALSE] * width
        for place, bit in enumerate(b):
            if bit != FALSE:
                part = [FALSE] * place + [graph.and_(x, bit) for x in a[:width - place]]
                total = self.add(total, part, FALSE)
        return total
