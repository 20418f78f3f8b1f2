"""Where a card-cycle goes: instructions per evaluation of the network tile, by block of the RTL.

``python -m bench.profile`` runs an AllReduce under valgrind's callgrind, which counts instructions
exactly whatever else the machine does, with a tile that carries line numbers, and files every line
of the Verilated code under the block whose signal it assigns or tests. ``--quiet`` evaluates
machines at rest instead: what a card costs that is not idle for the sake of one of its blocks.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import emu.build
from emu.build import VERILATOR_FLAGS, WAIVERS, Builder, model_name
from emu.compiler import run_tool
from emu.emulator import EngineBackend
from emu.toolchain import find_toolchain
from hdl.card import NetworkTile
from hdl.params import preset
from hdl.topology import parse

PRESET = "default"
RUN = ("run", "allreduce", "--topology", "torus:2x2x2", "--bytes", "64K", "--preset", PRESET)
_SIGNAL = re.compile(r"\bnetwork__DOT__(\w+)|\b(links|memory|host|gemm|done)___05F\w+")
_TILE = re.compile(r"Vnetwork_\w+___024root___(eval|nba|ico)|\(anonymous namespace\)::Tile")
_EVALUATION = re.compile(r"Vnetwork_\w+___024root___eval\(")
_ENGINE = ("supernode::Node", "supernode::Fabric::run", "supernode::ReadPort",
           "supernode::WritePort")
_NAME = re.compile(r"(?:\((\d+)\))?(?: ?(.*))?")
_STATEMENT_ENDS = (";", "{", "}", ":")


def block_of(line: str) -> str | None:
    """The block that a line of Verilated code belongs to: that of the first signal in it."""
    found = _SIGNAL.search(line)
    if found is None:
        return None
    parts = [re.sub(r"_?\d+$", "", part) for part in (found[1] or "").split("__DOT__")]
    if parts[0] == "nic":
        inner = "rail" if parts[1:2] == ["rail"] else "control"
        if parts[1:2] == [inner] and len(parts) > 3:
            return " ".join((f"nic {inner}", *parts[2:-1]))
        return f"nic {inner}"
    if parts[0] == "router":
        return f"router {parts[1]}" if len(parts) > 2 else "router"
    return "tile"


def blocks_of(source: Path) -> list[str]:
    """The block of each line; a line without a signal belongs to what stands before it."""
    blocks, statement, fresh = [], "other", True
    for line in source.read_text().splitlines():
        if fresh or statement == "other":
            statement = block_of(line) or statement
        fresh = line.rstrip().endswith(_STATEMENT_ENDS)
        blocks.append(statement)
    return blocks


def costs(profile: Path) -> Iterator[tuple[str, str, int, int, int]]:
    """(function, file, calls, line, instructions) of callgrind's records.

    A record has either calls, of a function, or instructions, of a line.
    """
    names: dict[tuple[str, str], str] = {}
    at = {"ob": "", "fl": "", "fn": "", "cfn": ""}
    line, inclusive = 0, False
    for record in profile.read_text().splitlines():
        key, equals, value = record.partition("=")
        if equals and key in ("ob", "fl", "fi", "fe", "fn", "cob", "cfi", "cfl", "cfn"):
            kind = {"cob": "ob", "fi": "fl", "fe": "fl", "cfi": "fl", "cfl": "fl",
                    "cfn": "fn"}.get(key, key)
            match = _NAME.fullmatch(value)
            assert match is not None
            number, name = match[1], match[2]
            if number and name:
                names[kind, number] = name
            elif number:
                name = names[kind, number]
            at["fl" if key in ("fi", "fe") else key] = name or ""
        elif equals and key == "calls":
            inclusive = True
            yield at["cfn"], "", int(value.split()[0]), 0, 0
        elif record and record[0] in "0123456789+-*":
            where, _, cost = record.partition(" ")
            line = (line if where == "*" else line + int(where) if where[0] in "+-"
                    else int(where))
            if not inclusive:
                yield at["fn"], at["fl"], 0, line, int(cost)
            inclusive = False


def rest() -> None:
    """Evaluate machines at rest."""
    machine = EngineBackend(parse("ring:8"), preset(PRESET), skip_idle=False,
                            memory_bytes=1 << 20)
    machine.advance(5000)
    machine.close()


def child(quiet: bool) -> None:
    """What valgrind looks at."""
    from emu.cli import main as supernode
    if quiet:
        rest()
    else:
        sys.argv = ["supernode", *RUN, "--json", "-"]
        supernode()


def main() -> None:
    """Print instructions per evaluation of the network tile by block."""
    parser = argparse.ArgumentParser(prog="bench.profile", description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="machines at rest")
    parser.add_argument("--lines", type=int, default=0, help="print this many hottest lines too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Line numbers do not change the code.
    emu.build.FAST_FLAGS = (*emu.build.FAST_FLAGS, "-g")
    if options.child:
        child(options.quiet)
        return
    command = [sys.executable, "-m", "bench.profile", "--child",
               *(["--quiet"] if options.quiet else [])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # builds, if need be
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder, tools = Builder(), find_toolchain()
        tile = builder.verilog(NetworkTile, preset(PRESET), "network")
        (folder / "network.v").write_text(tile.text)
        run_tool([tools.program, *VERILATOR_FLAGS, "--prefix", f"V{model_name(tile)}",
                  "--top-module", "network", "--Mdir", folder, WAIVERS, folder / "network.v"],
                 "verilating", log=folder / "log", env=tools.environment())
        subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/profile",
                        *command], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        report(folder, options.lines)


def report(folder: Path, hottest: int) -> None:
    """Print the tables."""
    sources = {path.name: path.read_text().splitlines() for path in folder.glob("*.cpp")}
    blocks = {path.name: blocks_of(path) for path in folder.glob("*.cpp")}
    total: Counter[str] = Counter()
    lines: Counter[tuple[str, int]] = Counter()
    evaluations = 0
    for function, file, calls, line, cost in costs(folder / "profile"):
        if calls:
            evaluations += calls * bool(_EVALUATION.match(function))
            continue
        source = Path(file).name
        if _TILE.match(function):
            at_line = source in blocks and 0 < line <= len(blocks[source])
            total[blocks[source][line - 1] if at_line else "other"] += cost
            lines[source, line] += cost * at_line
        elif function.startswith(_ENGINE):
            total["engine"] += cost
    print(f"{evaluations} evaluations, {sum(total.values()) / evaluations:.0f} instructions each\n")
    print("| block | instructions | share |\n|---|---|---|")
    for block, cost in total.most_common():
        if cost / sum(total.values()) >= 0.005:
            print(f"| {block} | {cost / evaluations:.0f} | {cost / sum(total.values()):.1%} |")
    for (source, line), cost in lines.most_common(hottest):
        print(f"{cost / evaluations:7.1f}  {source}:{line}: {sources[source][line - 1].strip()}")


if __name__ == "__main__":
    main()
