"""``--checkpoint``: a run that saves the machine as it goes, and ``supernode resume``, which takes
one up again.

What a resumed run needs to know stands in the checkpoint: the workload and its options, and what
the workload had started. So the workload's command runs again from its beginning, with the machine
as it was saved in place of a new one, and with :func:`keep` giving back what was started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from emu.checkpoint import HOST, CheckpointError, CheckpointReader

from .errors import warn
from .output import OUTPUT, OutputFile

if TYPE_CHECKING:
    from drivers.supernode import SuperNode

    from .machine import Stopwatch

__all__ = ["Checkpoints", "checkpoint_options", "keep", "read_command", "saving"]

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")

_COMMAND, _WALL = "command", "wall_s"
_EVERY = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where a run saves its machine and how often, and what it goes on from."""

    file: OutputFile | None
    every: int | None
    resume: str | None

    def __post_init__(self) -> None:
        if self.every is not None and self.file is None:
            raise click.UsageError("--checkpoint-every needs --checkpoint, which says where to")


def checkpoint_options(function: Function) -> Function:
    """Add ``--checkpoint`` and ``--checkpoint-every``; and, for ``supernode resume``,
    ``--resume``."""
    for option in (
        click.option("--resume", type=str, hidden=True),
        click.option("--checkpoint-every", type=click.IntRange(1), metavar="CYCLES",
                     help=f"Cycles from one checkpoint to the next.  [default: {_EVERY}]"),
        click.option("--checkpoint", type=OUTPUT, metavar="FILE",
                     help="Save the machine to a file as the run goes on; 'supernode resume' takes "
                     "it up from there."),
    ):
        function = option(function)
    return function


def keep(checkpoints: Checkpoints, machine: SuperNode, name: str, make: Callable[[], T]) -> T:
    """What ``make`` returns, arrays and handles; in a resumed run, what it had returned."""
    if checkpoints.resume is None:
        machine.kept[name] = make()
    return machine.kept[name]


@contextmanager
def saving(checkpoints: Checkpoints, machine: SuperNode, shared: Collection[str],
           watch: Stopwatch) -> Iterator[None]:
    """Within it, waits save the machine. A checkpoint that cannot be written does not end the run.

    ``shared`` names the options that belong to all workloads.
    """
    if checkpoints.resume is not None:
        watch.earlier = machine.kept[_WALL]
    if checkpoints.file is None:
        yield
        return
    path = checkpoints.file.path
    machine.kept[_COMMAND] = _command(click.get_current_context(), shared)

    def save() -> None:
        machine.kept[_WALL] = watch.elapsed
        try:
            machine.save(path)
        except CheckpointError as error:
            warn(f"{error}; the run goes on")

    machine.save_every(checkpoints.every or _EVERY, save)
    try:
        yield
    finally:
        machine.save_every(0, save)


#: Of the shared options, those that say what runs and not how.
_WHAT = ("topology", "preset", "seed", "stall_rate", "link", "ber", "fail", "deadline",
         "checkpoint_every")


def _command(context: click.Context, shared: Collection[str]) -> list[str]:
    """The command as its name and the arguments that say what runs."""
    words = [context.command.name or ""]
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if value is None or (option.name in shared and option.name not in _WHAT):
            continue
        if getattr(option, "is_flag", False):
            words += [option.opts[0]] if value else []
        else:
            for each in value if isinstance(value, (list, tuple)) else (value,):
                words += [option.opts[0], str(each)]
    return words


def read_command(path: Path) -> list[str]:
    """The command in a checkpoint.

    Raises
    ------
    CheckpointError
        If the file is damaged, or no ``supernode run`` made it.
    """
    import json

    from drivers.state import kept_value

    with CheckpointReader(path) as file:
        host = json.loads(file.read(HOST))
    command = kept_value(host.get("machine", {}), _COMMAND)
    if not isinstance(command, list) or not command:
        raise CheckpointError(f"checkpoint {path} was not made by 'supernode run': emu.restore "
                              "restores it")
    return [str(word) for word in command]
