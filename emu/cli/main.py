"""The command group, and the one place where exceptions become messages and exit statuses."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from emu.version import product_version

from .bench import bench
from .build import build
from .clean import clean
from .demo import demo
from .doctor import doctor
from .errors import complain
from .options import NamingGroup
from .resume import resume
from .run import run
from .sweep import sweep
from .topology import topology
from .traffic import traffic
from .verilog import verilog

__all__ = ["cli", "main"]

INTERRUPTED = 130


@click.group(cls=NamingGroup, context_settings={"help_option_names": ["-h", "--help"],
                                                "max_content_width": 100})
@click.version_option(product_version(), prog_name="supernode")
def cli() -> None:
    """A supernode in RTL, emulated cycle by cycle: cards, links, GEMMs and collectives."""


for _command in (demo, run, resume, bench, sweep, topology, traffic, verilog, build, doctor, clean):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    sys.exit(_status(args))


def _status(args: Sequence[str] | None, *, shared: bool = False) -> int:
    from drivers.backend import StallError, WaitTimeout
    from drivers.handle import OperationError
    from emu.cache import BuildError
    from emu.checkpoint import CheckpointError
    from emu.emulator import EngineError
    from emu.ranks import world_size
    from emu.ranks.launch import RankDied
    from emu.toolchain import ToolchainError

    if world_size() > 1 and not shared:
        from emu.ranks.server import run_shared

        return run_shared(lambda: _status(args, shared=True))
    try:
        return cli.main(args, prog_name="supernode", standalone_mode=False,
                        obj=sys.argv[1:] if args is None else list(args)) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        if error.errno == errno.EPIPE:
            # The reader left; nothing more can be said to it, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        complain(str(error))
        return 1
    except (BuildError, CheckpointError, EngineError, OperationError, RankDied, StallError,
            ToolchainError, WaitTimeout, ValueError, MemoryError) as error:
        complain(str(error) or type(error).__name__)
        return 1
