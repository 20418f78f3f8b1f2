"""Plain data of dataclasses come back as what they were, and make nothing else."""

from __future__ import annotations

import json

import pytest

from drivers.commands import Command, CompletionRecord
from drivers.plain import from_plain, to_plain
from emu.faults import BitErrors, Faults, Outage
from hdl.layouts import Op, Status
from hdl.params import PRESETS, CardParams


@pytest.mark.parametrize("value", [
    *PRESETS.values(),
    Command(op=Op.WRITE, wait=(3, 7), address=1 << 40),
    CompletionRecord(1, 2, Op.GEMM, Status.OK, 4, 5, 6, 7, 8, 9),
    CompletionRecord(1, 2, 77, Status.OK, 4, 5, 6, 7, 8, 9),
    Faults(errors=BitErrors(rate=1e-3), links={(0, 1): BitErrors(rate=0.5, burst=3)},
           outages=[Outage(node=0, port=1, start=4), Outage(node=1, port=0, start=4, end=9)]),
], ids=repr)
def test_what_went_through_json_is_equal(value):
    assert from_plain(type(value), json.loads(json.dumps(to_plain(value)))) == value


@pytest.mark.parametrize("change", [
    {"host_quantum": "64"}, {"host_quantum": None}, {"host_quantum": True}, {"router": 3},
    {"router": {}}, {"another": 1}, {"memory": {"latency": 64, "size": 1}}])
def test_other_data_are_refused(change):
    data = to_plain(PRESETS["default"]) | change
    with pytest.raises(ValueError, match="is no "):
        from_plain(CardParams, data)


def test_code_and_unknown_objects_are_refused():
    for value in (print, object(), {"a": object()}, [lambda: None]):
        with pytest.raises(TypeError, match="is no plain data"):
            to_plain(value)
