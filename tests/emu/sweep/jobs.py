"""What processes run in tests: functions that another process can import."""

from __future__ import annotations

import hashlib
import os
import signal
import time


def work(name: str) -> tuple[str, int, float, float, bool]:
    """Say who ran it, from when to when, and whether an interrupt would end it; ``die`` dies."""
    if name == "die":
        os._exit(3)
    start = time.monotonic()
    # Long beside the time from one run to the next, some longer than others, and beside the
    # interpreter's lock, as an engine runs.
    assert hashlib.sha256(bytes(100_000_000 if name in "ae" else 10_000_000)).digest()
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return name, os.getpid(), start, time.monotonic(), deaf
