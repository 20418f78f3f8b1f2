"""The part of a reserved memory that holds something: its blocks that are not zero.

Most of a card's memory is reserved and never touched, and to look at it would touch it. The kernel
knows which pages are there (``/proc/self/pagemap``); of these, blocks of zeros are left out too.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

__all__ = ["BLOCK", "pack_memory", "unpack_memory"]

#: Bytes of a block; a memory has a whole number of them.
BLOCK = 4096
#: Blocks that are looked at together.
_BATCH = 4096
#: A page is in memory, or swapped out.
_THERE = np.uint64(3 << 62)
_PAGEMAP = Path("/proc/self/pagemap")


def pack_memory(view: np.ndarray) -> bytes:
    """The number of blocks that hold something, their numbers, and what they hold."""
    blocks = view.reshape(-1, BLOCK)
    numbers, contents = [], []
    there = _touched(view)
    for start in range(0, len(there), _BATCH):
        candidates = there[start:start + _BATCH]
        held = blocks[candidates]
        some = held.view("<u8").any(axis=1)
        numbers.append(candidates[some].astype("<u8"))
        contents.append(held[some])
    found = np.concatenate(numbers) if numbers else np.zeros(0, "<u8")
    return b"".join([len(found).to_bytes(8, "little"), found.tobytes(),
                     *(each.tobytes() for each in contents)])


def unpack_memory(data: bytes, view: np.ndarray) -> None:
    """Put back what :func:`pack_memory` found, into a memory of zeros.

    Raises
    ------
    ValueError
        If the memory has no such blocks.
    """
    count = int.from_bytes(data[:8], "little")
    if len(data) != 8 + count * (8 + BLOCK):
        raise ValueError(f"{len(data)} bytes do not hold {count} blocks of memory")
    numbers = np.frombuffer(data, "<u8", count, 8)
    blocks = view.reshape(-1, BLOCK)
    if count and numbers.max() >= len(blocks):
        raise ValueError(f"block {numbers.max()} lies beyond a memory of {len(blocks)} blocks")
    blocks[numbers] = np.frombuffer(data, np.uint8, offset=8 + 8 * count).reshape(count, BLOCK)


def _touched(view: np.ndarray) -> np.ndarray:
    """Numbers of the blocks of all pages that are there; of all blocks where nobody says."""
    page, address = mmap.PAGESIZE, view.ctypes.data
    pages = -(-view.size // page)
    try:
        with _PAGEMAP.open("rb") as file:
            file.seek(address // page * 8)
            raw = file.read(8 * pages)
    except OSError:
        raw = b""
    if address % page or len(raw) != 8 * pages:
        return np.arange(view.size // BLOCK)
    there = np.flatnonzero(np.frombuffer(raw, "<u8") & _THERE)
    each = max(1, page // BLOCK)
    numbers = (there[:, None] * each + np.arange(each)).ravel()
    return numbers[numbers < view.size // BLOCK]
