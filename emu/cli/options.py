"""Options that several commands share, and their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from drivers.dtypes import DTYPES
from emu.shards import LANE_COUNTS
from hdl.params import PRESETS

from .output import JSON_OUTPUT

__all__ = ["SIZE", "NamingGroup", "choose", "common", "elements", "run_ranks", "scale_options"]

Function = TypeVar("Function", bound=Callable[..., Any])

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class NamingGroup(click.Group):
    """A group that answers an unknown command with the known ones."""

    def resolve_command(self, ctx: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"unknown command {args[0]!r}: accepted are "
                     f"{', '.join(self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


class Size(click.ParamType):
    """A number of bytes ≥ 0, with an optional unit of powers of 1024: 512, 64K, 1M, 1MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", value, re.IGNORECASE | re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a size: accepted are bytes ≥ 0, with K, M or G for powers "
                      "of 1024", param, ctx)
        return int(match[1]) * UNITS[match[2].upper()]


SIZE = Size()


def common(function: Function) -> Function:
    """Add what every command has: ``--json``, ``--seed`` and ``--preset``."""
    for option in (
        click.option("--preset", type=click.Choice(tuple(PRESETS)), default="default",
                     show_default=True, help="Parameters of every card."),
        click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
                     metavar="N", help="Seed of everything random."),
        click.option("--json", "json_output", type=JSON_OUTPUT, metavar="FILE|-",
                     help="Write the result as JSON; '-' is standard output."),
    ):
        function = option(function)
    return function


def scale_options(function: Function) -> Function:
    """Add ``--threads``, ``--ranks`` and ``--lanes``."""
    for option in (
        click.option("--lanes", type=click.Choice([str(count) for count in (1, *LANE_COUNTS)]),
                     metavar="{1,64,128,256,512}",
                     callback=lambda context, parameter, value: value and int(value),
                     help="Nodes that share a lane-parallel model, 1 for models by Verilator; "
                     "results do not depend on it.  [default: what is faster]"),
        click.option("--ranks", type=click.IntRange(1), metavar="R",
                     help="Processes that share the nodes, started by mpiexec; results do not "
                     "depend on it.  [default: 1]"),
        click.option("--threads", type=click.IntRange(1), metavar="N",
                     help="Threads that run the nodes of a process; results do not depend on it.  "
                     "[default: one per processor, fewer on small machines]"),
    ):
        function = option(function)
    return function


def run_ranks(ranks: int | None) -> None:
    """End this process with what the same command gives on so many ranks, if they are still to be
    started."""
    from emu.ranks.launch import launch, needs_launch

    from .errors import usage

    with usage("--ranks"):
        wanted = needs_launch(ranks)
    if wanted:
        context = click.get_current_context()
        context.exit(launch(ranks or 1, context.find_root().obj))


def choose(option: str, value: str, accepted: Sequence[str]) -> str:
    """Return ``value`` if it is accepted.

    Raises
    ------
    click.BadParameter
        If it is not, with what is.
    """
    if value not in accepted:
        raise click.BadParameter(f"{value!r} is not supported here: accepted are "
                                 f"{', '.join(accepted)}", param_hint=option)
    return value


def elements(size: int, dtype: str) -> int:
    """How many elements of the type called ``dtype`` make ``size`` bytes.

    Raises
    ------
    click.BadParameter
        If no whole number of them does.
    """
    item = DTYPES[dtype].size
    if size % item:
        raise click.BadParameter(f"{size} is not a multiple of the size of {dtype}, {item} bytes",
                                 param_hint="--bytes")
    return size // item
