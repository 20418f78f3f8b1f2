"""``supernode run``: one workload on random data, verified bit for bit against an oracle."""

from __future__ import annotations

import click

from .collectives import COMMANDS
from .gemm import gemm
from .options import NamingGroup
from .p2p import p2p

__all__ = ["run"]


@click.group(cls=NamingGroup)
def run() -> None:
    """Run a workload on random data and verify its results."""


for _command in (gemm, *COMMANDS, p2p):
    run.add_command(_command)
