"""Card memory: an allocator per card and handles of arrays in it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hdl.layouts import ADDRESS_BITS

from .backend import Backend
from .dtypes import ElementType

__all__ = ["Allocator", "Array", "OutOfMemoryError"]


class OutOfMemoryError(MemoryError):
    """A card has no room for an allocation."""


class Allocator:
    """First fit over the bytes ``start`` … ``end`` − 1 of one card.

    Allocations are whole multiples of ``align`` (a power of two), so that two of them never share
    a packet or a flit, and an allocation of 0 bytes has an address of its own too.
    """

    def __init__(self, name: str, start: int, end: int, *, align: int) -> None:
        if align < 1 or align & align - 1:
            raise ValueError(f"align must be a power of two, not {align}")
        self._name = name
        self._align = align
        start = -(-start // align) * align
        self._size = max(0, end - start)
        #: (start, end) of every hole, in order.
        self._holes = [(start, end)] if end > start else []
        self._used: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        return sum(end - start for start, end in self._holes)

    def allocate(self, size: int) -> int:
        """Return the offset of ``size`` fresh bytes.

        Raises
        ------
        OutOfMemoryError
            If no hole is large enough.
        """
        if size < 0:
            raise ValueError(f"size must be at least 0, not {size}")
        taken = max(1, -(-size // self._align)) * self._align
        for index, (start, end) in enumerate(self._holes):
            if end - start >= taken:
                self._holes[index:index + 1] = [(start + taken, end)] if end > start + taken else []
                self._used[start] = taken
                return start
        largest = max((end - start for start, end in self._holes), default=0)
        raise OutOfMemoryError(f"{self._name} has no room for {size} bytes: {self.free_bytes} of "
                               f"{self._size} are free, {largest} in one piece")

    def free(self, offset: int) -> None:
        """Give back what :meth:`allocate` returned.

        Raises
        ------
        ValueError
            If nothing is allocated there.
        """
        try:
            size = self._used.pop(offset)
        except KeyError:
            raise ValueError(f"{self._name} has no allocation at {offset:#x}") from None
        insort(self._holes, (offset, offset + size))
        merged: list[tuple[int, int]] = []
        for start, end in self._holes:
            if merged and merged[-1][1] == start:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        self._holes = merged

    def to_state(self) -> dict[str, Any]:
        """What is taken, as plain data."""
        return {"holes": [list(hole) for hole in self._holes],
                "used": [list(item) for item in self._used.items()]}

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Be as the allocator was whose :meth:`to_state` this is."""
        self._holes = [(start, end) for start, end in state["holes"]]
        self._used = dict(state["used"])


@dataclass(frozen=True)
class Array:
    """Elements in the memory of one card, row-major and without gaps.

    Attributes
    ----------
    card : int
        Rank of the card.
    offset : int
        Byte offset in its memory.
    node : int
        Node id of the card.
    """

    card: int
    offset: int
    shape: tuple[int, ...]
    dtype: ElementType
    node: int
    _backend: Backend = field(repr=False, compare=False)

    @property
    def address(self) -> int:
        """Global address: node id and offset."""
        return self.node << ADDRESS_BITS | self.offset

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    def write(self, values: np.ndarray) -> Array:
        """Store ``values`` from the host, now, and return this array.

        Raises
        ------
        ValueError
            If shape or type differ: conversion is the caller's decision.
        """
        values = np.asarray(values)
        if values.dtype != self.dtype.numpy or values.shape != self.shape:
            raise ValueError(f"an array {self.dtype}{list(self.shape)} takes values of type "
                             f"{self.dtype.numpy} and that shape, not {values.dtype} "
                             f"{list(values.shape)}")
        if self.nbytes:
            raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            self._backend.memory_write(self.card, self.offset, raw)
        return self

    def read(self) -> np.ndarray:
        """Return a copy of the elements, as they are in memory now."""
        if not self.nbytes:
            return np.empty(self.shape, self.dtype.numpy)
        raw = self._backend.memory_read(self.card, self.offset, self.nbytes)
        return np.asarray(raw, np.uint8).view(self.dtype.numpy).reshape(self.shape)

    def view(self, start: int, shape: int | tuple[int, ...]) -> Array:
        """Elements from ``start`` on, counted in row-major order, as an array of ``shape``.

        Raises
        ------
        ValueError
            If they are not all in this array.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if start < 0 or min(shape, default=0) < 0 or start + prod(shape) > self.size:
            raise ValueError(f"an array of {self.size} elements has no {list(shape)} at {start}")
        return Array(self.card, self.offset + start * self.dtype.size, shape, self.dtype, self.node,
                     self._backend)

    def reshape(self, *shape: int) -> Array:
        """The same elements with another shape."""
        if prod(shape) != self.size:
            raise ValueError(f"an array of {self.size} elements has no shape {list(shape)}")
        return self.view(0, shape)
