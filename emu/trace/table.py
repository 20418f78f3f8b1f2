"""Spans as a table: one row each, in columns, for pandas, polars or DuckDB.

``node`` and ``track`` say where, ``begin`` and ``end`` when (cycles ``begin`` … ``end`` − 1),
``event`` what. The other columns are what is known of commands and packets; where nothing is,
numbers are −1 and texts empty.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np

from .scene import Scene
from .spans import Span, Track

__all__ = ["FORMATS", "SpanTable", "check_format"]

_NUMBERS = ("begin", "end", "flow", "slot", "tag", "from", "to", "bytes", "address")
_TEXTS = ("node", "track", "event", "queue", "status")
#: Rows that are held before they become a piece of the file.
_PIECE = 1 << 16
FORMATS = (".parquet", ".npz")


class SpanTable:
    """A table on its way into a file.

    Parameters
    ----------
    file : binary file
    scene : Scene
    suffix : str
        ``.parquet``, written piece by piece, or ``.npz``, written at the end.
    """

    def __init__(self, file: BinaryIO, scene: Scene, suffix: str) -> None:
        self._file, self._suffix, self._name = file, suffix, scene.fabric.name
        self._rows: list[tuple[Any, ...]] = []
        self._pieces: list[dict[str, np.ndarray]] = []
        self._writer: Any = None

    def span(self, span: Span) -> None:
        """One more row."""
        details = span.details
        known = {"begin": span.begin, "end": span.end, "flow": span.flow or -1}
        texts = {"node": self._name(span.track.node), "track": span.track.name,
                 "event": span.name}
        self._rows.append((*(known.get(name, details.get(name, -1)) for name in _NUMBERS),
                           *(texts.get(name, str(details.get(name, ""))) for name in _TEXTS)))
        if len(self._rows) == _PIECE:
            self._flush()

    def count(self, track: Track, cycle: int, value: float) -> None:
        """Counters have no rows."""

    def close(self) -> None:
        """Write what is held back."""
        self._flush()
        if self._suffix == ".parquet":
            self._writer.close()
            return
        np.savez_compressed(self._file, allow_pickle=False, **{
            name: np.concatenate([piece[name] for piece in self._pieces])
            for name in (*_NUMBERS, *_TEXTS)})

    def _flush(self) -> None:
        columns = list(zip(*self._rows, strict=True)) or [()] * (len(_NUMBERS) + len(_TEXTS))
        piece = {name: np.array(column, np.int64 if name in _NUMBERS else np.str_)
                 for name, column in zip((*_NUMBERS, *_TEXTS), columns, strict=True)}
        self._rows.clear()
        if self._suffix == ".npz":
            self._pieces.append(piece)
            return
        import pyarrow as arrow
        from pyarrow import parquet

        table = arrow.table({name: arrow.array(column.tolist(), arrow.int64() if name in _NUMBERS
                                               else arrow.string())
                             for name, column in piece.items()})
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)


def check_format(name: str) -> str:
    """How the name of a file ends that a table can be written to.

    Raises
    ------
    ValueError
        If it ends otherwise than in one of ``FORMATS``, or the package for that is not installed.
    """
    suffix = name[name.rfind("."):]
    if suffix not in FORMATS:
        raise ValueError(f"{name!r} is no table of events: accepted are files that end in "
                         f"{' or '.join(FORMATS)}")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError("a Parquet file needs pyarrow: install it with pip install "
                         "'supernode-emulator[trace]', or ask for .npz")
    return suffix
