"""Where results go: files that appear whole or not at all, JSON, and tables for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

__all__ = ["JSON_OUTPUT", "OUTPUT", "Kept", "OutputFile", "OutputType", "Screen"]


class OutputFile:
    """A file that is written at the end of a command, known from its start to be writable.

    Raises
    ------
    OSError
        If the file could not be written.
    """

    #: Tables for people go to standard output, since the JSON does not.
    quiet = False

    def __init__(self, name: str) -> None:
        # A link keeps pointing where it points.
        self.path = Path(os.path.realpath(name))
        self._special = self.path.exists() and not self.path.is_file()
        if self.path.is_dir():
            raise IsADirectoryError(None, "is a directory")
        if self._special:
            # A device or pipe is written in place: nothing may be renamed over it.
            self.path.open("ab").close()
            return
        if self.path.exists():
            self.path.open("r+b").close()
        self._temporary.open("xb").close()
        self._temporary.unlink()

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def write(self, content: str | bytes) -> None:
        """Write ``content``; whoever looks at the file sees all of it or what was there before."""
        raw = content.encode() if isinstance(content, str) else content
        if self._special:
            self.path.write_bytes(raw)
            return
        try:
            self._temporary.write_bytes(raw)
            self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)


    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """A binary file; what is written to it is there once the block ends well."""
        if self._special:
            with self.path.open("wb") as file:
                yield file
            return
        try:
            with self._temporary.open("wb") as file:
                yield file
            self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)


class _StandardOutput:
    quiet = True

    def write(self, text: str) -> None:
        click.echo(text, nl=False)


class Kept:
    """Keeps a result for this process instead of writing it."""

    quiet = True

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def write(self, text: str) -> None:
        self.values = json.loads(text)


class OutputType(click.ParamType):
    """A file's name that becomes an :class:`OutputFile`."""

    name = "file"

    def __init__(self, *, dash: bool) -> None:
        self.dash = dash

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if self.dash and value == "-":
            return _StandardOutput()
        try:
            return OutputFile(value)
        except OSError as error:
            self.fail(f"{value!r} cannot be written ({error.strerror}): accepted is a file in an "
                      f"existing, writable folder{', or -' if self.dash else ''}", param, ctx)


#: A file to write.
OUTPUT = OutputType(dash=False)
#: A file to write, or ``-`` for standard output.
JSON_OUTPUT = OutputType(dash=True)


class Screen:
    """What a command tells: tables on standard output unless JSON goes there, and the JSON."""

    def __init__(self, json_output: OutputFile | _StandardOutput | Kept | None) -> None:
        self._json = json_output
        self._quiet = json_output is not None and json_output.quiet

    def line(self, text: str) -> None:
        """Print a line for people."""
        if not self._quiet:
            click.echo(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table for people: drawn on a terminal, plain columns elsewhere.

        The first column is text, the others are numbers.
        """
        if self._quiet:
            return
        if sys.stdout.isatty():
            _draw(title, columns, rows)
            return
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        click.echo(title)
        for row in (columns, *rows) if any(columns) else rows:
            cells = [row[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            click.echo(f"  {'  '.join(cells)}".rstrip())

    def result(self, values: Mapping[str, Any]) -> None:
        """Write the result where ``--json`` said, if it did."""
        if self._json is not None:
            self._json.write(json.dumps(values, indent=2, allow_nan=False) + "\n")


def _draw(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=any(columns))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
