"""Moves what only one clocked process needs into that process; the meaning of a module stays.

Generated Verilog computes the operands of every register outside of the process that writes it. A
simulator then computes them in every cycle, twice if they hang on an input, whether or not the
register is enabled. Here registers with the same enable share a process, and a wire that nothing
else reads becomes a variable of that process, assigned under the enable.
"""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["sink"]

_PROCESS = re.compile(r"^  always @\(posedge clk\) begin\n    if \(([^\n]+)\) begin\n"
                      r"((?:      [^\n]*\n)+)    end\n"
                      r"(?:    if \(rst\) begin\n((?:      [^\n]*\n)+)    end\n)?  end\n", re.M)
_ASSIGN = re.compile(r"^  assign (\\\$\d+)  = ([^;]*);\n", re.M)
_WIRE = re.compile(r"^  wire (\[\d+:\d+\] )?(\\\$\d+) ;\n", re.M)
_TEMPORARY = re.compile(r"\\\$\d+(?= )")


def sink(module: str) -> str:
    """Return ``module``, the text of one, rewritten."""
    enabled: dict[str, list[str]] = {}
    resets: dict[str, str] = {}

    def collect(match: re.Match[str]) -> str:
        condition, body, reset = match.groups()
        enabled.setdefault(condition, []).append(body)
        resets[condition] = resets.get(condition, "") + (reset or "")
        return "" if len(enabled[condition]) > 1 else f"  process {condition}\n"

    text = _PROCESS.sub(collect, module)
    values = dict(_ASSIGN.findall(text))
    plain = {name for _, name in _WIRE.findall(text)}
    uses = Counter(_TEMPORARY.findall(module))
    sunk: set[str] = set()
    for condition, bodies in enabled.items():
        body, moved = _with_operands("".join(bodies), values, plain, uses)
        sunk |= moved
        reset = resets[condition]
        text = text.replace(
            f"  process {condition}\n",
            f"  always @(posedge clk) begin\n    if ({condition}) begin\n{body}    end\n"
            + (f"    if (rst) begin\n{reset}    end\n" if reset else "") + "  end\n", 1)
    text = _ASSIGN.sub(lambda match: "" if match[1] in sunk else match[0], text)
    return _WIRE.sub(lambda match: f"  reg {match[1] or ''}{match[2]} ;\n"
                     if match[2] in sunk else match[0], text)


def _with_operands(body: str, values: dict[str, str], plain: set[str],
                   uses: Counter[str]) -> tuple[str, set[str]]:
    """``body`` with assignments before it of all wires that only it reads, and these wires."""
    moved: set[str] = set()
    while True:
        inside = Counter(_TEMPORARY.findall(body))
        # Apart from its declaration and its assignment, a ready wire occurs here alone.
        ready = [name for name, count in inside.items() if name in values and name in plain
                 and name not in moved and uses[name] == count + 2]
        if not ready:
            return body, moved
        for name in ready:
            body = f"      {name}  = {values[name]};\n{body}"
            moved.add(name)
