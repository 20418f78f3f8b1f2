"""The allocator and the handles of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.dtypes import DTYPES, element_type
from drivers.memory import Allocator, OutOfMemoryError
from drivers.supernode import SuperNode
from hdl.params import preset
from hdl.topology import parse

from .model import ModelBackend


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 900), st.integers(0, 30)), max_size=60),
       st.integers(0, 300), st.integers(300, 8000))
def test_allocations_are_aligned_disjoint_in_range_and_all_come_back(actions, start, end):
    allocator = Allocator("card 0", start, end, align=64)
    whole = allocator.free_bytes
    live: dict[int, int] = {}
    for free, size, pick in actions:
        if free and live:
            offset = sorted(live)[pick % len(live)]
            del live[offset]
            allocator.free(offset)
            continue
        try:
            offset = allocator.allocate(size)
        except OutOfMemoryError:
            continue
        assert offset % 64 == 0 and offset >= start and offset + size <= end
        assert all(offset + max(size, 1) <= other or other + max(length, 1) <= offset
                   for other, length in live.items())
        live[offset] = size
    for offset in live:
        allocator.free(offset)
    assert allocator.free_bytes == whole


def test_holes_grow_together_again():
    allocator = Allocator("card 0", 0, 256, align=64)
    offsets = [allocator.allocate(64) for _ in range(4)]
    for offset in (offsets[1], offsets[3], offsets[0], offsets[2]):
        allocator.free(offset)
    assert allocator.allocate(256) == 0


def test_running_out_of_memory_names_the_card_and_the_sizes():
    allocator = Allocator("card 3", 0, 1000, align=64)
    allocator.allocate(100)
    with pytest.raises(OutOfMemoryError, match="card 3 has no room for 5000 bytes: 872 of 1000 "
                                               "are free, 872 in one piece"):
        allocator.allocate(5000)


def test_freeing_what_is_not_allocated_is_refused():
    allocator = Allocator("card 0", 0, 1024, align=64)
    offset = allocator.allocate(10)
    allocator.free(offset)
    for wrong in (offset, offset + 64):
        with pytest.raises(ValueError, match="no allocation at"):
            allocator.free(wrong)
    with pytest.raises(ValueError, match="power of two"):
        Allocator("card 0", 0, 1024, align=48)


@pytest.fixture
def supernode():
    return SuperNode(ModelBackend(parse("ring:3"), preset("small")))


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_return_what_was_written(supernode, dtype):
    values = np.arange(24).reshape(2, 3, 4).astype(np.float32).astype(element_type(dtype).numpy)
    array = supernode.malloc((2, 3, 4), dtype, 1).write(values)
    assert array.read().tobytes() == values.tobytes()
    assert array.read().shape == (2, 3, 4) and array.read().dtype == values.dtype
    assert array.nbytes == values.nbytes


def test_addresses_hold_node_and_offset(supernode):
    array = supernode.malloc(4, "f32", 2)
    assert array.address == 2 << 48 | array.offset
    assert array.view(1, 2).address == array.address + 4


def test_views_are_elements_of_the_array(supernode):
    array = supernode.malloc((4, 5), "i32", 0).write(np.arange(20, dtype=np.int32).reshape(4, 5))
    assert array.view(7, (2, 3)).read().tolist() == [[7, 8, 9], [10, 11, 12]]
    array.view(19, 1).write(np.array([-1], np.int32))
    assert array.read()[3, 4] == -1
    assert array.reshape(20).shape == (20,)
    for start, shape in ((-1, 1), (0, 21), (20, 1), (0, (-1,))):
        with pytest.raises(ValueError, match="has no"):
            array.view(start, shape)


def test_writing_another_type_or_shape_is_refused_rather_than_converted(supernode):
    array = supernode.malloc((2, 2), "f32", 0)
    for values in (np.zeros((2, 2)), np.zeros(4, np.float32)):
        with pytest.raises(ValueError, match=r"takes values of type float32"):
            array.write(values)


def test_empty_arrays_have_addresses_and_can_be_read_written_and_freed(supernode):
    array, other = supernode.malloc((0, 3), "f32", 0), supernode.malloc(0, "f32", 0)
    assert array.offset != other.offset
    assert array.write(np.zeros((0, 3), np.float32)).read().shape == (0, 3)
    supernode.free(array, other)


@pytest.mark.parametrize(("arguments", "text"), [
    ((4, "f64", 0), "unknown dtype 'f64': accepted are f32, bf16"),
    ((-1, "f32", 0), "at least 0"), ((4, "f32", 3), "has no card 3: cards are 0 to 2"),
    ((4, "f32", -1), "has no card -1")])
def test_wrong_allocations_are_refused_by_name(supernode, arguments, text):
    with pytest.raises(ValueError, match=text):
        supernode.malloc(*arguments)
