"""Card memory: reserved in full, backed by pages only where it is touched."""

from __future__ import annotations

import mmap

import numpy as np

__all__ = ["CardMemory"]

#: Not in the ``mmap`` module of every supported Python; the value is Linux's on all machines
#: that matter here.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class CardMemory:
    """Zeroed memory that an engine and numpy views share.

    It lives as long as any view of it does, whatever became of the engine.

    Raises
    ------
    MemoryError
        If the address space cannot be reserved.
    """

    def __init__(self, size: int) -> None:
        try:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
                                  | _MAP_NORESERVE)
        except OSError as error:
            raise MemoryError(f"cannot reserve {size} bytes of card memory: "
                              f"{error.strerror}") from error
        self.view = np.frombuffer(self._map, dtype=np.uint8)

    @property
    def address(self) -> int:
        """Where the memory is in this process."""
        return self.view.ctypes.data
