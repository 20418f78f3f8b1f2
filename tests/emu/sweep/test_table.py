"""A table of results holds what was put in, whatever its format, and refuses what is none."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pytest

from emu.sweep import KINDS, Table, TableError

TEXT = ("name",)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"workload": "w", "parameters": f'{{"n": "{number}, or\n""so"}}', "version": "1.0",
            "error": None, **more}


def filled(kind: str) -> Table:
    table = Table(kind, TEXT)
    table.add([row(0, name="1", count=3, rate=0.1, ok=True, empty=None)])
    table.add([row(1, name="", count=4.5, rate=1e-300, ok=None, victims={"mean": 2, "p99": None})])
    table.add([row(2, name=None, error='a "b", c', list=(1, "x"), count=2**40)])
    return table


def test_both_formats_hold_the_same_rows() -> None:
    found = {}
    for kind in KINDS:
        again = Table(kind, TEXT)
        again.load(filled(kind).encode())
        found[kind] = again.rows()
        assert found[kind] == filled(kind).rows()
    assert found[".csv"] == found[".parquet"]
    first, second, third = found[".csv"]
    assert (first["name"], second["name"], third["name"]) == ("1", "", None)
    assert (second["victims_mean"], second["victims_p99"], third["list"]) == (2, None, '[1, "x"]')
    assert first["ok"] is True and third["error"] == 'a "b", c'


def test_a_csv_is_one_to_other_readers() -> None:
    rows = list(csv.DictReader(io.StringIO(filled(".csv").encode().decode(), newline="")))
    assert [float(each["count"]) for each in rows] == [3, 4.5, 2**40]
    assert rows[0]["parameters"] == row(0)["parameters"]
    assert list(rows[0])[-3:] == ["error", "parameters", "version"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_anywhere_is_refused_or_holds_whole_rows(kind: str) -> None:
    seed = 5
    print(f"seed {seed}")
    raw, rows = filled(kind).encode(), filled(kind).rows()
    for cut in random.Random(seed).sample(range(len(raw) - 1), 60):
        table = Table(kind, TEXT)
        try:
            table.load(raw[:cut])
        except TableError:
            continue
        assert kind == ".csv"
        assert table.errors("1.0").keys() <= {each["parameters"] for each in rows}


@pytest.mark.parametrize(("kind", "raw"), [
    (".parquet", b"a,b\n1,2\n"), (".csv", b"a,b\n1,2\n"), (".csv", b""), (".parquet", b""),
    (".csv", b"\x00\xff\xfe"), (".csv", b'workload,error\n"x"\n')])
def test_what_is_no_table_of_results_is_refused(kind: str, raw: bytes) -> None:
    with pytest.raises(TableError):
        Table(kind, TEXT).load(raw)


def test_a_run_is_known_by_parameters_and_version_and_replaced() -> None:
    table = Table(".parquet")
    table.add([row(0, cycles=1), row(1, error="bad")])
    table.add([row(0, version="2.0", cycles=2)])
    table.add([row(1, cycles=7)])
    assert len(table) == 3
    assert table.errors("1.0") == {row(0)["parameters"]: None, row(1)["parameters"]: None}
    assert table.errors("2.0") == {row(0)["parameters"]: None}
    assert table.errors("3.0") == {}
    assert [each["cycles"] for each in table.rows()] == [1, 2, 7]


def test_a_value_that_does_not_fit_its_column_is_refused_and_nothing_is_lost() -> None:
    table = Table(".parquet")
    table.add([row(0, cycles=1)])
    with pytest.raises(TableError, match="do not fit"):
        table.add([row(1, cycles="many")])
    assert len(table) == 1
