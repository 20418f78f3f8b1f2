"""One run of a sweep: the parameters of a workload's command in a file instead of on its line.

A parameter is called as the option is, without its dashes, and is checked by the same code; options
that name files to write are not accepted, nor are those that make more than one run of a command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from .errors import describe
from .output import Kept, OutputType
from .plan import Plan, Workload
from .run import run
from .status import silent
from .traffic import traffic

__all__ = ["TEXT", "Point", "column", "execute", "make_point", "workloads"]

#: Options that write files, or make a curve, which is many runs.
_APART = ("sweep", "resolution", "waves", "waves-dir", "checkpoint-every", "resume", "ranks")
#: An engine has its process to itself, and processes are what a sweep spreads over processors.
_DEFAULTS = {"threads": 1}


@dataclass(frozen=True)
class Point:
    """A run that the command accepts."""

    workload: str
    #: Of the command.
    arguments: tuple[str, ...]
    #: All parameters, by name of the option, as the command understands them.
    parameters: Mapping[str, Any]
    plan: Plan = field(repr=False)

    @property
    def identity(self) -> str:
        """The canonical form of what is run."""
        return json.dumps({"workload": self.workload, **self.parameters}, sort_keys=True,
                          ensure_ascii=False)


def column(key: str) -> str:
    """What the table calls a parameter."""
    return key.replace("-", "_")


def workloads() -> dict[str, Workload]:
    """Commands that a sweep can run, by name."""
    found = {name: command for name, command in run.commands.items()
             if isinstance(command, Workload)}
    return {**found, "traffic": traffic}


def make_point(workload: str, values: Mapping[str, Any]) -> Point:
    """Check a run's parameters as the command does.

    Raises
    ------
    ValueError, click.UsageError
        If one is not accepted, with what is.
    """
    known = workloads()
    if workload not in known:
        raise ValueError(f"unknown workload {workload!r}: accepted are {', '.join(known)}")
    command = known[workload]
    options = _options(command)
    for key in values:
        if key not in options:
            raise ValueError(f"{workload} has no parameter {key!r}: accepted are "
                             f"{', '.join(options)}")
    defaults = {key: value for key, value in _DEFAULTS.items() if key in options}
    arguments = tuple(argument for key, value in {**defaults, **values}.items()
                      for argument in _arguments(key, value, options[key]))
    context = _context(command, workload, arguments, Kept())
    parameters = {key: context.params[option.name or key] for key, option in options.items()}
    return Point(workload, arguments, parameters, command.plan(context))


def execute(workload: str, arguments: tuple[str, ...]) -> tuple[dict[str, Any], str | None]:
    """Run a point; return its figures and its error, if it has one."""
    command, kept = workloads()[workload], Kept()
    try:
        with silent():
            command.plan(_context(command, workload, arguments, kept)).run()
    except Exception as error:  # of any kind: a run that fails is a result of a sweep
        return kept.values, describe(error)
    return kept.values, None


def _context(command: Workload, name: str, arguments: tuple[str, ...],
             kept: Kept) -> click.Context:
    context = command.make_context(name, list(arguments))
    context.params["json_output"] = kept
    return context


def _options(command: Workload) -> dict[str, click.Option]:
    """Parameters that a run may have: options, by their names without dashes."""
    found = {}
    for option in command.params:
        if isinstance(option, click.Option) and not isinstance(option.type, OutputType):
            key = max(option.opts, key=len).removeprefix("--")
            if key not in _APART:
                found[key] = option
    return found


def _arguments(key: str, value: Any, option: click.Option) -> list[str]:
    """The words of the command line that give ``option`` a value."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError(f"{key!r} must be true or false, not {value!r}")
        return [f"--{key}"] if value else list(option.secondary_opts[:1])
    if option.multiple:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError(f"{key!r} must be a list of texts, not {value!r}")
        return [f"--{key}={each}" for each in value]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{key!r} must be a text or a number, not {value!r}")
    return [f"--{key}={value}"]


def _texts() -> frozenset[str]:
    kinds = (click.types.StringParamType, click.Choice)
    return frozenset(
        column(key) for command in workloads().values()
        for key, option in _options(command).items() if isinstance(option.type, kinds))


#: Columns of text in a table of results.
TEXT = _texts() | {"outcome"}
