"""Results against an oracle's, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Verdict", "compare"]


@dataclass(frozen=True)
class Verdict:
    """How many of ``values`` results differ from the oracle's, and where the first one is."""

    values: int
    mismatches: int
    first: str = ""


def compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Verdict:
    """Compare one array per card with the oracle's, bit for bit."""
    values = mismatches = 0
    first = ""
    for card, (got, want) in enumerate(zip(found, expected, strict=True)):
        if got.dtype != want.dtype or got.shape != want.shape:
            raise ValueError(f"card {card}: {got.dtype} {got.shape} cannot be compared with "
                             f"{want.dtype} {want.shape}")
        bits = f"u{got.dtype.itemsize}"
        wrong = np.flatnonzero(np.ascontiguousarray(got).view(bits).ravel()
                               != np.ascontiguousarray(want).view(bits).ravel())
        values += got.size
        mismatches += len(wrong)
        if len(wrong) and not first:
            first = (f"card {card}, element {wrong[0]}: {got.ravel()[wrong[0]]} instead of "
                     f"{want.ravel()[wrong[0]]}")
    return Verdict(values, mismatches, first)
