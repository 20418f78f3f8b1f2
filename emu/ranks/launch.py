"""Starting the ranks of a command: ``--ranks R`` is ``mpiexec -n R`` with the same command.

What mpiexec says when a rank dies is turned into one line; it ends the other ranks by itself.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import IO, Any

from . import world_size

__all__ = ["RankDied", "launch", "needs_launch"]

_BANNER = "=   BAD TERMINATION"
#: Lines of mpiexec and of MPI's abort, which the banner or a rank's own message says better.
_NOISE = re.compile(r"\[mpiexec@|\[proxy:|Abort\(\d+\) on node|={20,}$")


class RankDied(RuntimeError):
    """A rank ended without saying why."""


def needs_launch(ranks: int | None) -> bool:
    """Whether so many ranks are still to be started.

    Raises
    ------
    ValueError
        If others than these were started already, or MPI is not installed.
    """
    started = world_size()
    if ranks is None or ranks == started:
        return False
    if started > 1:
        raise ValueError(f"{ranks} ranks are asked for and {started} were started")
    if find_spec("mpi4py") is None or _mpiexec() is None:
        raise ValueError(f"{ranks} ranks need MPI: accepted is 1, or install "
                         "'supernode-emulator[mpi]'")
    return True


#: What the ranks run.
COMMAND_LINE = (sys.executable, "-c", "from emu.cli import main; main()")


def launch(ranks: int, arguments: Sequence[str], program: Sequence[str] = COMMAND_LINE) -> int:
    """Run a program, by default the command line, on so many ranks; return its exit status.

    Raises
    ------
    RankDied
        If a rank was killed.
    """
    command = [str(_mpiexec()), "-n", str(ranks), *program, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", bufsize=1)
    last_words: list[str] = []
    pumps = [Thread(target=_pump, args=(source, sink, last_words), daemon=True)
             for source, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))]
    for pump in pumps:
        pump.start()
    # A terminal's interrupt reaches mpiexec too, which passes it on; rank 0 says what comes of it.
    handlers = {number: signal.signal(number, _passing_on(process, number))
                for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with process:
            for pump in pumps:
                pump.join()
        status = process.returncode
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if last_words:
        text = "\n".join(last_words)
        who = re.search(r"PID (\d+)", text)
        why = re.search(r"EXIT STRING: (.*)", text)
        raise RankDied(f"a rank{f', process {who[1]},' if who else ''} died"
                       f"{f': {why[1]}' if why else ''}; the run is over on all {ranks} ranks")
    return status


def _passing_on(process: subprocess.Popen[str], number: int) -> Callable[..., None]:
    def handle(*_: Any) -> None:
        # In a terminal, mpiexec hears an interrupt itself; a second one makes it end its ranks.
        if number != signal.SIGINT or not sys.stdin.isatty():
            process.send_signal(number)
    return handle


def _pump(source: IO[str] | None, sink: IO[str], last_words: list[str]) -> None:
    """Pass lines on, and keep what mpiexec says of a rank that died."""
    ended = False
    for line in source or ():
        ended = ended or line.startswith(_BANNER)
        if ended:
            last_words.append(line)
        elif not _NOISE.match(line):
            sink.write(line)
            sink.flush()


def _mpiexec() -> str | None:
    """The one that was installed beside this Python, or another."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")
