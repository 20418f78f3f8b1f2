"""The project's checked connect.

``wiring.connect`` compares widths; two ports of equal width whose fields sit at different places
pass it silently. This one compares layouts, field by field, and refuses in one line.
"""

import enum
from typing import Any

from amaranth.hdl import Module, Shape, ShapeLike
from amaranth.lib import data, wiring

__all__ = ["connect"]


def connect(m: Module, a: Any, b: Any) -> None:
    """Connect the interfaces ``a`` and ``b`` in module ``m``.

    Every output of one drives the input of the same path of the other.

    Raises
    ------
    TypeError
        If the two do not have the same members with the same layouts, or if their directions do
        not fit each other.
    """
    left, right = _ports(a), _ports(b)
    if left.keys() != right.keys():
        extra = ", ".join(sorted(left.keys() ^ right.keys()))
        raise TypeError(f"cannot connect: only one side has the members {extra}")
    for path, (member, member_b) in ((path, (left[path], right[path])) for path in left):
        if _canonical(member.shape) != _canonical(member_b.shape):
            raise TypeError(f"cannot connect {path}: layout {_name(member.shape)} is not "
                            f"{_name(member_b.shape)}")
        if member.flow == member_b.flow:
            raise TypeError(f"cannot connect {path}: both sides are "
                            f"{'outputs' if member.flow == wiring.Out else 'inputs'}")
    wiring.connect(m, a, b)


def _ports(interface: Any) -> dict[str, wiring.Member]:
    return {".".join(map(str, path)): member
            for path, member, _ in interface.signature.flatten(interface)}


def _canonical(shape: ShapeLike) -> Any:
    """What must be equal: a layout with its fields, an enumeration itself, else the plain shape."""
    try:
        layout = data.Layout.cast(shape)
    except TypeError:
        return shape if isinstance(shape, type) and issubclass(shape, enum.Enum) \
            else Shape.cast(shape)
    return type(layout), layout.size, [
        (name, item.offset, _canonical(item.shape)) for name, item in layout]


def _name(shape: ShapeLike) -> str:
    if isinstance(shape, type):
        return shape.__name__
    return repr(shape).replace("\n", " ")
