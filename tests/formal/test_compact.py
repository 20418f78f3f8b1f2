"""The rewritten Verilog means what Amaranth wrote: block by block, for every state and input.

Yosys joins the two texts of a block at registers of one name and memories of one name: given equal
states and inputs, every output, every next state and everything that is written to a memory is
equal. The blocks start equal too, so they stay equal for all times. Every rule of the rewrite
occurs in some block: next-state processes, resets, enables, slices, arrays, memories cleared in a
loop, equal submodules that become one, wires that go away.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.back import verilog

from hdl.compact import compact
from hdl.fabric.allocator import Allocator
from hdl.fabric.buffer import VcBuffer
from hdl.fabric.islip import Islip
from hdl.fabric.table import RouteTable
from hdl.link.link import LinkEndpoint
from hdl.nic.fifo import Fifo
from hdl.params import LinkParams, RouterParams
from tests.formal.prove import BUILD, yosys
from tests.hdl.test_compact import Top

LINK = LinkParams(flit_bytes=16, classes=1, vcs_per_class=2, vc_depth=5)
BLOCKS: dict[str, Callable[[], Any]] = {
    "leaves": Top,
    "fifo": lambda: Fifo(3, depth=9),
    "buffer": lambda: VcBuffer(LINK, 4),
    "allocator": lambda: Allocator(RouterParams(link=LINK, dim_ports=(2,))),
    "islip": lambda: Islip(3, 3, iterations=1),
    "table": lambda: RouteTable(3),
    "link": lambda: LinkEndpoint(LINK),
}

READ = """
read_verilog {side}.v
hierarchy -check -top top
proc
flatten
memory -nomap -nordff
opt_clean
select -assert-none t:$dlatch t:$sr
select -clear
rename top {side}
design -stash {side}
"""
SCRIPT = READ.format(side="gold") + READ.format(side="gate") + """
design -copy-from gold gold
design -copy-from gate gate
equiv_make gold gate equiv
hierarchy -top equiv
equiv_simple
equiv_status -assert
"""


def check_equal(name: str, gold: str, gate: str) -> None:
    """Fail unless the two texts of a module ``top`` are equivalent."""
    folder = BUILD / f"compact-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gold.v").write_text(gold)
    (folder / "gate.v").write_text(gate)
    yosys(folder, SCRIPT, "equal")
    log = (folder / "equal.log").read_text()
    assert re.search(r"Of those cells [1-9]\d* are proven and 0 are unproven", log)


def written(name: str) -> str:
    return verilog.convert(BLOCKS[name](), name="top", emit_src=False, strip_internal_attrs=True)


def starts(text: str) -> set[tuple[str, str]]:
    """What registers start with: (name, value)."""
    return set(re.findall(r"^  reg (?:\[\d+:\d+\] )?(\S+) += (\d+'h[0-9a-f]+);", text, re.M))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_rewritten_block_is_the_block(name):
    gold = written(name)
    gate = compact(gold)
    assert gate != gold
    assert starts(gate) == starts(gold)
    check_equal(name, gold, gate)


@pytest.mark.parametrize(("name", "old", "new"), [
    ("fifo", "if (rst) begin\n      level  <= 4'h0", "if (rst) begin\n      level  <= 4'h1"),
    ("fifo", "if (write__valid) begin\n      write__addr", "if (1) begin\n      write__addr"),
    ("fifo", "items[write__addr] <=", "items[take] <="),
    ("fifo", "row_of_items < 9", "row_of_items < 8"),
    ("leaves", "held  <= value", "held  <= ~value"),
], ids=["another reset", "always enabled", "another row", "a row not cleared", "another value"])
def test_a_changed_text_is_refuted(name, old, new):
    gold = written(name)
    gate = compact(gold)
    assert gate.count(old) == 1
    with pytest.raises(AssertionError, match=r"unproven|memid"):
        check_equal(f"{name}-mutant", gold, gate.replace(old, new))
