"""What ranks tell each other while time passes.

Per window: a rank runs its border nodes, those with links to other ranks, sends each neighbouring
rank one message with the words for its nodes, runs the others, and takes in what it was sent. A
message is the records of an outbox as they are (``engine/mail.hpp``): the number of a link, the
cycle of arrival, the word. If nothing leaves it is empty.

Per boundary of the host: all agree on the smallest of five numbers (``engine/peers.hpp``), from
which each concludes the same: conditions hold, nothing can happen any more, or how far time can
jump.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emu.library import AGREE, CALL, VOTE, Peers

from .world import World

__all__ = ["Exchange"]


class Exchange:
    """The peers of one engine.

    Parameters
    ----------
    world : World
    library, fabric :
        The engine.
    room : mapping
        Of each neighbouring rank, the longest message in bytes.
    """

    def __init__(self, world: World, library: Any, fabric: int, room: Mapping[int, int]) -> None:
        self._world, self._library, self._fabric = world, library, fabric
        self._buffers = {rank: np.zeros(max(size, 8), np.uint8) for rank, size in room.items()}
        self._sent: list[Any] = []
        self._awaited: dict[int, Any] = {}
        #: For the engine; they must live as long as it.
        self.peers = Peers(
            AGREE(self._guarded(self._agree)), CALL(self._guarded(self._send)),
            CALL(self._guarded(self._receive)))

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                function(*arguments)
            except BaseException as error:  # nothing may pass through the engine
                self._world.abort(str(error) or type(error).__name__)
            return 0
        return call

    def _agree(self, vote: Any) -> None:
        numbers = np.ctypeslib.as_array(vote, (VOTE,))
        mpi = self._world.mpi
        request = self._world.words.Iallreduce(mpi.IN_PLACE, numbers, mpi.MIN)
        self._world.wait(request.Test)

    def _send(self) -> None:
        words, mpi = self._world.words, self._world.mpi
        self._awaited = {rank: words.Irecv(buffer, rank) for rank, buffer in self._buffers.items()}
        data = ctypes.c_void_p()
        for rank in self._buffers:
            size = self._library.sn_mail(self._fabric, rank, data)
            message = mpi.buffer.fromaddress(data.value or 0, size, readonly=True)
            self._sent.append(words.Isend([message, mpi.BYTE], rank))

    def _receive(self) -> None:
        mpi = self._world.mpi
        requests = [*self._awaited.values(), *self._sent]
        statuses = [mpi.Status() for _ in requests]
        self._world.wait(lambda: mpi.Request.Testall(requests, statuses))
        for rank, status in zip(self._awaited, statuses, strict=False):
            size = status.Get_count(mpi.BYTE)
            if self._library.sn_give(self._fabric, self._buffers[rank].ctypes.data, size) < 0:
                raise RuntimeError(self._library.sn_error(self._fabric).decode())
        self._sent = []
