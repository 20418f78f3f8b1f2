"""Rewrites generated Verilog so that it builds fast and simulates fast; its meaning stays.

Amaranth writes the next state of every register as combinational logic, reset included, a module
per instance and a line per memory row. A simulator then evaluates every next state after every
change of an input (reset is one that reaches everything), enabled or not, and compiles N equal
modules N times. So:

* a wire that nothing reads, such as the view of a struct's field, goes away;
* a register's next-state process becomes a clocked process: what is not enabled costs nothing;
* modules of equal text, but for names of no meaning, become one, and where the submodule's name
  starts with ``shared_`` Verilator is told to keep it so: an array of N equal rows is then compiled
  once, and its code stays in the instruction cache;
* a memory that starts as all zeros is cleared in a loop.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from .sink import sink

__all__ = ["APART_FLAGS", "compact", "legible"]

#: Flags of Verilator for a text with modules kept apart, which :func:`compact` marks as readable:
#: without them the functions of equal instances differ in what they read and in names of tables.
APART_FLAGS = ("-fno-dfg-scoped", "-fno-table")

_MODULE = re.compile(r"^module (\\\S+ |\w+ ?)\(.*?^endmodule\n", re.M | re.S)
_INSTANCE = re.compile(r"^  (\\\S+)  (\\?\S+ ?) \(\n(.*?)(?=^  \);$)", re.M | re.S)
_NUMBERED = re.compile(r"\\port\$\d+\$\d+(?= )")
_PORT = re.compile(r"    \.(\\port\$\d+\$\d+)(?= )")
_TRIGGER = re.compile(r"\\\$auto\$verilog_backend\.cc:\d+:dump_module\$\d+ ")
_ANONYMOUS = re.compile(r"\\\$(\d+) ")
_ZEROS = re.compile(r"^  initial begin\n((?:    \S+ ?\[\d+\] = \d+'h0+;\n){8,})  end\n", re.M)
_ROW = re.compile(r"    (\S+ ?)\[(\d+)\] = (\d+)'h")
_NAME = r"(?:\\\S+ |\w+)"
_FLOP = re.compile(rf"^  always @\(posedge (\w+)\)\n    ({_NAME}) <= (\\\$\d+ );\n", re.M)
_PROCESS = re.compile(r"^  always @\* begin\n    if \(\\\$trigger \) begin end\n"
                      r"    (\\\$\d+ ) = (.*?)^  end\n", re.M | re.S)
_TARGET = re.compile(r"^ +(\\\S+|\w+) *(?:\[[^\]]*\] )?= ", re.M)
_TOKEN = re.compile(r"\\\S+|[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"^  assign (\\\S+|\w+) +=", re.M)
_PORTS = re.compile(r"^  (?:input|output|inout) (?:\[\d+:\d+\] )?(\\\S+|\w+) ?;$", re.M)
_WIRE_OR_ASSIGN = re.compile(r"(?:^  \(\*[^\n]*\*\)\n)*^  wire (?:\[\d+:\d+\] )?(\\\S+|\w+) ?;\n"
                   r"|^  assign (\\\S+|\w+) +=[^;]*;\n", re.M)
_INPUT = re.compile(rf"^  input (?:\[\d+:\d+\] )?({_NAME});$", re.M)
_PORT_NAMES = re.compile(rf"^  (?:in|out)put (?:\[\d+:\d+\] )?({_NAME});$", re.M)
_DECLARED = re.compile(rf"^(  (?:wire|reg) (?:\[\d+:\d+\] )?)({_NAME});$", re.M)
#: Submodules that are to stay one module, however often they occur.
_APART = re.compile(r"\\.*\.shared_\w+$")


def compact(text: str, *, apart: bool = False) -> str:
    """Return ``text``, Verilog as Amaranth writes it (top module first), rewritten.

    ``apart`` is for a top module that another text has many instances of: Verilator is told to
    keep it one function, which takes :data:`APART_FLAGS` as well.
    """
    text = _TRIGGER.sub(r"\\$trigger ", _ZEROS.sub(_clear, text))
    modules = {match[1].strip(): match[0] for match in _MODULE.finditer(text)}
    prefix = text[:_MODULE.search(text).start()]  # type: ignore[union-attr]
    order = list(modules)
    # Leaves follow their parents, so the reverse order merges from the leaves up.
    merged: dict[str, str] = {}
    shared: dict[str, str] = {}
    users: dict[str, int] = {}
    renamed: dict[str, dict[str, str]] = {}

    def instance(match: re.Match[str]) -> str:
        ports = renamed[match[1]]
        return f"  {merged[match[1]]}  {match[2]} (\n" + _PORT.sub(
            lambda port: f"    .{ports[port[1]]}", match[3])

    for name in reversed(order):
        body = _INSTANCE.sub(instance, modules[name])
        # Ports without a name of their own are numbered through the whole design.
        numbered = dict.fromkeys(_NUMBERED.findall(body[:body.index(");")]))
        names = renamed[name] = {old: f"\\port${index}" for index, old in enumerate(numbered)}
        for old, new in names.items():
            body = body.replace(f"{old} ", f"{new} ")
        merged[name] = shared.setdefault(body[body.index("("):], name)
        users[merged[name]] = users.get(merged[name], 0) + 1
        modules[name] = body
    parts = [prefix]
    for name in order:
        if merged[name] != name:
            continue
        body = _trimmed(_clocked(modules[name]))
        if apart:
            body = sink(body)
        if apart and name == order[0]:
            body = _kept(body, _PORT_NAMES, "public_flat_rd")
        elif users[name] > 1 and _APART.match(name):
            body = _kept(body, _INPUT, "public_flat_rw")
        parts.append(body)
    return "\n".join(parts)


def legible(text: str) -> str:
    """Return ``text``, Verilog as Amaranth writes it, with all that has a name, such as the fields
    of structs; what has only a number gets a name with an underscore, which Verilator leaves out of
    waves."""
    return _ANONYMOUS.sub(r"_\1 ", _TRIGGER.sub(r"_trigger ", text))


def _clocked(module: str) -> str:
    """Turn next-state processes and the registers that take them into clocked processes."""
    flops = {match[3]: match for match in _FLOP.finditer(module)}
    done: list[str] = []

    def rewrite(match: re.Match[str]) -> str:
        next_state = match[1]
        flop = flops.get(next_state)
        body = f"    {next_state} = {match[2]}"
        if (flop is None or {f"{name} " for name in _TARGET.findall(body)} != {next_state}
                or module.count(next_state) != body.count(next_state) + 2):
            return match[0]
        register = flop[2]
        spaced = register if register.endswith(" ") else f"{register} "
        lines = []
        for number, line in enumerate(body.splitlines()):
            indent = line[:len(line) - len(line.lstrip())]
            code = line[len(indent):]
            if code.startswith(next_state):
                left, _, right = code.partition("= ")
                if number == 0 and right.strip(" ;") == register.strip():
                    continue  # by default it holds its value
                code = f"{spaced}{left[len(next_state):]}<= {right}"
            lines.append(indent + code)
        done.append(flop[0])
        done.append(f"  reg {_declaration(module, next_state)}{next_state};\n")
        return f"  always @(posedge {flop[1]}) begin\n" + "\n".join(lines) + "\n  end\n"

    text = _PROCESS.sub(rewrite, module)
    for piece in done:
        text = text.replace(piece, "", 1)
    if text.count("\\$trigger ") == 1:
        text = re.sub(r"  reg \\\$trigger  = 0;\n", "", text)
    return text


def _trimmed(module: str) -> str:
    """Drop wires that are driven and never read."""
    while dead := _dead(module):
        module = _WIRE_OR_ASSIGN.sub(partial(_without, dead), module)
    return module


def _dead(module: str) -> set[str]:
    count = Counter(_TOKEN.findall(module))
    once = {name for name in _ASSIGNED.findall(module) if count[name] == 2}
    return once - set(_PORTS.findall(module))


def _without(dead: set[str], match: re.Match[str]) -> str:
    return "" if (match[1] or match[2]) in dead else match[0]


def _kept(module: str, ports: re.Pattern[str], attribute: str) -> str:
    """Keep a module one function in Verilator.

    Its instances run the same code only if that reads their own ports, so these must not be
    replaced by what drives them. A variable that anybody may write never is. One that anybody may
    read is not either, if the passes that look across modules are off; and logic that hangs on
    it is not evaluated for changes from outside.
    """
    names = set(ports.findall(module)) - {"clk"}
    module = _DECLARED.sub(lambda match: f"{match[1]}{match[2]} /* verilator {attribute} */;"
                           if match[2] in names else match[0], module)
    return module.replace(");\n", ");\n  /* verilator no_inline_module */\n", 1)


def _declaration(module: str, name: str) -> str:
    match = re.search(rf"^  reg (\[\d+:\d+\] )?{re.escape(name)};$", module, re.M)
    if match is None:
        raise AssertionError(f"no declaration of {name}")
    return match[1] or ""


def _clear(match: re.Match[str]) -> str:
    rows = [_ROW.match(line) for line in match[1].splitlines()]
    names = {row[1] for row in rows if row}
    indices = [int(row[2]) for row in rows if row]
    if len(names) != 1 or indices != list(range(len(rows))):
        return match[0]
    name, width = names.pop(), rows[0][3]  # type: ignore[index]
    row = f"row_of_{re.sub(r'[^A-Za-z0-9]', '_', name.strip())}"
    return (f"  integer {row};\n  initial begin\n"
            f"    for ({row} = 0; {row} < {len(rows)}; {row} = {row} + 1)\n"
            f"      {name}[{row}] = {width}'h0;\n  end\n")
