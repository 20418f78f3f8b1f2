"""Verilog and a port manifest out of any tile.

The manifest says in JSON what a port list cannot: which ports form a link, a memory port, a host
port or a stream, and where the fields of a link word sit. It is derived from the tile's signature
by walking it, so that glue code, FPGA tops and scripts never guess from names.

Manifest
--------
``name``        top module
``parameters``  of the tile, nested, or null
``clock``, ``reset``  names of these two ports
``ports``       ``name``, ``direction`` (``in``, ``out``), ``width`` and ``role``, the path of the
                port in the signature (``links[0].rx``); ``clk`` and ``rst`` are their own roles.
                A port with a layout has ``fields``: ``[first bit, width]`` by dotted name
``interfaces``  ``kind`` (``link``, ``host``, ``read``, ``write``, ``stream``, ``activity``),
                ``path``, ``direction`` of a stream's payload, and ``ports``: member path to port
                name
``views``       path prefixes under which one tile's ports stand: ``[""]`` for a tile
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import stream, wiring

from .compact import compact, legible
from .layouts import field_slices
from .once import convert
from .ports import (
    ActivitySignature,
    HostSignature,
    LinkSignature,
    MemoryReadSignature,
    MemoryWriteSignature,
)

__all__ = ["Generated", "generate", "interface_kind"]

_KINDS: tuple[tuple[type, str], ...] = (
    (LinkSignature, "link"), (HostSignature, "host"), (MemoryReadSignature, "read"),
    (MemoryWriteSignature, "write"), (stream.Signature, "stream"), (ActivitySignature, "activity"))


@dataclass(frozen=True)
class Generated:
    """A tile as Verilog text, with its manifest."""

    text: str
    manifest: dict[str, Any]
    #: The text is for waves: of it, a model is built that can show them.
    waves: bool = False

    @property
    def name(self) -> str:
        return self.manifest["name"]

    def manifest_text(self) -> str:
        """The manifest as JSON."""
        return json.dumps(self.manifest, indent=1) + "\n"


def generate(component: wiring.Component, name: str, *, waves: bool = False) -> Generated:
    """Return the Verilog of ``component`` as a module called ``name``, and its manifest; with
    ``waves``, Verilog with all signals that a reader of waves may ask for.

    Raises
    ------
    ValueError
        If a port has no bits: Verilog has no such port.
    """
    ports: list[dict[str, Any]] = [
        {"name": port, "direction": "in", "width": 1, "role": port} for port in ("clk", "rst")]
    for path, member, _ in component.signature.flatten(component):
        width = Shape.cast(member.shape).width
        if width == 0:
            raise ValueError(f"port {_port_name(path)!r} of {name} has no bits: a port needs one")
        ports.append({"name": _port_name(path), "role": _role(path), "width": width,
                      "direction": "in" if member.flow is wiring.In else "out",
                      **_fields(member.shape)})
    text = convert(component, name, legible if waves else compact)
    directions = {port["name"]: port["direction"] for port in ports}
    return Generated(text, {
        "name": name, "parameters": _parameters(getattr(component, "params", None)),
        "clock": "clk", "reset": "rst", "ports": ports,
        "interfaces": [_interface(path, signature, directions)
                       for path, signature in _walk(component.signature)],
        "views": [""],
    }, waves)


def interface_kind(signature: Any) -> str | None:
    """What the manifest calls an interface of this signature; None for a plain grouping.

    A signature class outside this module names its kind in an attribute ``manifest_kind``.
    """
    plain = signature.flip() if isinstance(signature, wiring.FlippedSignature) else signature
    named = getattr(plain, "manifest_kind", None)
    if named is not None:
        return named
    return next((kind for cls, kind in _KINDS if isinstance(plain, cls)), None)


def _walk(signature: Any, path: tuple[str | int, ...] = ()) -> Iterator[
        tuple[tuple[str | int, ...], Any]]:
    for name, member in signature.members.items():
        if not member.is_signature:
            continue
        for index in itertools.product(*map(range, member.dimensions)):
            inner = (*path, name, *index)
            if interface_kind(member.signature) is not None:
                yield inner, member.signature
            else:
                yield from _walk(member.signature, inner)


def _interface(path: tuple[str | int, ...], signature: Any,
               directions: dict[str, str]) -> dict[str, Any]:
    kind = interface_kind(signature)
    ports = {".".join(map(str, inner)): _port_name((*path, *inner))
             for inner in _leaves(signature)}
    entry = {"kind": kind, "path": _role(path), "ports": ports}
    if kind == "stream":
        entry["direction"] = directions[ports["payload"]]
    return entry


def _leaves(signature: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for name, member in signature.members.items():
        for index in itertools.product(*map(range, member.dimensions)):
            inner = (*path, name, *index)
            if member.is_signature:
                yield from _leaves(member.signature, inner)
            else:
                yield inner


def _fields(shape: Any) -> dict[str, Any]:
    try:
        slices = field_slices(shape)
    except TypeError:
        return {}
    return {"fields": {str(name): list(where) for name, where in slices.items()}}


def _port_name(path: tuple[str | int, ...]) -> str:
    return "__".join(map(str, path))


def _role(path: tuple[str | int, ...]) -> str:
    role = ""
    for part in path:
        role += f"[{part}]" if isinstance(part, int) else f".{part}" if role else part
    return role


def _parameters(params: Any) -> dict[str, Any] | None:
    if dataclasses.is_dataclass(params) and not isinstance(params, type):
        return dataclasses.asdict(params)
    return None
