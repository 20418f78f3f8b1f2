"""What processes run in tests: functions that another process can import."""

from __future__ import annotations

import os
import signal
import time


def work(name: str) -> tuple[str, int, float, float, bool]:
    """Say who ran it, from when to when, and whether an interrupt would end it; ``die`` dies."""
    if name == "die":
        os._exit(3)
    start = time.monotonic()
    total = sum(range(200_000))
    assert total
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return name, os.getpid(), start, time.monotonic(), deaf
