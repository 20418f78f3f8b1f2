"""What every cocotb bench shares: building a block, clock and reset, streams, a watchdog.

A test file holds the bench's coroutines (``@cocotb.test()``) and a pytest function that calls
:func:`run_bench` on its own module. Blocks are built once per content, in ``sim_build/bench``.

Everything random comes from the one seed of ``tests/conftest.py``, which is printed.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer
from filelock import FileLock

from hdl.ports import memory_index_bits
from hdl.verilog import Generated, generate

__all__ = ["Bench", "MemoryPorts", "Sink", "Source", "elaborated", "run_bench"]

ROOT = Path(__file__).resolve().parent.parent
#: Benches see the ports of their block and nothing inside, which the simulator is free to optimise.
BUILD_ARGS = ["-Wno-fatal", "--no-public-flat-rw", "--public-depth", "1"]
BUILD = Path(os.environ.get("SUPERNODE_BENCH_BUILD", ROOT / "sim_build" / "bench"))


def _sources() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text()
            for folder in ("hdl", "tests") for path in sorted((ROOT / folder).rglob("*.py"))}


#: The files that blocks are made of, as this process finds them.
SOURCES = _sources()


def elaborated(factory: Callable[..., Any], *params: Any, name: str | None = None) -> Generated:
    """The Verilog of ``factory(*params)``, for blocks that take seconds: that of a block of
    :mod:`hdl` is kept as long as no file of that package changes, and that of a block of the tests
    as long as no file of the tests does either."""
    from emu.build import Builder

    builder, name = Builder(), name or factory.__name__.lower()
    if factory.__module__.startswith("hdl."):
        return builder.verilog(factory, *params, name)
    if _sources() != SOURCES:
        return generate(factory(*params), name)
    parts = (factory.__module__, factory.__qualname__, repr(params), name, *SOURCES,
             *SOURCES.values())
    return builder.elaborated(f"the {name} bench", f"verilog-{name}", parts,
                              lambda: generate(factory(*params), name))


def run_bench(block: Any, module: str, *, testcase: str | list[str] | None = None,
              env: dict[str, str] | None = None, name: str | None = None) -> None:
    """Build ``block`` (an Amaranth component, or Verilog that was generated from some) under
    Verilator and run the cocotb tests of ``module`` (pass ``__name__``) on it.

    ``env`` reaches the coroutines as environment variables, for parameters of the bench. The
    build is keyed by the Verilog's content; two processes may ask for the same one at once.
    """
    from cocotb_tools.runner import get_runner

    from emu.cache import content_key
    from emu.toolchain import find_toolchain

    toolchain = find_toolchain()
    if not isinstance(block, Generated):
        block = generate(block, name or type(block).__name__.lower())
    top, text = block.name, block.text
    key = content_key(toolchain.version, *BUILD_ARGS, text)[:16]
    folder = BUILD / f"{top}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{top}.v"
    runner = get_runner("verilator")
    saved = dict(os.environ)
    os.environ.update(toolchain.environment(OPT_FAST="-O1", OPT_GLOBAL="-O0"))
    try:
        with FileLock(folder / "lock"):
            done = folder / "built"
            if not done.exists():
                source.write_text(text)
                _lend_runtime(toolchain.version, folder)
                runner.build(sources=[source], hdl_toplevel=top, build_dir=folder,
                             build_args=BUILD_ARGS, always=True, log_file=folder / "build.log")
                done.touch()
                _keep_runtime(toolchain.version, folder)
        test_seed = os.environ["SUPERNODE_SEED"]
        print(f"seed {test_seed} (repeat with --seed {test_seed})")
        work = folder / f"run-{os.getpid()}"
        results = runner.test(
            test_module=module, hdl_toplevel=top, hdl_toplevel_lang="verilog", build_dir=folder,
            test_dir=work,
            testcase=testcase, seed=test_seed, results_xml=str(work / "results.xml"),
            extra_env={**(env or {}), "PYTHONPATH": str(ROOT), "COCOTB_LOG_LEVEL": "INFO"})
    finally:
        os.environ.clear()
        os.environ.update(saved)
    from cocotb_tools.runner import get_results
    total, failed = get_results(Path(results))
    assert total and not failed, f"{failed} of {total} tests failed (seed {test_seed})"


def _runtime(version: str) -> Path:
    return BUILD / f"runtime-{hashlib.sha256(version.encode()).hexdigest()[:16]}"


def _lend_runtime(version: str, folder: Path) -> None:
    """Give a new build the simulator's own objects: the same for every block, most of the time."""
    for item in _runtime(version).glob("verilated*.o"):
        shutil.copy(item, folder / item.name)
        soon = time.time() + 30  # newer than the makefile that is about to be written
        os.utime(folder / item.name, (soon, soon))


