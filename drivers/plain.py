"""Dataclasses as plain data that JSON holds, and back.

What a class needs is read from the type hints of its fields, never from the data: data that were
changed can make no object but one that the caller asked for. Numbers, text, enumerations, tuples,
sequences, mappings of any keys, dataclasses and unions with ``None`` are known.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["from_plain", "to_plain"]

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """``value`` as dictionaries, lists, numbers, text and ``None``.

    Raises
    ------
    TypeError
        If a part of it is of a type that is not known.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_plain(getattr(value, each.name))
                for each in dataclasses.fields(value) if each.init}
    if isinstance(value, Mapping):
        # JSON has no keys but text.
        return [[to_plain(key), to_plain(each)] for key, each in value.items()]
    if isinstance(value, Sequence):
        return [to_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} is no plain data")


def from_plain(kind: Any, data: Any) -> Any:
    """The value of type ``kind``, a class or a type hint, that :func:`to_plain` made ``data`` of.

    Raises
    ------
    ValueError
        If ``data`` do not make one.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _from_union(kind, arguments, data)
    if kind is type(None) or kind is None:
        _expect(data is None, kind, data)
        return None
    if origin is tuple:
        _expect(isinstance(data, list), kind, data)
        if arguments[-1] is Ellipsis:
            return tuple(from_plain(arguments[0], each) for each in data)
        _expect(len(data) == len(arguments), kind, data)
        return tuple(map(from_plain, arguments, data))
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, list) and all(isinstance(each, list) and len(each) == 2
                                               for each in data), kind, data)
        return {from_plain(arguments[0], key): from_plain(arguments[1], each)
                for key, each in data}
    if origin is not None and issubclass(origin, Sequence):
        _expect(isinstance(data, list), kind, data)
        return [from_plain(arguments[0], each) for each in data]
    if dataclasses.is_dataclass(kind):
        return _from_fields(kind, data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    _expect(kind is Any or type(data) is kind or (kind is float and type(data) is int), kind, data)
    return data


def _from_union(kind: Any, members: Sequence[Any], data: Any) -> Any:
    for member in members:
        try:
            return from_plain(member, data)
        except ValueError:
            continue
    raise ValueError(f"{data!r} is no {kind}")


def _from_fields(kind: Any, data: Any) -> Any:
    hints = _hints(kind)
    _expect(isinstance(data, dict) and data.keys() == hints.keys(), kind, data)
    return kind(**{name: from_plain(hint, data[name]) for name, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind) if each.init}


def _expect(holds: bool, kind: Any, data: Any) -> None:
    if not holds:
        text = repr(data)
        raise ValueError(f"{text[:77] + '...' if len(text) > 80 else text} is no "
                         f"{getattr(kind, '__name__', kind)}")
