"""The model of a tile around its generated functions: pins per lane, planes inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import jinja2

from ..cache import content_key
from ..glue import View
from .emit import ARGUMENTS, Emitted, stretches
from .lowered import Lowered
from .rows import Rows

__all__ = ["TEMPLATES", "activity_ports", "render_model"]

T = TypeVar("T")

_FOLDER = Path(__file__).parent
TEMPLATES = (_FOLDER / "tile.hpp.j2", _FOLDER / "tile.cpp.j2")


def render_model(manifest: dict[str, Any], name: str, lanes: int, lowered: Lowered,
                 emitted: Emitted) -> tuple[str, str]:
    """Return the header of a tile and the source of its model, called ``name`` in an engine.

    Raises
    ------
    BuildError
        If a port does not have the width that the engine takes it for.
    """
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    context = _Context(manifest, name, lanes, lowered, emitted).context()
    header_template, source_template = (environment.from_string(path.read_text())
                                        for path in TEMPLATES)
    header = header_template.render(**context)
    return header, source_template.render(**context, layout=content_key(header))


def activity_ports(manifest: dict[str, Any]) -> list[str]:
    """Ports that only an observer looks at."""
    return [port for interface in manifest["interfaces"] if interface["kind"] == "activity"
            for port in interface["ports"].values()]


def _bytes(bits: Sequence[T]) -> list[Sequence[T]]:
    return [bits[at:at + 8] for at in range(0, len(bits), 8)]


class _Pins(View):
    """Ports as C++ expressions of one lane."""

    @staticmethod
    def _address(name: str, kind: str) -> str:
        return f"state_->{name}[lane]" if kind == "wide" else f"&state_->{name}[lane]"


class _Context:
    def __init__(self, manifest: dict[str, Any], name: str, lanes: int, lowered: Lowered,
                 emitted: Emitted) -> None:
        self._manifest, self._name, self._lanes = manifest, name, lanes
        self._lowered, self._emitted = lowered, emitted
        self._ports = {port["name"]: port for port in manifest["ports"]}

    def context(self) -> dict[str, Any]:
        lowered, emitted, manifest = self._lowered, self._emitted, self._manifest
        ports = {name: port for name, port in self._ports.items()
                 if port["role"] not in ("clk", "rst", "now")}
        links, loaded = [], set()
        valids: dict[str, str] = {}
        for interface in manifest["interfaces"]:
            members = interface["ports"]
            if interface["kind"] == "link":
                links.append(self._link(members))
                loaded |= {members["rx"], members["tx"]}
            elif interface["kind"] == "host":
                valids |= {members[word]: members["valid"]
                           for word in ("write", "address", "data")}
                valids[members["read_data"]] = members["read_valid"]
            else:
                for path, port in members.items():
                    if path.endswith("payload"):
                        valids[port] = members[f"{path.removesuffix('payload')}valid"]
        bound = {port for each in manifest["interfaces"] for port in each["ports"].values()}
        shown: dict[str, list[dict[str, Any]]] = {key: [] for key in (
            "bits_in", "words_in", "configuration", "bits_out", "words_out", "watched",
            "activity")}
        for port in ports.values():
            entry = self._port(port)
            if port["name"] in loaded:
                continue
            into = port["direction"] == "in"
            if port["name"] in valids:
                valid = valids[port["name"]]
                entry["valid"] = (lowered.inputs[valid][0] if into
                                  else "{}[{}]".format(*emitted.ports[valid]))
                key = "words_in" if into else "words_out"
            elif into and port["name"] not in bound:
                key = "configuration"
            elif port["name"] in activity_ports(manifest):
                key = "activity"
            elif port["width"] == 1:
                key = "bits_in" if into else "bits_out"
            else:
                key = "words_in" if into else "watched"
            shown[key].append(entry)
        zeros = [at for at, value in lowered.resets.items() if not value]
        return {
            "name": self._name, "space": f"lanes_{self._name}", "lanes": self._lanes,
            "memories": lowered.memories,
            "contents": [{"memory": number, "row": row, "value": self._words(value, memory.width)}
                     for number, memory in enumerate(lowered.memories)
                     for row, value in enumerate(memory.init) if value],
            "declarations": [text[len("void "):text.index(" {\n")] for text in emitted.functions],
            "sizes": {array: max(1, size) for array, size in emitted.sizes.items()},
            "ports": [self._port(port) for port in ports.values()],
            "links": links, "arrivals": _bytes(links), "offers": _bytes(self._offers()), **shown,
            "view": _Pins(manifest, "").context(),
            "rows": emitted.rows, "resets": lowered.resets, "init": lowered.init,
            "following": emitted.following,
            "clear_zero": stretches(zeros),
            "clear_ones": stretches([at for at, value in lowered.resets.items() if value]),
            "reset_at": lowered.inputs["rst"][0],
            "now": {"at": lowered.inputs["now"][0], "width": lowered.inputs["now"][1]},
            "idle": emitted.ports["idle"], "arguments": ARGUMENTS,
            "cycle": emitted.cycle, "outputs": emitted.outputs,
        }

    def _offers(self) -> list[str]:
        """The planes that say which outputs hold something, in the order of ``TilePins``."""
        def plane(name: str, bit: int = 0) -> str:
            array, at = self._emitted.ports[name]
            return f"s.{array}[{at + bit}]"

        of: dict[str, list[dict[str, str]]] = {}
        streams = []
        for interface in self._manifest["interfaces"]:
            of.setdefault(interface["kind"], []).append(interface["ports"])
            if interface["kind"] == "stream" and interface["direction"] == "out":
                streams.append(interface["ports"])
        return [*(plane(link["tx"], self._ports[link["tx"]]["fields"]["strobe"][0])
                  for link in of.get("link", ())),
                *(plane(port["request.valid"]) for kind in ("read", "write")
                  for port in of.get(kind, ())),
                *(plane(host["read_valid"]) for host in of.get("host", ())[:1]),
                *(plane(stream["valid"]) for stream in streams)]

    def _planes(self, name: str) -> str:
        array, at = self._emitted.ports[name]
        return f"{array} + {at}"

    def _port(self, port: dict[str, Any]) -> dict[str, Any]:
        width, name = port["width"], port["name"]
        kind = next((bits for bits in (8, 16, 32, 64) if width <= bits), 0)
        entry = {"pin": name, "width": width, "type": f"uint{kind or 32}_t",
                 "words": "" if kind else f"[{(width + 63) // 64 * 2}]"}
        if port["direction"] == "in":
            entry["at"] = self._lowered.inputs[name][0]
            entry["columns_in"] = self._columns_in(name)
        else:
            entry["planes"] = self._planes(name)
            entry["columns_out"] = self._columns_out(name)
        return entry

    def _rows(self, pin: str, array: str) -> Rows | None:
        return next((rows for rows in self._emitted.rows
                     if rows.pin == pin and rows.array == array), None)

    def _columns_in(self, name: str) -> list[dict[str, Any]]:
        """Parts of 64 bits that go to planes: of what are rows, those that logic looks into."""
        at, width = self._lowered.inputs[name]
        rows = self._rows(name, "i")
        return [{"byte": start // 8, "width": min(64, width - start), "at": at + start}
                for start in range(0, width, 64)
                if rows is None or start >= rows.width or start // 64 in rows.columns]

    def _columns_out(self, name: str) -> list[dict[str, Any]]:
        """Parts of 64 bits that come from planes; rows are at the pins already."""
        array, at = self._emitted.ports[name]
        width, rows = self._ports[name]["width"], self._rows(name, "q")
        return [{"byte": start // 8, "width": min(64, width - start),
                 "planes": f"{array} + {at + start}"}
                for start in range(0 if rows is None else rows.width, width, 64)]

    def _link(self, members: dict[str, str]) -> dict[str, Any]:
        tx, rx = self._ports[members["tx"]], self._ports[members["rx"]]
        return {"tx": tx["name"], "rx": rx["name"], "planes": self._planes(tx["name"]),
                "columns_in": self._columns_in(rx["name"]),
                "columns_out": self._columns_out(tx["name"]),
                "strobe": tx["fields"]["strobe"][0]}

    @staticmethod
    def _words(value: int, width: int) -> str:
        return ", ".join(f"{value >> at & (1 << 64) - 1:#x}ull" for at in range(0, width, 64))

