"""C++ statements of one plan.

Arrays of planes: ``q`` registers, ``n`` their next state, ``i`` inputs, ``t`` what blocks compute,
``x`` gates that other functions read, ``o`` outputs. A gate used only where it is computed is a
local variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .graph import TRUE, Arm, Bitwise, Block, Copy, Graph, Mul, Read, Select
from .lowered import Fetch, Hold, Store, Write
from .plan import Action, Plan, Run, action_operands, unit_of, unit_operands
from .rows import Rows, head, whole

__all__ = ["Statements"]

#: Functions of two planes that C++ has a sign for, by table.
_SIGNS = {0x88: "&", 0x66: "^", 0xEE: "|"}
_HOMES = {"q": "s.q", "i": "s.i", "o": "s.o", "n": "w.n", "t": "w.t", "x": "w.x"}


class Statements:
    """Knows which gates of a plan are needed beyond the run that computes them."""

    def __init__(self, graph: Graph, rows: dict[tuple[str, int], Rows], runs: Sequence[Run],
                 plan: Plan, sinks: dict[int, int], array: str, spilled: int) -> None:
        self._graph, self._rows, self._functions = graph, rows, plan.functions
        self._array = _HOMES[array]
        self._slot: dict[int, int] = {}
        self._local: set[int] = set()
        self.spilled = spilled
        home = {unit: number for number, run in enumerate(runs) for unit in run.units}
        self._sinks: dict[int, list[tuple[int, int]]] = {}
        self._direct: list[tuple[int, int]] = []
        for at, literal in sinks.items():
            unit = unit_of(graph, literal)
            if unit is None or unit < 0 or runs[home[unit]].guards:
                self._direct.append((at, literal))
            else:
                self._sinks.setdefault(unit, []).append((at, literal))
        outside = [literal for _, literal in self._direct]
        outside += [literal for action in plan.actions for literal, _ in action_operands(action)]
        for number, run in enumerate(runs):
            outside += run.guards
            for unit in run.units:
                for literal in self._operands(unit):
                    below = unit_of(graph, literal)
                    if below is not None and below >= 0 and home[below] != number:
                        outside.append(literal)
        for literal in outside:
            unit = unit_of(graph, literal)
            if unit is not None and unit >= 0 and unit not in self._slot:
                self._slot[unit] = self.spilled
                self.spilled += 1

    def _operands(self, unit: int) -> list[int]:
        if unit >= 0:
            return [2 * leaf for leaf in self._functions[unit].leaves]
        return [literal for literal, _ in unit_operands(self._graph, unit)]

    # Expressions

    def _name(self, node: int) -> str:
        graph = self._graph
        if graph.op[node] == "S":
            return f"{_HOMES[chr(graph.a[node])]}[{graph.b[node]}]"
        return f"g{node}" if node in self._local else f"w.x[{self._slot[node]}]"

    def _expression(self, literal: int) -> str:
        if literal <= TRUE:
            return "all" if literal else "none"
        name = self._name(literal >> 1)
        return f"~{name}" if literal & 1 else name

    def _function(self, node: int) -> str:
        function = self._functions[node]
        names = [self._name(leaf) for leaf in function.leaves]
        if len(names) == 1:
            return f"~{names[0]}"
        if len(names) == 2 and function.table in _SIGNS:
            return f" {_SIGNS[function.table]} ".join(names)
        return f"lut<{function.table:#x}>({', '.join((names + names[-1:])[:3])})"

    def _operand(self, literals: Sequence[int]) -> str:
        first = literals[0]
        if first <= TRUE:
            return "Ones{}" if first else "Zeros{}"
        array, index = self._graph.plane(first) or ("", 0)
        return f"{'Flipped' if first & 1 else 'Plain'}{{{_HOMES[array]} + {index}}}"

    def _gathered(self, name: str, literals: Sequence[int]) -> tuple[list[str], str]:
        """Planes side by side: (statements, expression)."""
        if not literals:
            return [], "nullptr"
        planes = [self._graph.plane(literal) if not literal & 1 else None for literal in literals]
        first = planes[0]
        if first is not None and all(plane == (first[0], first[1] + bit)
                                     for bit, plane in enumerate(planes)):
            return [], f"{_HOMES[first[0]]} + {first[1]}"
        values = ", ".join(map(self._expression, literals))
        return [f"const Plane {name}[] = {{{values}}};"], name

    def _any(self, literal: int) -> str:
        return f"any({self._expression(literal)})"

    # Units

    def run(self, run: Run) -> list[str]:
        """Statements of a run."""
        self._local = set()
        lines: list[str] = []
        for unit in run.units:
            if unit < 0:
                lines += self._block(self._graph.blocks[~unit])
                continue
            lines.append(f"const Plane g{unit} = {self._function(unit)};")
            self._local.add(unit)
            if unit in self._slot:
                lines.append(f"w.x[{self._slot[unit]}] = g{unit};")
            lines += [f"{self._array}[{at}] = {self._expression(literal)};"
                      for at, literal in self._sinks.get(unit, ())]
        self._local = set()
        start = f"if ({' && '.join(map(self._any, run.guards))}) {{" if run.guards else "{"
        return [start, *(f"    {line}" for line in lines), "}"]

    def rest(self) -> list[str]:
        """Sinks that take registers, inputs, planes of blocks or what stands under a guard."""
        return [f"{self._array}[{at}] = {self._expression(literal)};"
                for at, literal in sorted(self._direct)]

    def _block(self, block: Block) -> list[str]:
        at, width = block.at, block.width
        out = f"w.t + {at}"
        match block:
            case Select():
                rows = self._rows.get(("t", at))
                if rows is not None:
                    return self._row_select(rows, block.arms)
                return self._arms(out, width, block.default, block.arms)
            case Bitwise():
                name = "both" if block.operator == "&" else "differ"
                a, b = self._operand(block.a), self._operand(block.b)
                return [f"{name}<{width}>({out}, {a}, {b});"]
            case Copy():
                return [f"w.t[{at + bit}] = {self._expression(literal)};"
                        for bit, literal in enumerate(block.values)]
            case Mul():
                first, a = self._gathered("a", block.a)
                second, b = self._gathered("b", block.b)
                return ["{", *first, *second, f"multiply<{width}>({out}, {a}, {b});", "}"]
            case Read():
                lines, address = self._gathered("address", block.address)
                return ["{", *lines, f"s.m{block.memory}.read({out}, {address}, all);", "}"]
        raise TypeError(block)

    def _arms(self, out: str, width: int, default: Sequence[int] | None,
              arms: Sequence[Arm]) -> list[str]:
        """``out`` takes ``default``, or keeps what it holds, and then each arm."""
        own = f"Plain{{{out}}}"
        # Conditions may be among what is overwritten.
        conds = [f"const Plane c{place} = {self._expression(arm.cond)};"
                 for place, arm in enumerate(arms)]
        moves = []
        base = own if default is None else self._operand(default)
        for place, arm in enumerate(arms):
            move = f"pick<{width}>({out}, c{place}, {self._operand(arm.values)}, {base});"
            moves.append(move if base != own else f"if (any(c{place})) {move}")
            base = own
        return ["{", *conds, *moves, "}"]

    # Actions

    def action(self, action: Action) -> list[str]:
        """Statements of an action."""
        match action:
            case Hold() | Store():
                rows = self._rows.get(("q", action.at))
                default = action.default if isinstance(action, Store) else None
                if rows is not None:
                    return (self._row_hold(rows, action.arms) if default is None
                            else self._row_select(rows, action.arms))
                if action.arms:
                    return self._arms(f"s.q + {action.at}", action.width, default, action.arms)
                return list(self._stores(action.at, default or ()))
            case Write():
                return self._write(action)
            case Fetch():
                lines, address = self._gathered("address", action.address)
                rows = self._rows.get(("q", action.at))
                if rows is None:
                    call = f"fetch(s.q + {action.at}, {address}, enable)"
                else:
                    call = f"fetch_rows<{rows.width}>({_place(rows)}, {address}, enable)"
                enable = self._expression(action.enable)
                tail = [] if rows is None else self._columns(rows, "all")
                if rows is not None and rows.width < action.width:
                    tail.append(f"s.m{action.memory}.fetch<{rows.width}>("
                                f"s.q + {action.at + rows.width}, {address}, enable);")
                return [f"if (const Plane enable = {enable}; any(enable)) {{", *lines,
                        f"s.m{action.memory}.{call};", *tail, "}"]

    def _stores(self, at: int, values: Sequence[int]) -> Iterator[str]:
        """Copies of stretches of consecutive planes."""
        graph, start = self._graph, 0
        for place in range(1, len(values) + 1):
            if place < len(values) and graph.moves(values[start]) and graph.follows(
                    values[place - 1], values[place]):
                continue
            if place - start == 1:
                yield f"s.q[{at + start}] = {self._expression(values[start])};"
            else:
                yield (f"copy<{place - start}>(s.q + {at + start}, "
                       f"{self._operand(values[start:place])});")
            start = place

    def _write(self, action: Write) -> list[str]:
        memory = f"s.m{action.memory}"
        lines, address = self._gathered("address", action.address)
        if len(action.enable) > 1:
            first, data = self._gathered("data", action.data)
            second, enables = self._gathered("enable", action.enable)
            return ["{", *lines, *first, *second,
                    f"{memory}.write_bits({address}, {data}, {enables});", "}"]
        rows = whole(self._graph, self._rows, action.data, head(action.data))
        body = []
        if rows is not None:
            body.append(f"{memory}.write_rows<{rows.width}>({_place(rows)}, {address}, enable);")
        start = 0 if rows is None else rows.width
        if start < len(action.data):
            first, data = self._gathered("data", action.data[start:])
            body += [*first, f"{memory}.write<{start}>({address}, {data}, enable);"]
        enable = self._expression(action.enable[0])
        return [f"if (const Plane enable = {enable}; any(enable)) {{", *lines, *body, "}"]

    # Rows

    def _moves(self, rows: Rows, arms: Sequence[Arm]) -> list[str]:
        lines = []
        for place, arm in enumerate(arms):
            source = whole(self._graph, self._rows, arm.values)
            if source is None:
                lines.append(f"clear_rows<{rows.width}>({_place(rows)}, c{place});")
            else:
                lines.append(f"move_rows<{rows.width}>({_place(rows)}, {_place(source)}, "
                             f"c{place});")
        return lines

    def _row_select(self, rows: Rows, arms: Sequence[Arm]) -> list[str]:
        """Zero but where an arm holds. Rows are cleared where they were not."""
        conds = [f"const Plane c{place} = {self._expression(arm.cond)};"
                 for place, arm in enumerate(arms)]
        some = " | ".join(f"c{place}" for place in range(len(arms)))
        full = f"{'s' if rows.array == 'q' else 'w'}.full{rows.number}"
        return ["{", *conds, f"const Plane some = {some};",
                f"if (const Plane touched = some | {full}; any(touched)) {{",
                f"    clear_rows<{rows.width}>({_place(rows)}, {full} & ~some);",
                *(f"    {line}" for line in self._moves(rows, arms)),
                f"    {full} = some;", *(f"    {line}" for line in self._columns(rows, "some")),
                "}", "}"]

    def _row_hold(self, rows: Rows, arms: Sequence[Arm]) -> list[str]:
        conds = [f"const Plane c{place} = {self._expression(arm.cond)};"
                 for place, arm in enumerate(arms)]
        some = " | ".join(f"c{place}" for place in range(len(arms)))
        return ["{", *conds, f"if (any({some})) {{",
                *(f"    {line}" for line in (*self._moves(rows, arms),
                                             *self._columns(rows, "all"))),
                "}", "}"]

    def _columns(self, rows: Rows, which: str) -> list[str]:
        """Planes of those columns that logic looks into; zero in lanes that are not ``which``."""
        home = _HOMES[rows.array]
        return [f"load_column({home} + {rows.at + 64 * column}, {_place(rows)}, {8 * column}, "
                f"{which});"
                for column in sorted(rows.columns)]


def _place(rows: Rows) -> str:
    """The rows, as C++."""
    if rows.pin is not None:
        return f"rows_of(s.{rows.pin})"
    return f"rows_of({'s' if rows.array == 'q' else 'w'}.rows{rows.number})"


