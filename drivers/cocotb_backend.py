"""The drivers inside a cocotb test: a machine in RTL under a simulator, memory in Python.

The driver code is synchronous and runs in a thread of its own; :meth:`CocotbBackend.run` starts it
and every call that lets time pass steps the simulation. Between such calls no time passes. A cycle
has two phases, as in the project's other benches: inputs change right after the falling edge of the
clock, outputs are read shortly before the rising edge, when everything has settled.

Time is what the engine's is: the host acts at multiples of ``host_quantum``; register writes made
at one instant reach each card one per cycle from that instant on; a memory read accepted in cycle t
is answered in cycle t + ``memory.latency`` with what was written in cycles before t; every memory
port moves a flit per cycle and never stalls.

The design is any top with the boundaries of :mod:`hdl.ports`, links joined inside:
:data:`FLAT_NAMES` fits :class:`hdl.flat.FlatFabric`, :data:`CARD_NAMES` a top of whole cards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import FallingEdge, Timer

from hdl.layouts import CYCLE_BITS
from hdl.params import CardParams
from hdl.ports import memory_index_bits, pack_dims
from hdl.topology import Topology

from .backend import Completions, StallError, WaitTimeout

__all__ = ["CARD_NAMES", "CocotbBackend", "FLAT_NAMES", "PortNames"]

T = TypeVar("T")

_PERIOD_NS = 10
#: From the falling edge to where outputs are read; the rising edge is half a period after it.
_SETTLE_NS = 4
_RESET_CYCLES = 4


@dataclass(frozen=True)
class PortNames:
    """Names of a top's ports; ``{rank}`` and ``{port}`` stand for numbers."""

    #: Before ``config__…``, ``host__…``, ``memory__…``, ``idle`` and ``wake``.
    network: str
    compute_read: str
    compute_write: str
    #: Before ``memory_bytes``, ``idle`` and ``wake`` of compute tiles that have them.
    compute: str | None
    now: str = "now"


FLAT_NAMES = PortNames(network="network__{rank}__", compute="compute__{rank}__",
                       compute_read="compute__{rank}__read__{port}",
                       compute_write="compute__{rank}__write")
CARD_NAMES = PortNames(network="card{rank}__", compute=None,
                       compute_read="card{rank}__compute_read__{port}",
                       compute_write="card{rank}__compute_write")


