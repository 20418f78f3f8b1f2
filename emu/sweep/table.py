"""The table of results: one row per run, as Parquet or CSV.

A run is known by two columns: ``parameters``, its complete parameters as canonical JSON, and
``version``, that of the product. A row holds the parameters as columns of their own too, then the
figures of the run, and ``error``, which is empty if it succeeded. Where a parameter and a figure
have one name, the column is the figure. Nested figures become columns joined by ``_``, lists JSON.
Rows of other sweeps, with other columns, may be in one table.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

__all__ = ["KINDS", "Table", "TableError"]

#: Suffixes of files, which say what is in them.
KINDS = (".parquet", ".csv")
_IDENTITY = ("parameters", "version")
_LAST = ("error", *_IDENTITY)
_TEXT = ("workload", *_LAST)


class TableError(ValueError):
    """What should hold a table does not."""


class Table:
    """Rows of results.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`.
    text : collection of str
        Columns that are text, even where all of their values look like numbers, which a CSV does
        not tell apart.
    """

    def __init__(self, kind: str, text: Collection[str] = ()) -> None:
        self.kind = kind
        self._text = (*_TEXT, *text)
        self._table = pa.table({name: pa.array([], pa.string()) for name in _TEXT})

    def load(self, raw: bytes) -> None:
        """Take the rows of a file.

        Raises
        ------
        TableError
            If there is no such table in it.
        """
        try:
            if self.kind == ".parquet":
                table = parquet.read_table(io.BytesIO(raw))
            else:
                table = csv.read_csv(io.BytesIO(raw), convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(self._text, pa.string()), strings_can_be_null=True,
                    quoted_strings_can_be_null=False))
        except pa.ArrowException as error:
            raise TableError(f"not a {self.kind[1:]} file: {error}") from error
        missing = [name for name in _TEXT if name not in table.column_names]
        if missing:
            raise TableError(f"no result of a sweep: it has no column {missing[0]!r}")
        self._table = table

    def encode(self) -> bytes:
        """The content of its file."""
        buffer = io.BytesIO()
        if self.kind == ".parquet":
            parquet.write_table(self._table, buffer)
        else:
            csv.write_csv(self._table, buffer)
        return buffer.getvalue()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, each with all columns."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def errors(self, version: str) -> dict[str, str | None]:
        """Of every run of a version, by its parameters: its error, or ``None``."""
        mine = self._table.filter(pc.equal(self._table["version"], version))
        return dict(zip(mine["parameters"].to_pylist(), mine["error"].to_pylist(), strict=True))

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add runs; those that are there already are replaced.

        Raises
        ------
        TableError
            If a value does not fit the type of its column.
        """
        flat = [dict(_flatten(row)) for row in rows]
        names = dict.fromkeys(name for row in flat for name in row)
        for row in flat:
            again = pc.and_(*(pc.equal(self._table[name], row[name]) for name in _IDENTITY))
            self._table = self._table.filter(pc.invert(again))
        new = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in flat])
        try:
            self._table = pa.concat_tables([self._table, new], promote_options="permissive")
        except pa.ArrowException as error:
            raise TableError(f"results do not fit the table: {error}") from error
        first = [name for name in self._table.column_names if name not in _LAST]
        self._table = self._table.select([*first, *_LAST]).combine_chunks()


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield prefix + name, json.dumps(value) if isinstance(value, list | tuple) else value
