"""What is computed in a cycle, in which order, and under which condition.

A value that only matters where some condition holds, in whatever lane, is left out of a cycle in
which it holds in none. Such a *guard* is found from the users: an arm's values matter under its
condition, and a value matters under what all its users have in common. What is skipped keeps what
it was, and nobody looks. Dropping a guard is always right, so those that save little are dropped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from .cover import Function, cover
from .graph import TRUE, Arm, Block, Copy, Graph, Mul, Read
from .lowered import Fetch, Hold, Lowered, Store, Write

__all__ = ["Action", "Plan", "Run", "action_operands", "plan_cycle", "plan_outputs",
           "ordered_units", "unit_of", "unit_operands"]

Action = Hold | Store | Write | Fetch
#: Units of a plan: a gate's node, or ~number of a block.
Unit = int
Guard = frozenset[int]
Operands = Callable[[Graph, Unit], list[tuple[int, int]]]

#: Operations that a guard must save to be worth a branch.
WORTHWHILE = 60
_OPEN: Guard = frozenset()


@dataclass(frozen=True)
class Run:
    """Units computed one after the other if all guards hold in some lane."""

    guards: tuple[int, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True)
class Plan:
    """Runs, then actions. Gates that runs compute are ``functions``."""

    runs: tuple[Run, ...]
    functions: dict[int, Function]
    actions: tuple[Action, ...] = ()


def action_operands(action: Action) -> Iterator[tuple[int, int]]:
    """Literals that an action reads, each with the one that must hold for it to matter."""
    match action:
        case Hold() | Store():
            if isinstance(action, Store):
                yield from ((literal, TRUE) for literal in action.default)
            for arm in action.arms:
                yield arm.cond, TRUE
                yield from ((literal, arm.cond) for literal in arm.values)
        case Write():
            guard = action.enable[0] if len(action.enable) == 1 else TRUE
            yield from ((literal, TRUE) for literal in action.enable)
            yield from ((literal, guard) for literal in (*action.address, *action.data))
        case Fetch():
            yield action.enable, TRUE
            yield from ((literal, action.enable) for literal in action.address)


def plan_cycle(lowered: Lowered) -> Plan:
    """Plan a clock edge."""
    actions = _ordered(lowered)
    roots = [(literal, TRUE) for literal in lowered.following.values()]
    for action in actions:
        roots += action_operands(action)
    return replace(_runs(lowered.graph, roots, guarded=True), actions=actions)


def plan_outputs(lowered: Lowered, literals: Iterable[int]) -> Plan:
    """Plan the computation of outputs from registers."""
    return _runs(lowered.graph, [(literal, TRUE) for literal in literals], guarded=False)


def unit_of(graph: Graph, literal: int) -> Unit | None:
    """What computes a literal; None for constants, registers and inputs."""
    node = literal >> 1
    op = graph.op[node]
    if op == "S":
        return ~graph.producer[graph.b[node]] if graph.a[node] == ord("t") else None
    return None if op == "C" else node


def unit_operands(graph: Graph, unit: Unit) -> list[tuple[int, int]]:
    """Literals that a unit reads, each with the one that must hold for it to matter."""
    if unit < 0:
        return list(graph.blocks[~unit].operands())
    a, b = graph.a[unit], graph.b[unit]
    if graph.op[unit] == "M":
        return [(a, TRUE), (b, a), (graph.c[unit], a ^ 1)]
    return [(a, TRUE), (b, TRUE)]


def ordered_units(graph: Graph, literals: Iterable[int]) -> list[Unit]:
    """What literals are computed by, operands first."""
    return _order(graph, literals, unit_operands)[0]


def _cost(graph: Graph, unit: Unit) -> int:
    if unit >= 0:
        return 3 if graph.op[unit] == "M" else 1
    block: Block = graph.blocks[~unit]
    if isinstance(block, Read):
        return 150 + block.width
    if isinstance(block, Mul):
        return 300
    return 4 + block.width // 4 * (1 + len(getattr(block, "arms", ())))


def _runs(graph: Graph, roots: list[tuple[int, int]], *, guarded: bool) -> Plan:
    order, inputs = _order(graph, [literal for literal, _ in roots], unit_operands)
    guards = _guards(graph, order, inputs, roots) if guarded else dict.fromkeys(order, _OPEN)
    needed = [literal for literal, _ in roots]
    needed += [literal for unit in order if unit < 0 for literal, _ in inputs[unit]]
    needed += {literal for guard in set(guards.values()) for literal in guard}
    functions = cover(graph, (unit for unit in order if unit >= 0),
                      [literal >> 1 for literal in needed])

    def operands(graph: Graph, unit: Unit) -> list[tuple[int, int]]:
        if unit < 0:
            return unit_operands(graph, unit)
        return [(2 * leaf, TRUE) for leaf in functions[unit].leaves]

    order, inputs = _order(graph, needed, operands)
    return Plan(_schedule(graph, order, inputs, guards), functions)


def _order(graph: Graph, roots: Iterable[int], operands: Operands) -> tuple[
        list[Unit], dict[Unit, list[tuple[int, int]]]]:
    """Units behind the roots, operands first, each where it is first asked for."""
    order: list[Unit] = []
    inputs: dict[Unit, list[tuple[int, int]]] = {}
    for root in roots:
        first = unit_of(graph, root)
        if first is None or first in inputs:
            continue
        inputs[first] = operands(graph, first)
        stack = [(first, iter(inputs[first]))]
        while stack:
            unit, remaining = stack[-1]
            for literal, _ in remaining:
                below = unit_of(graph, literal)
                if below is not None and below not in inputs:
                    inputs[below] = operands(graph, below)
                    stack.append((below, iter(inputs[below])))
                    break
            else:
                order.append(unit)
                stack.pop()
    return order, inputs


def _guards(graph: Graph, order: list[Unit], inputs: dict[Unit, list[tuple[int, int]]],
            roots: list[tuple[int, int]]) -> dict[Unit, Guard]:
    found: dict[Unit, Guard] = {}

    def use(literal: int, outer: Guard, guard: int) -> None:
        unit = unit_of(graph, literal)
        if unit is None:
            return
        whole = outer | {guard} if guard != TRUE and len(outer) < 16 else outer
        known = found.get(unit)
        found[unit] = whole if known is None else known & whole

    for literal, guard in roots:
        use(literal, _OPEN, guard)
    for unit in reversed(order):
        for literal, guard in inputs[unit]:
            use(literal, found[unit], guard)

    saved: Counter[int] = Counter()
    for unit in order:
        for guard in found[unit]:
            saved[guard] += _cost(graph, unit)
    kept = {guard for guard, cost in saved.items() if cost >= WORTHWHILE}
    found = {unit: guard & kept for unit, guard in found.items()}
    return _merged(graph, found)


def _merged(graph: Graph, guards: dict[Unit, Guard]) -> dict[Unit, Guard]:
    """Give up guards under which there is too little."""
    while True:
        cost: Counter[Guard] = Counter()
        for unit, guard in guards.items():
            cost[guard] += _cost(graph, unit)
        small = [guard for guard in cost if guard and cost[guard] < WORTHWHILE]
        if not small:
            return guards
        target: dict[Guard, Guard] = {}
        for guard in small:
            subsets = [other for other in cost if other < guard and (
                not other or cost[other] >= WORTHWHILE)]
            target[guard] = max(subsets, key=len, default=_OPEN)
        guards = {unit: target.get(guard, guard) for unit, guard in guards.items()}


def _schedule(graph: Graph, order: list[Unit], inputs: dict[Unit, list[tuple[int, int]]],
              guards: dict[Unit, Guard]) -> tuple[Run, ...]:
    place = {unit: number for number, unit in enumerate(order)}
    waiting: Counter[Unit] = Counter()
    users: dict[Unit, list[Unit]] = defaultdict(list)
    for unit in order:
        needs = {unit_of(graph, literal) for literal, _ in inputs[unit]}
        needs |= {unit_of(graph, literal) for literal in guards[unit]}
        needs.discard(None)
        waiting[unit] = len(needs)
        for need in needs:
            users[need].append(unit)  # type: ignore[index]
    ready: dict[Guard, list[int]] = defaultdict(list)
    for unit in order:
        if not waiting[unit]:
            heappush(ready[guards[unit]], place[unit])
    result: list[Run] = []
    while ready:
        guard = _OPEN if _OPEN in ready else max(ready, key=lambda each: len(ready[each]))
        heap, units = ready[guard], []
        while heap:
            unit = order[heappop(heap)]
            units.append(unit)
            for user in users[unit]:
                waiting[user] -= 1
                if not waiting[user]:
                    heappush(ready[guards[user]], place[user])
        del ready[guard]
        conditions = sorted(guard, key=lambda literal: place.get(
            unit_of(graph, literal), -1))  # type: ignore[arg-type]
        result.append(Run(tuple(conditions), tuple(units)))
    return tuple(result)


def _ordered(lowered: Lowered) -> tuple[Action, ...]:
    """Actions in an order in which each still finds what it reads. Where there is none, as where
    registers take each other's values, one of them reads copies."""
    graph = lowered.graph
    actions = dict(enumerate(lowered.actions))
    writer = {at: number for number, action in actions.items() if not isinstance(action, Write)
              for at in range(action.at, action.at + action.width)}

    def overwriters(action: Action) -> set[int]:
        planes = (graph.plane(literal) for literal, _ in action_operands(action))
        return {writer[plane[1]] for plane in planes
                if plane is not None and plane[0] == "q" and plane[1] in writer}

    # Conditions and addresses are taken before anything of the same action is written.
    after = {number: overwriters(action) - (
        set() if isinstance(action, Store) and not action.arms else {number})
             for number, action in actions.items()}
    for number, fetch in actions.items():
        if isinstance(fetch, Fetch):
            for other, write in actions.items():
                if isinstance(write, Write) and write.memory == fetch.memory:
                    first, second = (other, number) if fetch.after else (number, other)
                    after[first].add(second)
    result: list[Action] = []
    while actions:
        blocked = {second for first in actions for second in after[first]}
        free = [number for number in actions if number not in blocked]
        if not free:
            number = next(number for number in actions if number in blocked and after[number]
                          and not isinstance(actions[number], Write))
            actions[number] = _apart(graph, actions[number])
            after[number] = {second for second in after[number]
                             if isinstance(lowered.actions[second], Write)}
        for number in free:
            result.append(actions.pop(number))
    return tuple(result)


def _apart(graph: Graph, action: Action) -> Action:
    """The action, reading copies of the registers that it reads."""
    def copied(literals: tuple[int, ...]) -> tuple[int, ...]:
        planes = [graph.plane(literal) for literal in literals]
        if not any(plane is not None and plane[0] == "q" for plane in planes):
            return literals
        return tuple(graph.block(Copy(graph.next_plane, len(literals), literals)))

    match action:
        case Hold() | Store():
            arms = tuple(Arm(copied((arm.cond,))[0], copied(arm.values)) for arm in action.arms)
            if isinstance(action, Store):
                return replace(action, default=copied(action.default), arms=arms)
            return replace(action, arms=arms)
        case Fetch():
            return replace(action, address=copied(action.address),
                           enable=copied((action.enable,))[0])
    return action
