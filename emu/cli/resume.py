"""``supernode resume``: a run goes on from its checkpoint, to its end."""

from __future__ import annotations

from pathlib import Path

import click

from emu.checkpoint import CheckpointError

from .checkpoints import read_command
from .run import run

__all__ = ["resume"]


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--checkpoint", metavar="FILE",
              help="Where the run goes on saving the machine.  [default: the file it came from]")
@click.option("--checkpoint-every", metavar="CYCLES",
              help="Cycles from one checkpoint to the next.  [default: as before]")
@click.option("--window", metavar="CYCLES",
              help="Cycles that a card runs ahead; results do not depend on it.")
@click.option("--threads", metavar="N",
              help="Threads that run the machine; results do not depend on them.")
@click.option("--json", metavar="FILE|-",
              help="Write the result as JSON; '-' is standard output.")
@click.pass_context
def resume(context: click.Context, file: str, **options: str | None) -> None:
    """Take up a run of 'supernode run … --checkpoint FILE' where FILE was saved, bring it to its
    end, and verify and report as that run would have."""
    try:
        name, *words = read_command(Path(file))
        workload = run.get_command(context, name)
        if workload is None:
            raise CheckpointError(f"checkpoint {file} is of the workload {name!r}, which this "
                                  "version does not have")
        for option, value in {"checkpoint": file, **_given(options)}.items():
            words += [f"--{option.replace('_', '-')}", value]
        with workload.make_context(name, [*words, "--resume", file], parent=context) as inner:
            workload.invoke(inner)
    except CheckpointError as error:
        raise click.BadParameter(str(error), param_hint="FILE") from error


def _given(options: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value is not None}
