"""Errors as the user sees them: one line on stderr and an exit status.

Status 2: what was asked for is wrong. Status 1: it was tried and failed, or came out wrong. What
is not listed here is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["Failure", "complain", "describe", "usage", "warn"]


class Failure(click.ClickException):
    """A run that was tried and failed, or whose results are wrong: status 1."""


@contextmanager
def usage(option: str | None = None) -> Iterator[None]:
    """Blame a ValueError on the value of ``option``, or on the whole request: the message already
    names the value."""
    try:
        yield
    except ValueError as error:
        if option is None:
            raise click.UsageError(str(error)) from error
        raise click.BadParameter(str(error), param_hint=option) from error


def describe(error: BaseException) -> str:
    """An error of any kind in one line; one that is no message of ours starts with its type."""
    if isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, RuntimeError | ValueError | OSError | MemoryError) and str(error):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def complain(message: str) -> None:
    """Print one line on stderr."""
    click.echo(f"supernode: error: {' '.join(message.split())}", err=True)


def warn(message: str) -> None:
    """Print one line on stderr about something that does not end the run."""
    click.echo(f"supernode: warning: {' '.join(message.split())}", err=True)
