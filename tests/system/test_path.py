"""One driver program, two machines: the RTL on the engine and the RTL inside a cocotb bench.

The cocotb bench is a flat design of two small cards under a simulator with a memory in Python; the
engine runs the same tiles one by one with its memory in C++. Both must give the right bytes, and
the same number of cycles for everything.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import cocotb
import numpy as np
import pytest

from drivers.cocotb_backend import CocotbBackend
from drivers.supernode import SuperNode
from emu.build import Builder
from emu.emulator import EngineBackend
from hdl.card import ComputeTile, NetworkTile
from hdl.params import preset
from hdl.topology import parse
from tests.bench import run_bench

from . import path

PROGRAMS = ("write_both_ways", "gemm_on_each_card", "allreduce_everywhere")
SPEC, PRESET, MEMORY = "ring:2", "small", 1 << 17


async def run(dut, name):
    backend = CocotbBackend(dut, parse(SPEC), preset(PRESET), memory_bytes=MEMORY)
    await backend.start()
    cycles = await backend.run(lambda machine: getattr(path, name)(SuperNode(machine)))
    Path(os.environ["CYCLES"], f"{name}.json").write_text(json.dumps(cycles))


@cocotb.test()
async def work_under_way_is_cut_off_by_the_next_reset(dut):
    """What it leaves in memories of the RTL must not show in the tests that follow."""
    def program(machine):
        sn = SuperNode(machine)
        arrays = [sn.malloc(4096, "f32", card).write(np.ones(4096, "f4"))
                  for card in range(sn.cards)]
        sn.allreduce(arrays)
        sn.write(arrays[0].view(0, 64), arrays[1].view(64, 64))

    backend = CocotbBackend(dut, parse(SPEC), preset(PRESET), memory_bytes=MEMORY)
    await backend.start()
    await backend.run(program)


@cocotb.test()
async def writes_run_under_cocotb(dut):
    await run(dut, "write_both_ways")


@cocotb.test()
async def gemms_run_under_cocotb(dut):
    await run(dut, "gemm_on_each_card")


@cocotb.test()
async def allreduces_run_under_cocotb(dut):
    await run(dut, "allreduce_everywhere")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs_on_the_engine(name):
    with SuperNode(EngineBackend(parse(SPEC), preset(PRESET), memory_bytes=MEMORY)) as sn:
        getattr(path, name)(sn)


@pytest.mark.slow
@pytest.mark.parametrize("flit_bytes", [16, 64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs_with_other_flits(name, flit_bytes):
    small = preset(PRESET)
    link = replace(small.link, flit_bytes=flit_bytes)
    params = replace(small, router=replace(small.router, link=link))
    with SuperNode(EngineBackend(parse(SPEC), params, memory_bytes=MEMORY)) as sn:
        getattr(path, name)(sn)


def test_the_same_programs_take_the_same_cycles_under_cocotb(tmp_path):
    params, topology = preset(PRESET), parse(SPEC)
    builder = Builder()
    flat = builder.flat(
        params=params, cards=topology.cards, links=topology.links,
        latency=[params.link.latency] * len(topology.links),
        network=builder.verilog(NetworkTile, params, "network"),
        compute=builder.verilog(ComputeTile, params, "compute"))
    run_bench(flat, __name__, env={"CYCLES": str(tmp_path)})
    for name in PROGRAMS:
        with SuperNode(EngineBackend(topology, params, memory_bytes=MEMORY)) as sn:
            expected = getattr(path, name)(sn)
        assert json.loads((tmp_path / f"{name}.json").read_text()) == expected
