"""A tile as Amaranth's own netlist, with what a lane-parallel model needs of it checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Value, _nir
from amaranth.hdl._ir import Fragment, PortDirection, build_netlist
from amaranth.lib import wiring

from ..cache import BuildError

__all__ = ["Tile", "read_tile"]

_CELLS = (_nir.Top, _nir.Operator, _nir.Part, _nir.Matches, _nir.PriorityMatch,
          _nir.AssignmentList, _nir.FlipFlop, _nir.Memory, _nir.SyncWritePort,
          _nir.AsyncReadPort, _nir.SyncReadPort)
#: Cells that are for a simulator or a prover: no tile's behaviour hangs on them.
_IGNORED = (_nir.AsyncPrint, _nir.SyncPrint, _nir.AsyncProperty, _nir.SyncProperty)
_OPERATORS = {"~", "-", "b", "r|", "r&", "r^", "+", "*", "&", "|", "^", "<<", "u>>", "s>>", "==",
              "!=", "u<", "s<", "u>", "s>", "u<=", "s<=", "u>=", "s>=", "m"}


@dataclass(frozen=True)
class Tile:
    """Cells, and ports by name: ``(first output bit of cell 0, width)`` and nets."""

    name: str
    cells: tuple[_nir.Cell, ...]
    inputs: dict[str, tuple[int, int]]
    outputs: dict[str, _nir.Value]


def read_tile(component: wiring.Component, name: str) -> Tile:
    """Elaborate ``component``; ports are called as in the manifest of ``hdl.verilog``.

    Raises
    ------
    BuildError
        If it holds a cell that lanes do not have.
    """
    ports: dict[str, Any] = {}
    for path, member, value in component.signature.flatten(component):
        direction = (PortDirection.Input if member.flow is wiring.In else PortDirection.Output)
        ports["__".join(map(str, path))] = (Value.cast(value), direction)
    netlist = build_netlist(Fragment.get(component, None), ports=ports, name=name)
    for cell in netlist.cells:
        _check(cell, name, netlist.top)
    return Tile(name, tuple(netlist.cells), dict(netlist.top.ports_i),
                dict(netlist.top.ports_o))


def _check(cell: _nir.Cell, name: str, top: _nir.Top) -> None:
    def refuse(what: str) -> None:
        raise BuildError(f"tile {name} has {what}, which lane-parallel models do not have")

    if isinstance(cell, _IGNORED):
        return
    if not isinstance(cell, _CELLS):
        refuse(f"a cell {type(cell).__name__}")
    if isinstance(cell, _nir.Operator) and cell.operator not in _OPERATORS:
        refuse(f"an operator {cell.operator}")
    if isinstance(cell, _nir.Part) and cell.value_signed:
        # Verilog and Amaranth do not agree on what lies beyond its end.
        refuse("a part of a signed value at a variable offset")
    if isinstance(cell, (_nir.FlipFlop, _nir.SyncWritePort, _nir.SyncReadPort)):
        start, _ = top.ports_i["clk"]
        if cell.clk != _nir.Net.from_cell(0, start) or cell.clk_edge != "pos":
            refuse("a clock other than clk")
    if isinstance(cell, _nir.FlipFlop) and cell.arst != _nir.Net.from_const(0):
        refuse("an asynchronous reset")
