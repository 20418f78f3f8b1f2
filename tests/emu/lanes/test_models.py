"""Lane-parallel models against Verilated ones of the same tiles: every lane driven differently, all
outputs equal in every cycle."""

from dataclasses import replace

import pytest

from bench.lanes import Harness, lane_tile
from emu.build import Builder
from emu.cache import BuildError
from emu.lanes import LaneTile
from hdl.card import NetworkTile
from hdl.params import RouterParams, SwitchParams, TrafficParams, preset
from hdl.switch import SwitchTile
from hdl.traffic import TrafficTile
from tests.emu.lanes.toys import CellTile

SMALL = preset("small")


@pytest.fixture(scope="module")
def builder():
    return Builder()


def test_every_cell_does_what_verilator_says(builder):
    seed = 20
    harness = Harness(lane_tile(builder, "cells", CellTile, seed, 64), builder)
    harness.compare(3000, seed=seed)


def test_a_small_card_is_equal_in_every_lane(builder):
    harness = Harness(lane_tile(builder, "network", NetworkTile, SMALL, 64), builder)
    harness.compare(1500, seed=1)
    harness.compare(1500, seed=2, activity=40)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [64, 256, 512])
def test_any_number_of_lanes(builder, lanes):
    Harness(lane_tile(builder, "cells", CellTile, 21, lanes), builder).compare(2000, seed=lanes)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "factory", "params"), [
    ("network", NetworkTile, preset("default")),
    ("network", NetworkTile, replace(preset("default"), router=RouterParams(
        link=replace(preset("default").link, reliable=True)))),
    ("traffic", TrafficTile, TrafficParams(router=preset("booksim").router)),
], ids=["network", "network-reliable", "traffic"])
def test_a_whole_tile_is_equal_in_every_lane(builder, name, factory, params):
    harness = Harness(lane_tile(builder, name, factory, params), builder)
    for seed, activity in enumerate((3, 50)):
        harness.compare(3000, seed=seed, activity=activity)


def test_a_tile_of_several_modules_is_refused(builder):
    tile = lane_tile(builder, "switch", SwitchTile, SwitchParams(radix=4))
    with pytest.raises(BuildError, match="tile switch has parts that are modules of their own"):
        builder.objects([tile])


def test_an_odd_number_of_lanes_is_refused(builder):
    with pytest.raises(ValueError, match="lanes must be one of 64, 128, 256, 512, not 48"):
        LaneTile(builder.verilog(NetworkTile, SMALL, "network"), NetworkTile, SMALL, 48)


