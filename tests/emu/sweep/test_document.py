"""The file of a sweep becomes the runs that it describes, or an error that names the key."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from emu.sweep import Document, read_document


def read(tmp_path: Path, text: str) -> Document:
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    return read_document(file)


def test_a_grid_is_a_cartesian_product_and_points_come_after_it(tmp_path: Path) -> None:
    document = read(tmp_path, """
        [sweep]
        workload = "allreduce"
        dtype = "bf16"
        seeds = [3, 1]
        [sweep.grid]
        topology = ["ring:2", "ring:4", "mesh:2x2"]
        bytes = ["4K", 8]
        [[sweep.point]]
        topology = "ring:9"
        dtype = "f32"
        [[sweep.point]]
        bytes = 1
    """)
    grid = [{"dtype": "bf16", "topology": topology, "bytes": size}
            for topology, size in itertools.product(("ring:2", "ring:4", "mesh:2x2"), ("4K", 8))]
    rows = [*grid, {"topology": "ring:9", "dtype": "f32"}, {"dtype": "bf16", "bytes": 1}]
    assert document.workload == "allreduce"
    assert list(document.runs) == [{**row, "seed": seed} for row in rows for seed in (3, 1)]


def test_without_grid_and_points_there_is_one_run(tmp_path: Path) -> None:
    document = read(tmp_path, '[sweep]\nworkload = "p2p"\ntopology = "ring:2"\n')
    assert document.runs == ({"topology": "ring:2"},)


@pytest.mark.parametrize(("text", "named"), [
    ("x = ", "not TOML"),
    ("[sweeps]", "'sweeps'"),
    ("", r"\[sweep\]"),
    ("[sweep]", "sweep.workload"),
    ("[sweep]\nworkload = 3", "sweep.workload must name a workload, not 3"),
    ("[sweep]\nworkload = 'p2p'\ngrid = 3", "sweep.grid must be a table of lists, not 3"),
    ("[sweep]\nworkload = 'p2p'\n[sweep.grid]", "sweep.grid must be a table of lists"),
    ("[sweep]\nworkload = 'p2p'\n[sweep.grid]\nbytes = 3", "sweep.grid.bytes must be a list"),
    ("[sweep]\nworkload = 'p2p'\n[sweep.grid]\nbytes = []", "sweep.grid.bytes must be a list"),
    ("[sweep]\nworkload = 'p2p'\nbytes = 4\n[sweep.grid]\nbytes = [4]", "'bytes' is in"),
    ("[sweep]\nworkload = 'p2p'\n[sweep.point]\nbytes = 4", "sweep.point must be tables"),
    ("[sweep]\nworkload = 'p2p'\nseeds = 3", "sweep.seeds must be a list"),
    ("[sweep]\nworkload = 'p2p'\nseeds = [true]", "sweep.seeds must be a list"),
    ("[sweep]\nworkload = 'p2p'\nseeds = []", "sweep.seeds must be a list"),
    ("[sweep]\nworkload = 'p2p'\nseeds = [1]\nseed = 1", "'seed' and 'seeds'"),
    ("[sweep]\nworkload = 'p2p'\nseeds = [1]\n[sweep.grid]\nseed = [1]", "'seed' and 'seeds'"),
])
def test_what_is_no_sweep_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read(tmp_path, text)