def _keep_runtime(version: str, folder: Path) -> None:
    kept = _runtime(version)
    if kept.exists():
        return
    partial = kept.with_name(f"{kept.name}.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    for item in folder.glob("verilated*.o"):
        shutil.copy(item, partial / item.name)
    try:
        partial.rename(kept)
    except OSError:
        shutil.rmtree(partial)  # another process was faster


class Bench:
    """Clock, reset, time and a watchdog for a top whose clock is ``clk`` and reset ``rst``.

    Every cycle has two phases: *drive*, right after the falling edge, in which inputs change, and
    *sample*, right before the rising edge, when all combinational logic has settled. What is seen
    in the sample phase is what the registers see: a transfer is ``valid`` and ``ready`` there.

    Parameters
    ----------
    dut
        The cocotb handle.
    limit : int
        Cycles after which :meth:`until` fails, naming what the reports say is unfinished.
    """

    def __init__(self, dut: Any, *, limit: int = 100_000) -> None:
        self.dut = dut
        self.limit = limit
        #: Number of the current cycle; 0 is the first one without reset.
        self.cycle = 0
        self.rng = random.Random(cocotb.RANDOM_SEED)
        self._drive: list[Callable[[], None]] = []
        self._sample: list[Callable[[], None]] = []
        self._reports: list[Callable[[], str]] = []

    def on_drive(self, action: Callable[[], None]) -> None:
        """Run ``action`` in every drive phase."""
        self._drive.append(action)

    def on_sample(self, action: Callable[[], None]) -> None:
        """Run ``action`` in every sample phase."""
        self._sample.append(action)

    def on_stuck(self, report: Callable[[], str]) -> None:
        """Ask ``report`` for a line about what is unfinished ("" if nothing) when time is up."""
        self._reports.append(report)

    async def start(self) -> None:
        """Start the clock, hold reset for three cycles, then begin cycle 0."""
        self.dut.rst.value = 1
        cocotb.start_soon(Clock(self.dut.clk, 10, "ns").start(start_high=False))
        for _ in range(3):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.cycle = -1
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            self.cycle += 1
            for action in self._drive:
                action()
            await Timer(4, "ns")
            for action in self._sample:
                action()
            await FallingEdge(self.dut.clk)

    async def cycles(self, count: int) -> None:
        """Let ``count`` cycles pass."""
        for _ in range(count):
            await FallingEdge(self.dut.clk)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition()`` holds.

        Raises
        ------
        AssertionError
            After ``limit`` cycles, with ``what`` and all reports.
        """
        start = self.cycle
        while not condition():
            if self.cycle - start > self.limit:
                raise AssertionError(
                    f"cycle {self.cycle}: no {what} within {self.limit} cycles; {self.stuck()}")
            await FallingEdge(self.dut.clk)

    def stuck(self) -> str:
        """What the reports say is unfinished."""
        return "; ".join(line for report in self._reports if (line := report())) or "nothing waits"


class Pin:
    """An input of the block, written only when its value changes: a write takes longer than most of
    what a bench does in a cycle."""

    def __init__(self, handle: Any, value: int = 0) -> None:
        self._handle, self.value = handle, value
        handle.value = value

    def set(self, value: int) -> None:
        if value != self.value:
            self._handle.value = self.value = value


class Source:
    """Drives an input stream from a queue; offers with probability ``rate`` each cycle.

    What is offered stays until it is taken, as streams demand.
    """

    def __init__(self, bench: Bench, prefix: str, *, rate: float = 1.0) -> None:
        payload, valid, self._ready = (
            getattr(bench.dut, f"{prefix}__{part}") for part in ("payload", "valid", "ready"))
        self._payload, self._valid = Pin(payload), Pin(valid)
        self._bench = bench
        self.rate = rate
        self.queue: deque[int] = deque()
        #: (cycle, payload) of every transfer.
        self.sent: list[tuple[int, int]] = []
        self._offered = False
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)
        bench.on_stuck(lambda: f"{prefix}: {len(self.queue)} to send" if self.queue else "")

    def send(self, *payloads: int) -> None:
        self.queue.extend(payloads)

    @property
    def empty(self) -> bool:
        return not self.queue

    def _drive(self) -> None:
        if not self._offered and self.queue and self._bench.rng.random() < self.rate:
            self._offered = True
            self._payload.set(self.queue[0])
        self._valid.set(int(self._offered))

    def _sample(self) -> None:
        if self._offered and int(self._ready.value):
            self.sent.append((self._bench.cycle, self.queue.popleft()))
            self._offered = False


class Sink:
    """Takes from an output stream; ready with probability ``rate`` each cycle.

    Checks that an offer is never withdrawn nor changed before it is taken.
    """

    def __init__(self, bench: Bench, prefix: str, *, rate: float = 1.0) -> None:
        self._payload, self._valid, ready = (
            getattr(bench.dut, f"{prefix}__{part}") for part in ("payload", "valid", "ready"))
        self._ready = Pin(ready)
        self._bench, self._prefix = bench, prefix
        self.rate = rate
        #: (cycle, payload) of every transfer.
        self.received: list[tuple[int, int]] = []
        self._held: int | None = None
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)

    @property
    def payloads(self) -> list[int]:
        return [payload for _, payload in self.received]

    def _drive(self) -> None:
        self._ready.set(int(self._bench.rng.random() < self.rate))

    def _sample(self) -> None:
        offer = int(self._payload.value) if int(self._valid.value) else None
        if self._held is not None and offer != self._held:
            raise AssertionError(f"cycle {self._bench.cycle}: {self._prefix} withdrew or changed "
                                 f"an offer before it was taken")
        self._held = offer
        if offer is not None and int(self._ready.value):
            self.received.append((self._bench.cycle, offer))
            self._held = None


class MemoryPorts:
    """A memory behind read and write ports of a block, with latency and random stalls.

    Parameters
    ----------
    reads, writes : list of str
        Prefixes of the ports, e.g. ``"read__0"`` and ``"write"``.
    size : int
        Bytes.
    latency : int
        Cycles from an accepted read request to its response, at the least.
    rate : float
        Probability that a port is ready, and that a response that is due is given, per cycle.
    """

    def __init__(self, bench: Bench, reads: list[str], writes: list[str], *, size: int,
                 flit_bytes: int = 32, latency: int = 8, rate: float = 1.0) -> None:
        self.data = bytearray(size)
        self.flit_bytes, self.latency, self.rate = flit_bytes, latency, rate
        self._bench = bench
        self._reads = [_ReadPort(self, bench.dut, prefix) for prefix in reads]
        self._writes = [_WritePort(self, bench.dut, prefix) for prefix in writes]
        #: (cycle, byte address, data, mask) of every accepted write.
        self.log: list[tuple[int, int, bytes, int]] = []
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)
        bench.on_stuck(lambda: f"{n} memory responses due" if (n := sum(
            len(port.due) for port in self._reads)) else "")

    def _drive(self) -> None:
        for port in self._reads:
            port.drive()
        for write in self._writes:
            write.drive()

    def _sample(self) -> None:
        # Reads first: a read sees the writes accepted in earlier cycles only.
        for port in self._reads:
            port.sample()
        for write in self._writes:
            write.sample()

    def chance(self) -> bool:
        return self.rate >= 1.0 or self._bench.rng.random() < self.rate

    @property
    def cycle(self) -> int:
        return self._bench.cycle


class _ReadPort:
    def __init__(self, memory: MemoryPorts, dut: Any, prefix: str) -> None:
        self._memory = memory
        self._prefix = prefix
        request, response = f"{prefix}__request", f"{prefix}__response"
        self._payload, self._valid, ready = (
            getattr(dut, f"{request}__{part}") for part in ("payload", "valid", "ready"))
        self._ready, self._data, self._data_valid = map(Pin, (
            ready, *(getattr(dut, f"{response}__{part}") for part in ("payload", "valid"))))
        self._index_bits = memory_index_bits(memory.flit_bytes)
        #: (cycle from which it may be given, response payload)
        self.due: deque[tuple[int, int]] = deque()

    def drive(self) -> None:
        memory = self._memory
        self._ready.set(int(memory.chance()))
        give = bool(self.due) and self.due[0][0] <= memory.cycle and memory.chance()
        self._data_valid.set(int(give))
        if give:
            self._data.set(self.due.popleft()[1])

    def sample(self) -> None:
        if not (self._ready.value and int(self._valid.value)):
            return
        memory = self._memory
        payload = int(self._payload.value)
        index = payload & (1 << self._index_bits) - 1
        tag = payload >> self._index_bits
        size = memory.flit_bytes
        if (index + 1) * size > len(memory.data):
            raise AssertionError(f"cycle {memory.cycle}: {self._prefix} reads flit {index} beyond "
                                 f"a memory of {len(memory.data)} bytes")
        word = int.from_bytes(memory.data[index * size:(index + 1) * size], "little")
        self.due.append((memory.cycle + memory.latency, word | tag << 8 * size))


class _WritePort:
    def __init__(self, memory: MemoryPorts, dut: Any, prefix: str) -> None:
        self._memory = memory
        self._prefix = prefix
        self._payload, self._valid, ready = (
            getattr(dut, f"{prefix}__request__{part}") for part in ("payload", "valid", "ready"))
        self._ready = Pin(ready)

    def drive(self) -> None:
        self._ready.set(int(self._memory.chance()))

    def sample(self) -> None:
        if not (self._ready.value and int(self._valid.value)):
            return
        memory = self._memory
        size = memory.flit_bytes
        payload = int(self._payload.value)
        word = (payload & (1 << 8 * size) - 1).to_bytes(size, "little")
        mask = payload >> 8 * size & (1 << size) - 1
        address = (payload >> 9 * size) * size
        if address + size > len(memory.data):
            raise AssertionError(f"cycle {memory.cycle}: {self._prefix} writes at {address} beyond "
                                 f"a memory of {len(memory.data)} bytes")
        memory.log.append((memory.cycle, address, word, mask))
        if mask == (1 << size) - 1:
            memory.data[address:address + size] = word
            return
        for lane in range(size):
            if mask >> lane & 1:
                memory.data[address + lane] = word[lane]
