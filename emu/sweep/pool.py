"""Runs in processes of their own, on this machine or a Dask cluster.

Every process has one run at a time, and gets the next one when it has ended: an engine has a
processor to itself, and a process that dies takes no more than its own run with it. On this machine
such a run is *lost* and not tried again; a cluster's scheduler tries it elsewhere, as often as it
is configured to.
"""

from __future__ import annotations

import logging
import signal
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
from distributed import Client, Future, LocalCluster, Worker, WorkerPlugin, as_completed
from distributed.scheduler import KilledWorker

__all__ = ["LostRun", "NoCluster", "processes"]

#: Seconds to wait for a scheduler, and for a process to run on.
PATIENCE_S = 20
_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    # A run fills a process for minutes: neither ticks nor moved work say anything.
    "distributed.admin.tick.limit": "1h",
    "distributed.scheduler.work-stealing": False,
    "distributed.comm.timeouts.connect": f"{PATIENCE_S}s",
}

#: A function that does not raise, on all of these: batches of (index, what it returned, or
#: :class:`LostRun`) as they end.
Spread = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]],
                  Iterator[list[tuple[int, Any]]]]


class NoCluster(RuntimeError):
    """There are no processes to run on."""


class LostRun(RuntimeError):
    """The process of a run ended before the run did."""


@contextmanager
def processes(workers: int, scheduler: str | None = None) -> Iterator[Spread]:
    """Start ``workers`` processes, or use those of the cluster at ``scheduler``.

    Raises
    ------
    NoCluster
        If nobody answers there, or no process comes up.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_SETTINGS))
        client = stack.enter_context(_client(stack, workers, scheduler))
        yield lambda function, jobs: _spread(client, function, jobs)


def _client(stack: ExitStack, workers: int, scheduler: str | None) -> Client:
    if scheduler is None:
        cluster = stack.enter_context(LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, memory_limit=None,
            dashboard_address=None, silence_logs=logging.CRITICAL))
        client = Client(cluster)
        client.register_plugin(_Deaf())
        return client
    try:
        return Client(scheduler, timeout=PATIENCE_S)
    except (OSError, ValueError) as error:
        raise NoCluster(f"no Dask scheduler answers at {scheduler!r}: {error}") from error


class _Deaf(WorkerPlugin):
    """An interrupt on the terminal reaches every process; it is for the one that started them."""

    def setup(self, worker: Worker) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _spread(client: Client, function: Callable[..., Any],
            jobs: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[int, Any]]]:
    waiting = deque(enumerate(jobs))
    running: dict[Future, tuple[int, str]] = {}
    ended = as_completed()
    while waiting or running:
        busy = {address for _, address in running.values()}
        for address in client.nthreads():
            if waiting and address not in busy:
                index, job = waiting.popleft()
                future = client.submit(function, *job, pure=False, workers=[address],
                                       allow_other_workers=True)
                running[future] = index, address
                ended.add(future)
        if not running:
            _await_process(client)
            continue
        yield [(running.pop(future)[0], _outcome(future)) for future in ended.next_batch()]


def _await_process(client: Client) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_S)
    except TimeoutError as error:
        raise NoCluster(f"no process to run on within {PATIENCE_S} s") from error


def _outcome(future: Future) -> Any:
    """What a run returned, or why it did not."""
    try:
        return future.result()
    except KilledWorker:
        return LostRun("its process ended before it: killed, crashed or out of memory")
    except (Exception, CancelledError) as error:
        # Runs do not raise: the cluster did, and the others would fare no better.
        raise NoCluster(f"runs cannot be run there: {type(error).__name__}: {error}") from error
