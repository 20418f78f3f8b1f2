"""Glue between a Verilated tile and the engine, rendered from the tile's manifest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2

from hdl.layouts import PacketHeader, field_slices

from .cache import BuildError
from .library import HEADER

__all__ = ["TEMPLATE", "View", "render_glue"]

TEMPLATE = Path(__file__).parent / "engine" / "tile.cpp.j2"

#: C++ type by the largest width it holds; wider ports are arrays of 32-bit words.
_NARROW = ((8, "u8"), (16, "u16"), (32, "u32"), (64, "u64"))


def render_glue(manifest: dict[str, Any], name: str, *, root_header: str, model_source: str,
                layout: str, waves: bool = False) -> str:
    """Return the C++ glue of a tile.

    ``name`` is that of its model in the engine; Verilator's class is called V``name``.
    ``root_header`` is the text of Verilator's header of the root module, which says under what name
    the model remembers the clock; ``model_source`` that of the model class, which says what its
    ``eval()`` calls. ``layout`` names the arrangement of the model's variables. With ``waves``,
    the model can show them.

    Raises
    ------
    BuildError
        If a port does not have the width that the engine takes it for.
    """
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE.read_text())
    history = re.findall(r"CData/\*0:0\*/ (__Vtrigprevexpr\w*);", root_header)
    # Anything but the clock in a sensitivity list, and the falling edge is evaluated.
    clock_only = bool(history) and all(re.fullmatch(r"__Vtrigprevexpr\w*_clk__\d+", name)
                                       for name in history)
    direct = re.search(rf"^void (V{name}___024root___eval)\(V\w+\* vlSelf\);$",
                       model_source, re.MULTILINE)
    views = [View(manifest, prefix).context() for prefix in manifest["views"]]
    return template.render(name=name, waves=waves, direct=direct and direct[1], views=views,
                           layout=layout, clock_history=history if clock_only else [])


class View:
    """The ports of one tile of a model, as C++ expressions."""

    def __init__(self, manifest: dict[str, Any], prefix: str) -> None:
        self._prefix = prefix
        self._ports = {port["role"]: port for port in manifest["ports"]}
        self._names = {port["name"]: port for port in manifest["ports"]}
        self._interfaces = [entry for entry in manifest["interfaces"]
                            if entry["path"].startswith(prefix)]

    def context(self) -> dict[str, Any]:
        links = [entry["ports"] for entry in self._interfaces if entry["kind"] == "link"]
        bound = {port for entry in self._interfaces for port in entry["ports"].values()}
        return {
            "links": [self._link(link) for link in links],
            "format": self._link_format(links[0]["tx"]) if links else None,
            "reads": [self._read(entry["ports"]) for entry in self._of("read")],
            "writes": [self._write(entry["ports"]) for entry in self._of("write")],
            "host": next((self._host(entry["ports"]) for entry in self._of("host")), None),
            "streams": [{"name": entry["path"].removeprefix(self._prefix),
                         "out": "true" if entry["direction"] == "out" else "false",
                         "pins": self._stream(entry["ports"])} for entry in self._of("stream")],
            "idle": self._pin(self._ports[f"{self._prefix}idle"]["name"], "u8"),
            "wake": self._pin(self._ports[f"{self._prefix}wake"]["name"], "u64"),
            "activity": [self._activity(port) for entry in self._of("activity")
                         for port in entry["ports"].values()],
            "inputs": [self._value(port) for port in self._ports.values()
                       if port["direction"] == "in" and port["role"].startswith(self._prefix)
                       and port["name"] not in bound
                       and port["role"] not in ("clk", "rst", "now")],
        }

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self._interfaces if entry["kind"] == kind]

    def _pin(self, name: str, expected: str) -> str:
        width = self._names[name]["width"]
        kind = next((kind for limit, kind in _NARROW if width <= limit), "wide")
        if kind != expected:
            raise BuildError(f"port {name} has {width} bits, which the engine does not take as "
                             f"{expected}")
        return self._address(name, kind)

    @staticmethod
    def _address(name: str, kind: str) -> str:
        mangled = f"root_.{name.replace('__', '___05F')}"
        return f"{mangled}.data()" if kind == "wide" else f"&{mangled}"

    def _field(self, name: str, field: str) -> str:
        first, width = self._names[name]["fields"][field]
        return f"{first}, {width}"

    def _expect(self, name: str, field: str, first: int) -> None:
        if self._names[name]["fields"][field][0] != first:
            raise BuildError(f"field {field} of port {name} does not start at bit {first}")

    def _link(self, ports: dict[str, str]) -> str:
        kinds = {"rx": "wide", "tx": "wide", "up": "u8", "fault": "wide"}
        return ", ".join(self._pin(ports[name], kind) if name in ports else "nullptr"
                         for name, kind in kinds.items())

    def _read(self, ports: dict[str, str]) -> dict[str, str]:
        request, response = ports["request.payload"], ports["response.payload"]
        self._expect(response, "data", 0)
        self._expect(response, "tag", self._names[response]["fields"]["data"][1])
        pins = [self._pin(ports["request.valid"], "u8"), self._pin(ports["request.ready"], "u8"),
                self._pin(request, "u64"), self._pin(ports["response.valid"], "u8"),
                self._pin(response, "wide")]
        return {"pins": ", ".join(pins), "index": self._field(request, "index"),
                "tag": self._field(request, "tag")}

    def _write(self, ports: dict[str, str]) -> dict[str, str]:
        request = ports["request.payload"]
        self._expect(request, "data", 0)
        pins = [self._pin(ports["request.valid"], "u8"), self._pin(ports["request.ready"], "u8"),
                self._pin(request, "wide")]
        return {"pins": ", ".join(pins), "mask": self._field(request, "mask"),
                "index": self._field(request, "index")}

    def _host(self, ports: dict[str, str]) -> str:
        kinds = {"valid": "u8", "write": "u8", "address": "u16", "data": "u64", "read_valid": "u8",
                 "read_data": "u64", "completions": "u32"}
        return ", ".join(self._pin(ports[name], kind) for name, kind in kinds.items())

    def _stream(self, ports: dict[str, str]) -> str:
        return ", ".join((self._pin(ports["payload"], "u64"), self._pin(ports["valid"], "u8"),
                          self._pin(ports["ready"], "u8")))

    def _activity(self, name: str) -> str:
        width = self._names[name]["width"]
        kind = next((kind for limit, kind in _NARROW if width <= limit), None)
        if kind is None:
            raise BuildError(f"port {name} has {width} bits: a word of activity has at most 64")
        return f"{self._address(name, kind)}, {int(kind[1:]) // 8}"

    def _value(self, port: dict[str, Any]) -> dict[str, Any]:
        width = port["width"]
        kind = next((kind for limit, kind in _NARROW if width <= limit), "wide")
        size = (width + 31) // 32 * 4 if kind == "wide" else int(kind[1:]) // 8
        return {"role": port["role"].removeprefix(self._prefix), "bytes": size,
                "at": self._address(port["name"], kind)}

    def _link_format(self, name: str) -> str:
        fields = self._names[name]["fields"]
        payload = fields["payload"][1]
        self._expect(name, "payload", 0)

        def mask(*names: str) -> int:
            total = 0
            for field in names:
                first, width = fields[field]
                if first + width > payload + 64:
                    raise BuildError(f"field {field} of {name} lies beyond the control bits")
                total |= (1 << width) - 1 << first - payload
            return total

        controls = [field for field in fields if field not in ("payload", "crc")]
        values = [(self._names[name]["width"] + 31) // 32, payload // 32, mask("strobe"),
                  mask("kind"), mask("valid"), mask("head"), mask("head", "tail", "poison", "vc"),
                  mask("credit"),
                  mask("credit_vc", "freed"), mask("acks"), mask("ack"), mask(*controls)]
        header = ", ".join(f"{{{{{first}, {width}}}, {to}}}"
                           for first, width, to in _header_moves(payload))
        return ", ".join([*(f"{value}u" if at < 2 else f"{value:#x}ull"
                            for at, value in enumerate(values)), f"{{{header}}}"])


def _header_moves(payload: int) -> list[tuple[int, int, int]]:
    """First bit and width of the fields of :data:`~emu.library.HEADER` in a head flit of
    ``payload`` bits, and their place there; fields beyond the flit are left out."""
    places = field_slices(PacketHeader)
    moves = [(*places[str(name)], field.offset) for name, field in HEADER]
    return [move for move in moves if move[0] + move[1] <= payload]
