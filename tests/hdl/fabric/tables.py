"""Writes to route tables, as benches make them."""

from __future__ import annotations

from hdl.layouts import RouteEntry, RouteLevel, RouteWrite, pack

__all__ = ["entry_write", "level_write"]


def _write(level: int, entry: int, body: bytes) -> int:
    return int.from_bytes(pack(RouteWrite, {
        "level": level, "entry": entry, "body": int.from_bytes(body, "little")}), "little")


def level_write(level: int, *, mask: int, value: int, shift: int) -> int:
    """A write that makes ``level`` valid."""
    return _write(level, 0, pack(RouteLevel, {
        "mask": mask, "value": value, "shift": shift, "valid": 1}))


def entry_write(level: int, index: int, *, port: int, lane: int = 0, fixed: int = 0,
                input_port: int | None = None) -> int:
    """A write of one entry, in the tables of all input ports by default."""
    return _write(level, 1, pack(RouteEntry, {
        "index": index, "port": port, "lane": lane, "fixed": fixed,
        "input": input_port or 0, "every_input": int(input_port is None)}))
