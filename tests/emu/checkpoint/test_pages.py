"""Of a reserved memory, what is there is kept and what is not costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from emu.checkpoint import pages
from emu.memory import CardMemory


@pytest.mark.parametrize("known", [True, False], ids=["by the kernel", "by looking"])
def test_blocks_that_hold_something_come_back_and_no_others_are_stored(monkeypatch, seed, known):
    if not known:
        monkeypatch.setattr(pages, "_PAGEMAP", pages.Path("/absent"))
    rng = np.random.default_rng(seed)
    memory, copy = CardMemory(64 << 20).view, CardMemory(64 << 20).view
    places = rng.choice(memory.size // pages.BLOCK, 5000, replace=False)
    for place in places:
        memory[place * pages.BLOCK + rng.integers(pages.BLOCK)] = rng.integers(1, 256)
    memory[0] = memory[-1] = 9
    memory[pages.BLOCK * places[7]:pages.BLOCK * (places[7] + 1)] = 0  # touched, and zero again
    packed = pages.pack_memory(memory)
    held = memory.reshape(-1, pages.BLOCK).any(axis=1).sum()
    assert len(packed) == 8 + held * (8 + pages.BLOCK)
    pages.unpack_memory(packed, copy)
    assert np.array_equal(memory, copy)


def test_a_memory_that_nobody_touched_is_empty_and_stays_untouched():
    memory = CardMemory(1 << 40).view
    assert pages.pack_memory(memory[:1 << 30]) == bytes(8)
    assert not len(pages._touched(memory[:1 << 30]))


def test_what_does_not_fit_is_refused():
    memory, smaller = CardMemory(1 << 20).view, CardMemory(1 << 16).view
    memory[-1] = 1
    packed = pages.pack_memory(memory)
    with pytest.raises(ValueError, match="block 255 lies beyond a memory of 16 blocks"):
        pages.unpack_memory(packed, smaller)
    with pytest.raises(ValueError, match="do not hold 1 blocks"):
        pages.unpack_memory(packed[:-1], memory)
