"""Cells of a netlist become gates and blocks; registers and memories become actions.

Words exist only where Amaranth's cells have them: here every bit is a plane of its own, so slices,
concatenations, extensions and structs cost nothing. Sums and comparisons ripple through the bits.
Selections among what lies in consecutive planes are blocks, all others gates.

A clock edge is: compute what actions need from registers and inputs, then the actions, in an order
in which nothing is overwritten that another action still reads (see ``plan``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from amaranth.hdl import _nir

from ..cache import BuildError
from .arithmetic import Arithmetic
from .graph import FALSE, TRUE, Arm, Bitwise, Graph, Mul, Read, Select, runs
from .lowered import Fetch, Hold, Lowered, Memory, Store, Write
from .netlist import Tile

__all__ = ["lower"]


class _Entered(Exception):
    """A cell was asked for while its operands were being looked for: it is not one step but
    several, taken bit by bit."""

    def __init__(self, unit: tuple[int, int]) -> None:
        self.unit = unit


def lower(tile: Tile) -> Lowered:
    """Return ``tile`` on planes.

    Raises
    ------
    BuildError
        If it has something that lanes do not have.
    """
    return _Lowering(tile).run()


class _Lowering:
    def __init__(self, tile: Tile) -> None:
        self._tile, self._cells = tile, tile.cells
        self._graph = Graph()
        self._arithmetic = Arithmetic(self._graph)
        self._literals: dict[int, int] = {}
        self._busy: set[tuple[int, int]] = set()
        self._by_bit: set[int] = set()
        self._segments: dict[int, list[tuple[int, int, tuple[_nir.Assignment, ...]]]] = {}
        self._at: dict[int, int] = {}
        self._memory: dict[int, int] = {}
        self._result = Lowered(tile, self._graph, 0)
        uses = Counter(net.cell for cell in self._cells
                       for net in {_nir.Net.from_cell(net.cell, 0)
                                   if net.cell else net
                                   for net in cell.input_nets() if net.is_cell})
        self._uses = uses

    def run(self) -> Lowered:
        result = self._result
        for name, (start, width) in self._tile.inputs.items():
            result.inputs[name] = (start - 2, width)
            for bit in range(start, start + width):
                self._literals[_nir.Net.from_cell(0, bit)] = self._graph.source("i", bit - 2)
        reset_at, _ = result.inputs["rst"]
        self._reset = self._graph.source("i", reset_at)
        self._place()
        for index, cell in enumerate(self._cells):
            if isinstance(cell, _nir.FlipFlop):
                self._register(index, cell)
            elif isinstance(cell, _nir.SyncReadPort):
                self._fetch(index, cell)
            elif isinstance(cell, _nir.SyncWritePort):
                self._write(cell)
        for name, value in self._tile.outputs.items():
            result.outputs[name] = self.value(value)
        return result

    def _place(self) -> None:
        """Number registers and memories. Narrow registers come first, so that what is computed bit
        by bit lies together."""
        result = self._result
        storage = [(index, len(cell.data) if isinstance(cell, _nir.FlipFlop) else cell.width)
                   for index, cell in enumerate(self._cells)
                   if isinstance(cell, (_nir.FlipFlop, _nir.SyncReadPort))]
        storage.sort(key=lambda each: (each[1] >= 8, isinstance(
            self._cells[each[0]], _nir.SyncReadPort)))
        for index, width in storage:
            self._at[index] = at = result.registers
            result.registers += width
            for bit in range(width):
                self._literals[_nir.Net.from_cell(index, bit)] = self._graph.source("q", at + bit)
            cell = self._cells[index]
            if isinstance(cell, _nir.FlipFlop):
                result.init += [at + bit for bit in range(width) if cell.init >> bit & 1]
        for index, cell in enumerate(self._cells):
            if isinstance(cell, _nir.Memory):
                self._memory[index] = len(result.memories)
                rows = 1 << max(0, cell.depth - 1).bit_length()
                result.memories.append(Memory(cell.name, cell.width, cell.depth, rows,
                                              cell.init))

    # Values

    def literal(self, net: _nir.Net) -> int:
        if net.is_const:
            return TRUE if net.const else FALSE
        found = self._literals.get(net)
        return self._find(net) if found is None else found

    def value(self, nets: Sequence[_nir.Net]) -> tuple[int, ...]:
        return tuple([self.literal(net) for net in nets])

    def _find(self, net: _nir.Net) -> int:
        index, bit = net.cell, net.bit
        cell = self._cells[index]
        if index not in self._by_bit:
            unit = (index, self._segment_of(index, cell, bit))
            if unit in self._busy:
                raise _Entered(unit)
            self._busy.add(unit)
            try:
                first, literals = self._whole(index, cell, unit[1])
            except _Entered as entered:
                if entered.unit != unit:
                    raise
                self._by_bit.add(index)
            else:
                for offset, literal in enumerate(literals):
                    self._literals[_nir.Net.from_cell(index, first + offset)] = literal
            finally:
                self._busy.discard(unit)
        if net not in self._literals:
            self._literals[net] = self._single(index, cell, bit)
        return self._literals[net]

    def _segment_of(self, index: int, cell: _nir.Cell, bit: int) -> int:
        if not isinstance(cell, _nir.AssignmentList):
            return 0
        return next(number for number, (start, stop, _) in enumerate(self.segments(index, cell))
                    if start <= bit < stop)

    def segments(self, index: int, cell: _nir.AssignmentList) -> list[
            tuple[int, int, tuple[_nir.Assignment, ...]]]:
        """Bits that are under the same assignments."""
        if index not in self._segments:
            width = len(cell.default)
            cuts = {0, width}
            for assignment in cell.assignments:
                cuts |= {min(assignment.start, width),
                         min(assignment.start + len(assignment.value), width)}
            points = sorted(cuts)
            self._segments[index] = [
                (start, stop, tuple(each for each in cell.assignments
                                    if each.start <= start < each.start + len(each.value)))
                for start, stop in pairwise(points)]
        return self._segments[index]

    def _assignments(self, start: int, stop: int, given: tuple[_nir.Assignment, ...]) -> list[Arm]:
        arms = []
        for each in given:
            cond = self.literal(each.cond)
            if cond != FALSE:
                arms.append(Arm(cond, self.value(
                    each.value[start - each.start:stop - each.start])))
        return arms

    def _whole(self, index: int, cell: _nir.Cell, segment: int) -> tuple[int, Sequence[int]]:
        """First bit and literals of a cell or, of an assignment list, a segment of it."""
        match cell:
            case _nir.AssignmentList():
                start, stop, given = self.segments(index, cell)[segment]
                default = self.value(cell.default[start:stop])
                return start, self._select(default, self._assignments(start, stop, given))
            case _nir.Operator():
                return 0, self._operator(cell)
            case _nir.Part():
                return 0, self._part(cell)
            case _nir.Matches():
                return 0, [self._matches(self.value(cell.value), cell.patterns)]
            case _nir.PriorityMatch():
                return 0, self._priority(cell)
            case _nir.AsyncReadPort():
                return 0, self._graph.block(Read(
                    self._graph.next_plane, cell.width, self._memory[cell.memory],
                    self.value(cell.addr)))
        raise BuildError(f"tile {self._tile.name} has a cell {type(cell).__name__} in its logic, "
                         "which lane-parallel models do not have")

    def _single(self, index: int, cell: _nir.Cell, bit: int) -> int:
        """One bit of a cell whose bits depend on each other."""
        graph = self._graph
        match cell:
            case _nir.AssignmentList():
                literal = self.literal(cell.default[bit])
                for each in cell.assignments:
                    if each.start <= bit < each.start + len(each.value):
                        cond = self.literal(each.cond)
                        if cond != FALSE:
                            literal = graph.mux(cond, self.literal(each.value[bit - each.start]),
                                                literal)
                return literal
            case _nir.PriorityMatch():
                before = self.value(cell.inputs[:bit])
                return graph.and_(self.literal(cell.en), graph.and_(
                    self.literal(cell.inputs[bit]), graph.any(before) ^ 1))
            case _nir.Operator(operator="m"):
                (cond,), then, other = cell.inputs
                return graph.mux(self.literal(cond), self.literal(then[bit]),
                                 self.literal(other[bit]))
            case _nir.Operator(operator="~"):
                return self.literal(cell.inputs[0][bit]) ^ 1
            case _nir.Operator(operator="&" | "|" | "^" as operator):
                a, b = (self.literal(operand[bit]) for operand in cell.inputs)
                return {"&": graph.and_, "|": graph.or_, "^": graph.xor}[operator](a, b)
        raise BuildError(f"tile {self._tile.name} has a combinational cycle through "
                         f"{type(cell).__name__}")

    def _select(self, default: Sequence[int], arms: Sequence[Arm]) -> list[int]:
        """``default``, overridden by each arm in turn."""
        for place, arm in enumerate(arms):
            if arm.cond == TRUE:
                default, arms = arm.values, arms[place + 1:]
        graph = self._graph
        result: list[int] = []
        columns = list(zip(default, *(arm.values for arm in arms), strict=True))
        for start, stop, block in runs(graph, columns):
            kept = [Arm(arm.cond, tuple(arm.values[start:stop])) for arm in arms]
            base = tuple(default[start:stop])
            while kept and kept[0].values == base:
                del kept[0]
            if not kept:
                result += base
            elif block:
                result += graph.block(Select(graph.next_plane, stop - start, base, tuple(kept)))
            else:
                for bit in range(start, stop):
                    literal = default[bit]
                    for arm in arms:
                        literal = graph.mux(arm.cond, arm.values[bit], literal)
                    result.append(literal)
        return result

    def choose(self, cond: int, then: Sequence[int], other: Sequence[int]) -> list[int]:
        if cond <= TRUE:
            return list(then if cond else other)
        return self._select(other, [Arm(cond, tuple(then))])

    def _bitwise(self, operator: str, a: Sequence[int], b: Sequence[int]) -> list[int]:
        graph = self._graph
        if operator == "|":
            return [literal ^ 1 for literal in self._bitwise(
                "&", [literal ^ 1 for literal in a], [literal ^ 1 for literal in b])]
        gate = graph.and_ if operator == "&" else graph.xor
        result: list[int] = []
        for start, stop, block in runs(graph, list(zip(a, b, strict=True))):
            simple = a[start] <= TRUE or b[start] <= TRUE or a[start] | 1 == b[start] | 1
            if block and not simple:
                result += graph.block(Bitwise(graph.next_plane, stop - start, operator,
                                              tuple(a[start:stop]), tuple(b[start:stop])))
            else:
                result += [gate(a[bit], b[bit]) for bit in range(start, stop)]
        return result

    def _operator(self, cell: _nir.Operator) -> Sequence[int]:
        operands = [self.value(operand) for operand in cell.inputs]
        arithmetic, operator = self._arithmetic, cell.operator
        if operator == "m":
            (cond,), then, other = operands
            return self.choose(cond, then, other)
        if operator in ("&", "|", "^"):
            return self._bitwise(operator, *operands)
        if operator in ("<<", "u>>", "s>>"):
            return self._shift(operator, *operands)
        if operator == "*":
            return self._product(*operands)
        return arithmetic.operator(operator, operands)

    def _product(self, a: tuple[int, ...], b: tuple[int, ...]) -> Sequence[int]:
        narrow = min(sum(literal > TRUE for literal in operand) for operand in (a, b))
        if narrow <= 4:
            return self._arithmetic.multiply(a, b)
        if len(a) > 64:
            raise BuildError(f"tile {self._tile.name} has a product of {len(a)} bits: "
                             "lane-parallel models have at most 64")
        return self._graph.block(Mul(self._graph.next_plane, len(a), a, b))

    def _shift(self, operator: str, value: Sequence[int], amount: Sequence[int]) -> list[int]:
        bits, width = list(value), len(value)
        fill = bits[-1] if operator == "s>>" else FALSE
        for place, by in enumerate(amount):
            step = min(1 << place, width)
            moved = ([FALSE] * step + bits[:width - step] if operator == "<<"
                     else bits[step:] + [fill] * step)
            bits = self.choose(by, moved, bits)
        return bits

    def _part(self, cell: _nir.Part) -> list[int]:
        bits, offset = list(self.value(cell.value)), self.value(cell.offset)
        # The largest shift first: what is left to choose from gets shorter.
        for place in reversed(range(len(offset))):
            step = cell.stride << place
            needed = cell.width + ((1 << place) - 1) * cell.stride
            bits += [FALSE] * needed
            bits = self.choose(offset[place], (bits[step:] + [FALSE] * needed)[:needed],
                               bits[:needed])
        return (bits + [FALSE] * cell.width)[:cell.width]

    def _matches(self, value: Sequence[int], patterns: Sequence[str]) -> int:
        graph = self._graph
        return graph.any([graph.all([literal ^ (wanted == "0") for literal, wanted in zip(
            value, reversed(pattern), strict=True) if wanted != "-"]) for pattern in patterns])

    def _priority(self, cell: _nir.PriorityMatch) -> list[int]:
        graph, enable = self._graph, self.literal(cell.en)
        inputs = self.value(cell.inputs)
        exclusive = self._exclusive(cell.inputs)
        result, before = [], FALSE
        for place, literal in enumerate(inputs):
            free = TRUE if exclusive and literal != TRUE else before ^ 1
            result.append(graph.and_(enable, graph.and_(literal, free)))
            if place + 1 < len(inputs):
                before = (graph.any(inputs[:place + 1]) if exclusive
                          else graph.or_(before, literal))
        return result

    def _exclusive(self, nets: Sequence[_nir.Net]) -> bool:
        """At most one of these can hold: they match one value with patterns that differ."""
        matches = [self._cells[net.cell] for net in nets if not net.is_const]
        if not all(isinstance(cell, _nir.Matches) for cell in matches):
            return False
        if len({cell.value for cell in matches}) > 1:
            return False
        patterns = [cell.patterns for cell in matches]
        if sum(map(len, patterns)) > 64:
            return False
        return all(_disjoint(a, b) for place, first in enumerate(patterns) for a in first
                   for second in patterns[place + 1:] for b in second)

    # Registers and memories

    def _register(self, index: int, cell: _nir.FlipFlop) -> None:
        at, result = self._at[index], self._result
        for start, stop, default, arms in self._next_state(cell):
            own = [self._graph.source("q", at + bit) for bit in range(start, stop)]
            if arms and arms[-1].cond == self._reset:
                for bit, value in enumerate(arms.pop().values):
                    result.resets[at + start + bit] = value
            self._update(at + start, own, default, arms)

    def _next_state(self, cell: _nir.FlipFlop) -> Iterator[
            tuple[int, int, Sequence[int], list[Arm]]]:
        """Bits of a register under the same assignments, with these."""
        first = cell.data[0]
        if first.is_cell:
            source = self._cells[first.cell]
            consecutive = all(net == _nir.Net.from_cell(first.cell, first.bit + offset)
                              for offset, net in enumerate(cell.data)) if (
                                  isinstance(source, _nir.AssignmentList)) else False
            if consecutive and self._uses[first.cell] == 1:
                assert isinstance(source, _nir.AssignmentList)
                low, high = first.bit, first.bit + len(cell.data)
                for start, stop, given in self.segments(first.cell, source):
                    lower, upper = max(start, low), min(stop, high)
                    if lower < upper:
                        yield (lower - low, upper - low, self.value(source.default[lower:upper]),
                               self._assignments(lower, upper, given))
                return
        yield 0, len(cell.data), self.value(cell.data), []

    def _update(self, at: int, own: Sequence[int], default: Sequence[int],
                arms: Sequence[Arm]) -> None:
        graph, result = self._graph, self._result
        for place, arm in enumerate(arms):
            if arm.cond == TRUE:
                default, arms = arm.values, arms[place + 1:]
        columns = list(zip(default, *(arm.values for arm in arms), strict=True))
        for start, stop, block in runs(graph, columns):
            kept = [Arm(arm.cond, tuple(arm.values[start:stop])) for arm in arms]
            base, mine = tuple(default[start:stop]), set(own[start:stop])
            if not block:
                for bit in range(start, stop):
                    literal = default[bit]
                    for arm in arms:
                        literal = graph.mux(arm.cond, arm.values[bit], literal)
                    if literal != own[bit]:
                        result.following[at + bit] = literal
            elif base == tuple(own[start:stop]) and not any(
                    literal & ~1 in mine for arm in kept for literal in arm.values):
                if kept:
                    result.actions.append(Hold(at + start, stop - start, tuple(kept)))
            elif any(literal & ~1 in mine for values in (base, *(arm.values for arm in kept))
                     for literal in values):
                values = tuple(self._select(base, kept))
                if values != tuple(own[start:stop]):
                    result.actions.append(Store(at + start, stop - start, values))
            else:
                result.actions.append(Store(at + start, stop - start, base, tuple(kept)))

    def _write(self, cell: _nir.SyncWritePort) -> None:
        enable = self.value(cell.en)
        if len(set(enable)) == 1:
            enable = enable[:1]
        if set(enable) != {FALSE}:
            self._result.actions.append(Write(self._memory[cell.memory], self.value(cell.addr),
                                              self.value(cell.data), enable))

    def _fetch(self, index: int, cell: _nir.SyncReadPort) -> None:
        writers = {number for number, each in enumerate(self._cells)
                   if isinstance(each, _nir.SyncWritePort) and each.memory == cell.memory}
        if cell.transparent_for and set(cell.transparent_for) != writers:
            raise BuildError(f"tile {self._tile.name} has a read port that sees some writes of its "
                             "cycle only, which lane-parallel models do not have")
        enable = self.literal(cell.en)
        if enable != FALSE:
            self._result.actions.append(Fetch(
                self._at[index], cell.width, self._memory[cell.memory], self.value(cell.addr),
                enable, bool(cell.transparent_for)))


def _disjoint(a: str, b: str) -> bool:
    return any({x, y} == {"0", "1"} for x, y in zip(a, b, strict=True))
