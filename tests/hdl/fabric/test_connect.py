"""The checked connect joins equal layouts and refuses all else in one line."""

from collections.abc import Iterator

import pytest
from amaranth.hdl import Fragment, Module
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect

LAYOUT = data.StructLayout({"x": 4, "y": 12})


class Code(enum.Enum, shape=16):
    ZERO = 0


@pytest.fixture
def m() -> Iterator[Module]:
    module = Module()
    yield module
    Fragment.get(module, None)  # a module that is never elaborated draws a warning


def port(member: wiring.Member) -> object:
    return wiring.Signature({"port": member}).create().port


def test_equal_layouts_are_joined(m: Module) -> None:
    same = data.StructLayout({"x": 4, "y": 12})
    connect(m, port(Out(stream.Signature(LAYOUT))), port(In(stream.Signature(same))))


@pytest.mark.parametrize("other", [
    data.StructLayout({"x": 12, "y": 4}), data.StructLayout({"a": 4, "b": 12}), 16, Code,
    data.ArrayLayout(8, 2)])
def test_layouts_of_equal_width_that_differ_are_refused(m: Module, other: object) -> None:
    with pytest.raises(TypeError, match=r"^cannot connect payload: layout .* is not .*$") as error:
        connect(m, port(Out(stream.Signature(LAYOUT))), port(In(stream.Signature(other))))
    assert "\n" not in str(error.value)


def test_two_outputs_and_missing_members_are_refused(m: Module) -> None:
    with pytest.raises(TypeError, match="both sides are outputs"):
        connect(m, *(port(Out(stream.Signature(LAYOUT))) for _ in range(2)))
    with pytest.raises(TypeError, match="only one side has the members b"):
        connect(m, port(Out(wiring.Signature({"a": Out(1)}))),
                port(In(wiring.Signature({"a": Out(1), "b": Out(1)}))))
