"""The oracle's arithmetic against the model of the hardware, which exact fractions have proved."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from drivers.dtypes import DTYPES, reducible
from drivers.group import OPERATORS
from emu.oracle import reduced
from hdl.compute.reduce import combine
from tests.hdl.compute.test_reduce import pairs


@pytest.mark.parametrize(("dtype", "op"), list(itertools.product(reducible(), OPERATORS)))
def test_a_reduction_is_the_hardware_s(dtype, op):
    kind = DTYPES[dtype]
    a, b = np.array(list(pairs(kind.code, random.Random(3), 20_000)), f"u{kind.size}").T.copy()
    found = reduced(op, a.view(kind.numpy), b.view(kind.numpy))
    assert found.dtype == kind.numpy
    assert found.tobytes() == combine(a, b, kind.code, OPERATORS[op]).tobytes()
