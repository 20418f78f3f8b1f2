"""What the options refuse before anything is built; nothing is left of what was not made."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ..cli.invoke import invoke

RUN = "run p2p --topology ring:2 --preset small --bytes 64"
TRAFFIC = "traffic --topology ring:4 --preset booksim"


@pytest.mark.parametrize(("line", "named"), [
    (f"{RUN} --events {{}}/a.csv", r"'a.csv' .* accepted are files that end in .parquet or .npz"),
    (f"{RUN} --trace {{}}/no/a.pftrace", "--trace"),
    (f"{TRAFFIC} --sweep --links -", "--links"),
    (f"{TRAFFIC} --sweep --heatmap {{}}/a.svg", "--heatmap"),
])
def test_what_cannot_be_is_refused_in_one_line(line: str, named: str, capsys: Any,
                                               tmp_path: Path) -> None:
    outcome = invoke(capsys, line.format(tmp_path))
    assert outcome.status == 2 and len(outcome.err.splitlines()) == 1
    assert re.search(named, outcome.err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "package"), [
    ("--trace {}/a.pftrace", "perfetto"), ("--heatmap {}/a.svg", "matplotlib")])
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
        option: str, package: str, capsys: Any, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    outcome = invoke(capsys, f"{RUN} {option.format(tmp_path)}")
    assert outcome.status == 2 and package in outcome.err and "pip install" in outcome.err
    assert not list(tmp_path.iterdir())


def test_a_run_that_fails_leaves_its_trace(capsys: Any, tmp_path: Path) -> None:
    """A cable is cut under a write that nobody gives up: what happened until then is there."""
    pytest.importorskip("perfetto")
    from .parsed import parse

    file = tmp_path / "a.pftrace"
    outcome = invoke(capsys, f"{RUN} --fail 0:0@0 --fail 0:1@0 --deadline 500 --trace {file}")
    assert outcome.status == 1 and "Traceback" not in outcome.err
    assert [each.name for each in tmp_path.iterdir()] == ["a.pftrace"]
    spans = parse(file).of("card 0", "card")
    assert spans and all(span.end > span.begin for span in spans)
