"""The processes of a run: commands from rank 0 to the others, their answers, and the end.

Waiting is polite: a rank that waits looks often for a moment, then gives its processor away between
looks, so that ranks may outnumber processors.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NoReturn

__all__ = ["World", "world"]

#: Looks before a wait becomes polite, and seconds after which it sleeps between looks.
_LOOKS = 200
_AWAKE_S = 0.002
_NAP_S = 1e-4

_COMMAND, _ANSWER = 1, 2

#: What a rank is to do: a name and arguments.
Command = tuple[str, tuple[Any, ...]]


class World:
    """All ranks.

    Raises
    ------
    ModuleNotFoundError
        Without mpi4py.
    """

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi = MPI
        #: Words of windows, and votes, have a communicator of their own.
        self.words = MPI.COMM_WORLD.Dup()
        self._commands = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.words.rank, self.words.size
        #: Ranks on this computer.
        self.neighbours = self.words.Split_type(MPI.COMM_TYPE_SHARED).size

    def wait(self, done: Callable[[], Any]) -> Any:
        """Return what ``done`` returns once that is true."""
        for _ in range(_LOOKS):
            if result := done():
                return result
        end = time.monotonic() + _AWAKE_S
        while not (result := done()):
            if time.monotonic() < end:
                os.sched_yield()
            else:
                time.sleep(_NAP_S)
        return result

    # Of rank 0.

    def everywhere(self, name: str, *arguments: Any) -> dict[int, Command]:
        """One command for each of the other ranks."""
        return dict.fromkeys(range(1, self.size), (name, arguments))

    def send(self, commands: Mapping[int, Command]) -> None:
        """Let ranks do something; :meth:`answers` must follow."""
        for rank, command in commands.items():
            self._send(rank, _COMMAND, command)

    def answers(self, commands: Mapping[int, Command]) -> list[Any]:
        """What ranks answer to what was sent them.

        Raises
        ------
        Exception
            The first one that a rank raised.
        """
        found = [self._receive(rank, _ANSWER) for rank in commands]
        for problem, _ in found:
            if problem is not None:
                raise problem
        return [value for _, value in found]

    def call(self, commands: Mapping[int, Command]) -> list[Any]:
        """Let ranks do something and return what they answer."""
        self.send(commands)
        return self.answers(commands)

    def leave(self) -> None:
        """Let the other ranks end."""
        self.send(self.everywhere("leave"))

    # Of the others.

    def command(self) -> Command:
        """What rank 0 wants done."""
        return self._receive(0, _COMMAND)

    def answer(self, problem: Exception | None, value: Any = None) -> None:
        """Tell rank 0 what came of it."""
        self._send(0, _ANSWER, (problem, value))

    def abort(self, message: str) -> NoReturn:
        """End all ranks at once, because this one cannot go on in step with them."""
        print(f"supernode: error: rank {self.rank}: {' '.join(message.split())}", file=sys.stderr,
              flush=True)
        self.words.Abort(1)
        os._exit(1)

    def _send(self, rank: int, tag: int, value: Any) -> None:
        request = self._commands.isend(value, rank, tag)
        self.wait(lambda: request.Test())

    def _receive(self, rank: int, tag: int) -> Any:
        return self.wait(lambda: self._commands.improbe(rank, tag)).recv()


@cache
def world() -> World:
    """The processes that were started together with this one."""
    return World()
