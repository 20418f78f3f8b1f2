"""The NIC's FIFO is a queue: every item once, in order, and a level that is what it holds.

Any write may be the one that is followed: its value and the number of items before it are kept, and
when all before it have been read it must be the one that is offered. All write moments are tried at
once, so this holds for every item.
"""

import pytest
from amaranth.hdl import Mux, Signal

from hdl.nic.fifo import Fifo
from tests.formal.prove import Case, mutant, prove, reach, refute

WIDTH = 2  # items are only moved: any two that differ stand for all


def fifo_case(block: type[Fifo], depth: int, *, invariants: bool = True) -> Case:
    case = Case()
    m = case.m
    fifo = block(WIDTH, depth=depth)
    inside = case.block(fifo)
    put, get = case.free(1, "put"), case.free(1, "get")
    item, follow = case.free(WIDTH, "item"), case.free(1, "follow")
    level = Signal(range(depth + 2))
    m.d.comb += [fifo.write.valid.eq(put), fifo.write.payload.eq(item), fifo.read.ready.eq(get)]
    case.given(~put | fifo.room)
    taken = case.see(get & fifo.read.valid, "taken")
    m.d.sync += level.eq(level + put - taken)

    followed, ahead, value = Signal(), Signal(range(depth + 1)), Signal(WIDTH)
    with m.If(~followed & follow & put):
        m.d.sync += [followed.eq(1), ahead.eq(level - taken), value.eq(item)]
    with m.Elif(followed & taken):
        m.d.sync += [followed.eq(ahead != 0), ahead.eq(ahead - 1)]

    case.must(level <= depth, "level")
    case.must(fifo.room == (level < depth), "room")
    case.must(fifo.read.valid == (level != 0), "valid")
    offered = case.see(fifo.read.payload, "offered")
    case.must(~(followed & (ahead == 0)) | fifo.read.valid & (offered == value), "order")
    case.reach(level == depth, "full")
    if invariants:
        take = inside["take"]
        at = case.see(Mux(take + ahead >= depth, take + ahead - depth, take + ahead), "at")
        end = Mux(take + level >= depth, take + level - depth, take + level)
        row = inside.row("items", at, "row")
        front = inside.row("items", take, "front")
        case.must((inside["level"] == level) & (take < depth), "level_inside")
        case.must(inside["put"] == end, "put")
        case.must((level == 0) | (offered == front), "front_row")
        case.must(~followed | (ahead < level) & (row == value), "row_kept")
    return case


@pytest.mark.parametrize("depth", [3, 4])
def test_items_leave_once_and_in_order(depth):
    prove(fifo_case(Fifo, depth), f"fifo{depth}", induction=1)
    reach(fifo_case(Fifo, depth), f"fifo{depth}", bound=depth + 1)


@pytest.mark.parametrize(("old", "new", "broken_property"), [
    ("transparent_for=(write,)", "transparent_for=()", "order"),
    ("level != self.depth)", "level != self.depth - 1)", "room"),
    ("Mux(pointer == self.depth - 1, 0, pointer + 1)", "pointer + 1", "order"),
    ("taken | (level == 0)", "taken", "order"),
], ids=["stale front", "one item less", "pointers run over", "front not read"])
def test_a_broken_fifo_is_refuted(old, new, broken_property):
    broken = mutant("hdl.nic.fifo", (old, new)).Fifo
    refute(fifo_case(broken, 3, invariants=False), "fifo", bound=10,
           breaks=broken_property)
