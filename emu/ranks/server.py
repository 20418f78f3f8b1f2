"""What a rank does: rank 0 runs the command, the others do what it asks for, until it ends."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable

from .fabric import ShardFabric
from .world import World, world

__all__ = ["run_shared"]


def run_shared(main: Callable[[], int]) -> int:
    """Run ``main`` on rank 0 and serve it on the others; return the exit status."""
    ranks = world()
    if ranks.rank:
        _serve(ranks)
        return 0
    try:
        return main()
    finally:
        ranks.leave()


def _serve(ranks: World) -> None:
    # Rank 0 decides what an interrupt means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fabric: ShardFabric | None = None
    while True:
        name, arguments = ranks.command()
        if name == "leave":
            return
        try:
            if name == "open":
                kinds, links, options = arguments
                fabric = ShardFabric(kinds, links, **options)
                value = None
            elif fabric is None:
                raise RuntimeError("there is no machine")
            else:
                value = getattr(fabric, name)(*arguments)
        except Exception as problem:
            ranks.answer(_portable(problem))
        else:
            ranks.answer(None, value)


def _portable(problem: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        return RuntimeError(f"{type(problem).__name__}: {problem}")
    return problem