class CocotbBackend:
    """A machine in a simulator.

    Parameters
    ----------
    dut
        The top's handle; its clock is ``clk``, its reset ``rst``.
    topology, params
        What the top was made for.
    memory_bytes : int
        Per card.
    names : PortNames
        How the top calls its ports.
    """

    def __init__(self, dut: Any, topology: Topology, params: CardParams, *,
                 memory_bytes: int = 1 << 20, names: PortNames = FLAT_NAMES) -> None:
        self._dut, self._topology, self._params = dut, topology, params
        self._memory_bytes = memory_bytes
        self._cycle = 0
        self._now = getattr(dut, names.now)
        self._cards = [_Card(self, dut, names, rank) for rank in range(topology.cards)]
        #: Cycles in a row in which nothing anywhere changed state.
        self._quiet = 0

    async def start(self) -> None:
        """Start the clock and bring the machine out of reset."""
        self._dut.rst.value = 1
        self._now.value = 0
        Clock(self._dut.clk, _PERIOD_NS, unit="ns").start(start_high=False)
        for _ in range(_RESET_CYCLES):
            await FallingEdge(self._dut.clk)
        self._dut.rst.value = 0

    async def run(self, driver: Callable[[CocotbBackend], T]) -> T:
        """Run blocking driver code on this machine and return what it returns."""
        return await bridge(driver)(self)

    # --- time

    async def _run_cycles(self, count: int) -> None:
        for _ in range(count):
            self._now.value = self._cycle
            for card in self._cards:
                card.drive(self._cycle)
            await Timer(_SETTLE_NS, "ns")
            busy = [card.sample(self._cycle) for card in self._cards]
            self._quiet = 0 if any(busy) else self._quiet + 1
            await FallingEdge(self._dut.clk)
            self._cycle += 1

    def _pass_time(self, cycles: int) -> None:
        """Let at least ``cycles`` cycles pass, up to an instant of the host."""
        quantum = self._params.host_quantum
        end = -(-(self._cycle + cycles) // quantum) * quantum
        resume(self._run_cycles)(end - self._cycle)

    # --- the protocol

    @property
    def params(self) -> CardParams:
        return self._params

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def memory_bytes(self) -> int:
        return self._memory_bytes

    @property
    def cycle(self) -> int:
        return self._cycle

    def register_write(self, rank: int, offset: int, value: int) -> None:
        self._cards[rank].host.append((True, offset, value))

    def register_read(self, rank: int, offset: int) -> int:
        card = self._cards[rank]
        card.host.append((False, offset, 0))
        wanted = card.reads_done + sum(not write for write, _, _ in card.host)
        for _ in range(64 + len(card.host)):
            self._pass_time(1)
            if card.reads_done >= wanted:
                return card.read_value
        raise WaitTimeout(f"card {rank} does not answer the read of register {offset:#x}")

    def read_registers(self, requests: Sequence[tuple[int, int]]) -> list[int]:
        return [self.register_read(node, offset) for node, offset in requests]

    def memory_write(self, rank: int, address: int, data: bytes | np.ndarray) -> None:
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        self._slice(rank, address, len(raw))[:] = raw

    def memory_read(self, rank: int, address: int, size: int) -> np.ndarray:
        return self._slice(rank, address, size).copy()

    def _slice(self, rank: int, address: int, size: int) -> np.ndarray:
        if not 0 <= address <= address + size <= self._memory_bytes:
            raise ValueError(f"card {rank} has no bytes {address:#x} to {address + size:#x}: its "
                             f"memory has {self._memory_bytes:#x}")
        return self._cards[rank].memory[address:address + size]

    def wait(self, conditions: Sequence[Completions], timeout: int) -> None:
        end = self._cycle + timeout
        # Words on links inside the top show nowhere; they arrive within the latency.
        patience = self._params.link.latency + self._params.host_quantum
        self._quiet = 0
        while True:
            open_conditions = [c for c in conditions if
                               self._cards[c.rank].completions - c.total & 0xFFFF_FFFF >= 1 << 31]
            if not open_conditions:
                return
            what = ", ".join(f"card {c.rank} to complete record {c.total} (has "
                             f"{self._cards[c.rank].completions})" for c in open_conditions)
            if self._quiet > patience:
                raise StallError(f"all cards idle at cycle {self._cycle}, waiting for {what}")
            if self._cycle >= end:
                raise WaitTimeout(f"cycle {self._cycle}: waiting for {what}")
            self._pass_time(1)

    def advance(self, cycles: int) -> None:
        self._pass_time(max(1, cycles))

    def close(self) -> None:
        """The simulator belongs to the test."""


class _Pin:
    """An input of the design, written only when its value changes."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._value = 0
        handle.value = 0

    def set(self, value: int) -> None:
        if value != self._value:
            self._value = value
            self._handle.value = value


class _Card:
    """Pins of one card, its host port's queue and its memory."""

    def __init__(self, backend: CocotbBackend, dut: Any, names: PortNames, rank: int) -> None:
        params, topology = backend.params, backend.topology
        network = names.network.format(rank=rank)

        def pin(name: str) -> Any:
            return getattr(dut, network + name)

        self.memory = np.zeros(backend.memory_bytes, np.uint8)
        #: Operations that the host port has still to see: (write, offset, value).
        self.host: deque[tuple[bool, int, int]] = deque()
        self.reads_done = 0
        self.read_value = 0
        self.completions = 0
        self._reads_open = 0
        self._valid, self._write, self._address, self._data = (
            _Pin(pin(f"host__{name}")) for name in ("valid", "write", "address", "data"))
        self._read_valid, self._read_data, self._completions = (
            pin(f"host__{name}") for name in ("read_valid", "read_data", "completions"))
        pin("config__node").value = topology.node_id(rank)
        pin("config__memory_bytes").value = backend.memory_bytes
        pin("config__dims").value = pack_dims(topology.dims(rank, params.router.dims))
        # A flat fabric has them, a top that joins its links for good has not.
        for link in topology.links:
            for name, value in (("up", 1), ("fault", 0)):
                port = f"{network}links__{link.source_port}__{name}"
                if link.source == rank and hasattr(dut, port):
                    getattr(dut, port).value = value
        self._idle, self._wake = [pin("idle")], [pin("wake")]
        if names.compute is not None:
            compute = names.compute.format(rank=rank)
            getattr(dut, f"{compute}memory_bytes").value = backend.memory_bytes
            self._idle.append(getattr(dut, f"{compute}idle"))
            self._wake.append(getattr(dut, f"{compute}wake"))

        flit, latency = params.link.flit_bytes, params.memory.latency
        rails = range(params.rails)
        reads = [f"{network}memory__{rail}__{name}" for rail in rails
                 for name in ("tx_read", "rx_read")]
        reads += [names.compute_read.format(rank=rank, port=port)
                  for port in range(params.compute.read_ports)]
        writes = [f"{network}memory__{rail}__write" for rail in rails]
        writes.append(names.compute_write.format(rank=rank))
        self._reads = [_ReadPort(dut, name, self.memory, flit, latency) for name in reads]
        self._writes = [_WritePort(dut, name, self.memory, flit) for name in writes]

    def drive(self, cycle: int) -> None:
        if self.host:
            write, offset, value = self.host.popleft()
            self._reads_open += not write
            self._valid.set(1)
            self._write.set(int(write))
            self._address.set(offset)
            self._data.set(value)
        else:
            self._valid.set(0)
        for port in self._reads:
            port.drive(cycle)

    def sample(self, cycle: int) -> bool:
        """Take what the card puts out; return whether its state may have changed."""
        busy = bool(self.host or self._reads_open)
        if int(self._read_valid.value):
            self.read_value = int(self._read_data.value)
            self.reads_done += 1
            self._reads_open -= 1
        self.completions = int(self._completions.value)
        # All reads first: a read sees what was written in earlier cycles only.
        for port in self._reads:
            busy |= port.sample(cycle)
        for write in self._writes:
            busy |= write.sample(cycle)
        never = (1 << CYCLE_BITS) - 1
        return (busy or not all(int(idle.value) for idle in self._idle)
                or any(int(wake.value) != never for wake in self._wake))


class _ReadPort:
    def __init__(self, dut: Any, name: str, memory: np.ndarray, flit: int, latency: int) -> None:
        self._name, self._memory, self._flit, self._latency = name, memory, flit, latency
        self._valid = getattr(dut, f"{name}__request__valid")
        self._payload = getattr(dut, f"{name}__request__payload")
        getattr(dut, f"{name}__request__ready").value = 1
        self._data = _Pin(getattr(dut, f"{name}__response__payload"))
        self._data_valid = _Pin(getattr(dut, f"{name}__response__valid"))
        self._index_bits = memory_index_bits(flit)
        #: Responses: (cycle, payload).
        self._due: deque[tuple[int, int]] = deque()

    def drive(self, cycle: int) -> None:
        due = bool(self._due) and self._due[0][0] == cycle
        self._data_valid.set(int(due))
        if due:
            self._data.set(self._due.popleft()[1])

    def sample(self, cycle: int) -> bool:
        if int(self._valid.value):
            payload = int(self._payload.value)
            start = (payload & (1 << self._index_bits) - 1) * self._flit
            _check(self._name, "reads", start, self._flit, self._memory, cycle)
            data = int.from_bytes(self._memory[start:start + self._flit].tobytes(), "little")
            tag = payload >> self._index_bits
            self._due.append((cycle + self._latency, data | tag << 8 * self._flit))
        return bool(self._due)


class _WritePort:
    def __init__(self, dut: Any, name: str, memory: np.ndarray, flit: int) -> None:
        self._name, self._memory, self._flit = name, memory, flit
        self._valid = getattr(dut, f"{name}__request__valid")
        self._payload = getattr(dut, f"{name}__request__payload")
        getattr(dut, f"{name}__request__ready").value = 1

    def sample(self, cycle: int) -> bool:
        if not int(self._valid.value):
            return False
        flit, payload = self._flit, int(self._payload.value)
        start = (payload >> 9 * flit) * flit
        _check(self._name, "writes", start, flit, self._memory, cycle)
        data = (payload & (1 << 8 * flit) - 1).to_bytes(flit, "little")
        mask = payload >> 8 * flit & (1 << flit) - 1
        lanes = np.unpackbits(np.frombuffer(mask.to_bytes(-(-flit // 8), "little"), np.uint8),
                              count=flit, bitorder="little").astype(bool)
        self._memory[start:start + flit][lanes] = np.frombuffer(data, np.uint8)[lanes]
        return True


def _check(port: str, verb: str, start: int, size: int, memory: np.ndarray, cycle: int) -> None:
    if start + size > len(memory):
        raise AssertionError(f"cycle {cycle}: {port} {verb} at {start:#x} beyond a memory of "
                             f"{len(memory):#x} bytes")
