"""A machine without RTL: commands executed on numpy memories, in a random order.

``ModelBackend`` does what ``hdl/layouts.py`` and ``hdl/registers.py`` say and no more. Every step
it takes one of the things that could happen next: a card fetches a command, starts the one at the
head of a queue, sends a packet, a packet arrives, a GEMM runs, a completion record is written. Only
what the documents promise is in order: a queue's commands start in order, packets between two cards
arrive in order, per direction and class. Everything else is drawn from the seed, and cards run at
speeds that differ a hundredfold.

``cycle`` counts steps, so its differences order events and measure nothing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from drivers.backend import Completions, StallError, WaitTimeout
from hdl import layouts
from hdl.compute.elements import ELEMENT_BYTES
from hdl.compute.reduce import combine
from hdl.layouts import NO_COUNTER, Format, Op, Status
from hdl.nic.check import check_command
from hdl.params import CardParams
from hdl.registers import IDENT, RegisterMap
from hdl.topology import Topology

_MASK32 = 0xFFFF_FFFF
_PREFETCH = 8


@dataclass
class _Command:
    queue: int
    raw: bytes
    posted: int
    fields: dict = field(init=False)
    seen: int | None = None
    started: int = 0
    sent: int = 0
    packets: int = 0
    answered: int = 0
    status: Status = Status.OK
    peer: int = 0
    over: bool = False
    refusal: Status | None = None

    def __post_init__(self) -> None:
        self.fields = layouts.unpack(layouts.Command, self.raw)


@dataclass
class _Packet:
    command: _Command
    source: int
    address: int
    data: np.ndarray


class _Card:
    def __init__(self, backend: ModelBackend, rank: int) -> None:
        nic = backend.params.nic
        self.backend, self.rank = backend, rank
        self.memory = np.full(backend.memory_bytes, 0xA5, np.uint8)
        self.registers: dict[int, int] = {}
        self.counters = [0] * nic.counters
        #: Commands fetched per queue, the direct queue last.
        self.queues: list[deque[_Command]] = [deque() for _ in range(nic.queues + 1)]
        self.heads = [0] * nic.queues
        #: Stamp of the latest doorbell of each queue: what commands fetched from now on report.
        self.bells = [0] * nic.queues
        self.window = [0] * 8
        self.direct_taken = self.direct_lost = 0
        self.running: list[_Command] = []
        self.unfinished: list[list[_Command]] = [[] for _ in range(nic.queues + 1)]
        self.transmit: deque[_Command] = deque()
        self.gemms: deque[_Command] = deque()
        self.records: deque[tuple[_Command, Status, int]] = deque()
        self.record_tail = self.errors = self.waited = self.sent = self.received = 0

    def word(self, name: str, index: int = 0) -> int:
        return self.registers.get(getattr(self.backend.map, name).at(index), 0)

    # --- what can happen

    def fetch(self, queue: int) -> bool:
        tail = self.word("queue_tail", queue)
        if self.heads[queue] == tail or len(self.queues[queue]) >= _PREFETCH:
            return False
        entry = self.heads[queue] & self.word("queue_size", queue) - 1
        place = self.word("queue_base", queue) + 64 * entry
        self.heads[queue] = self.heads[queue] + 1 & _MASK32
        self.queues[queue].append(
            _Command(queue, self.memory[place:place + 64].tobytes(), self.bells[queue]))
        return True

    def blocked(self, queue: int) -> int:
        """``queue_wait`` of the command at the head of a queue."""
        if not self.queues[queue]:
            return 0
        command = self.queues[queue][0]
        if self._refusal(command) is not Status.OK:
            return 0
        fields = command.fields
        if fields["flags"]["wait"]:
            total = self.counters[fields["wait_counter"]]
            if (total - fields["wait_value"]) & _MASK32 >= 1 << 31:
                return 1 | fields["wait_counter"] << 8 | fields["wait_value"] << 32
        if fields["op"] is Op.FENCE and self.unfinished[queue]:
            return 2
        return 0 if len(self.running) < self.backend.params.nic.slots else 2

    def _refusal(self, command: _Command) -> Status:
        if command.refusal is None:
            command.refusal = check_command(self.backend.params, command.fields,
                                            self.backend.memory_bytes)
        return command.refusal

    def start(self, queue: int) -> bool:
        if not self.queues[queue]:
            return False
        command = self.queues[queue][0]
        if command.seen is None:
            command.seen = self.backend.now
        if self.blocked(queue) or len(self.running) >= self.backend.params.nic.slots:
            return False
        self.queues[queue].popleft()
        if queue == len(self.queues) - 1:
            self.direct_taken = self.direct_taken + 1 & _MASK32
        command.started = self.backend.now
        if command.fields["flags"]["wait"]:
            self.waited += command.started - command.seen
        self.running.append(command)
        self.unfinished[queue].append(command)
        command.status = self._refusal(command)
        op = command.fields["op"]
        if command.status is not Status.OK or op in (Op.NOP, Op.FENCE):
            self.finish(command)
        elif op is Op.GEMM:
            self.gemms.append(command)
        else:
            self.transmit.append(command)
        return True

    def send(self) -> bool:
        if not self.transmit:
            return False
        command = self.transmit[0]
        fields, mtu = command.fields, self.backend.params.nic.mtu
        target, left = fields["target"]["offset"] + command.sent, fields["length"] - command.sent
        size = min(left, mtu - target % mtu)
        source = fields["source"] + command.sent
        peer = self.backend.topology.rank(fields["target"]["node"])
        self.backend.channel(self.rank, peer).append(
            _Packet(command, self.rank, target, self.memory[source:source + size].copy()))
        command.sent += size
        command.packets += 1
        self.sent += 1
        if command.sent == fields["length"]:
            self.transmit.popleft()
            command.over = True
            if not fields["flags"]["ack"]:
                self.finish(command)
        return True

    def receive(self, packet: _Packet) -> None:
        self.received += 1
        fields = packet.command.fields
        end, counter = packet.address + len(packet.data), fields["target_counter"]
        status, read_end = Status.OK, end
        if fields["flags"]["addend"]:
            read_end += fields["addend"] - fields["target"]["offset"]
        if max(end, read_end) > len(self.memory):
            status = Status.TARGET_RANGE
        elif counter >= len(self.counters) and counter != NO_COUNTER:
            status = Status.BAD_COUNTER
        else:
            place = self.memory[packet.address:end]
            if fields["op"] is Op.REDUCE:
                kind = f"u{ELEMENT_BYTES[fields['dtype']]}"
                start = packet.address
                if fields["flags"]["addend"]:
                    start += fields["addend"] - fields["target"]["offset"]
                old = self.memory[start:start + len(packet.data)].view(kind)
                place[:] = combine(old, packet.data.view(kind), fields["dtype"],
                                   fields["redop"]).view(np.uint8)
            else:
                place[:] = packet.data
            if counter != NO_COUNTER:
                self.counters[counter] = self.counters[counter] + 1 & _MASK32
        if fields["flags"]["ack"] or status is not Status.OK:
            self.sent += 1
            self.backend.channel(self.rank, packet.source, response=True).append(
                (packet.command, status, self.rank))

    def answer(self, command: _Command, status: Status, peer: int) -> None:
        self.received += 1
        if not command.fields["flags"]["ack"]:
            self.errors += 1
            self.records.append((command, status, self.backend.topology.node_id(peer)))
            return
        command.answered += 1
        if status is not Status.OK:
            command.status, command.peer = status, self.backend.topology.node_id(peer)
        if command.over and command.answered == command.packets:
            self.finish(command)

    def multiply(self) -> bool:
        if not self.gemms:
            return False
        command = self.gemms.popleft()
        place = command.fields["source"]
        gemm(self.memory, layouts.unpack(layouts.Descriptor,
                                         self.memory[place:place + 128].tobytes()))
        self.finish(command)
        return True

    def finish(self, command: _Command) -> None:
        self.unfinished[command.queue].remove(command)
        counter = command.fields["local_counter"]
        if command.status is Status.OK and counter != NO_COUNTER:
            self.counters[counter] = self.counters[counter] + 1 & _MASK32
        if command.status is not Status.OK:
            self.errors += 1
        if command.fields["flags"]["signal"] or command.status is not Status.OK:
            self.records.append((command, command.status, command.peer))
        else:
            self.running.remove(command)

    def record(self) -> bool:
        size = self.word("completion_size")
        if not self.records or self.record_tail - self.word("completion_head") & _MASK32 >= size:
            return False
        command, status, peer = self.records.popleft()
        entry = self.record_tail & size - 1
        raw = layouts.pack(layouts.Completion, {
            "phase": 1 - (self.record_tail // size & 1), "queue": command.queue,
            "op": command.fields["op"], "status": status, "tag": command.fields["tag"],
            "peer": peer, "posted": command.posted, "started": command.started,
            "ended": self.backend.now})
        place = self.word("completion_base") + 32 * entry
        self.memory[place:place + 32] = np.frombuffer(raw, np.uint8)
        self.record_tail = self.record_tail + 1 & _MASK32
        if command in self.running:
            self.running.remove(command)
        return True

    # --- registers

    def register_write(self, offset: int, value: int) -> None:
        table = self.backend.map
        for queue in range(len(self.heads)):
            if offset == table.queue_tail.at(queue):
                self.bells[queue] = self.backend.now
        if table.direct.offset <= offset < table.direct.offset + 64:
            word = (offset - table.direct.offset) // 8
            self.window[word] = value
            if word == 7:
                self._post_direct()
            return
        self.registers[offset] = value

    def _post_direct(self) -> None:
        if len(self.queues[-1]) == self.backend.params.nic.direct_depth:
            self.direct_lost += 1
            return
        raw = b"".join(word.to_bytes(8, "little") for word in self.window)
        self.queues[-1].append(_Command(len(self.queues) - 1, raw, self.backend.now))

    def register_read(self, offset: int) -> int:
        table = self.backend.map
        plain = {table.ident.at(): IDENT,
                 table.node.at(): self.backend.topology.node_id(self.rank),
                 table.completion_tail.at(): self.record_tail,
                 table.errors.at(): self.errors, table.waited.at(): self.waited,
                 table.direct_taken.at(): self.direct_taken,
                 table.direct_lost.at(): self.direct_lost,
                 table.packets_sent.at(): self.sent, table.packets_received.at(): self.received,
                 table.slots_busy.at(): (1 << len(self.running)) - 1}
        if offset in plain:
            return plain[offset]
        for queue, head in enumerate(self.heads):
            if offset == table.queue_head.at(queue):
                return head
        for queue in range(len(self.queues)):
            if offset == table.queue_wait.at(queue):
                return self.blocked(queue)
        for counter, total in enumerate(self.counters):
            if offset == table.counter.at(counter):
                return total
        return self.registers.get(offset, 0)


class ModelBackend:
    """See the module. ``slow`` names cards that sleep until ``late`` steps have passed."""

    def __init__(self, topology: Topology, params: CardParams, *, memory_bytes: int = 1 << 17,
                 seed: int = 0, slow: Sequence[int] = (), late: int = 0) -> None:
        self.topology, self.params, self.memory_bytes = topology, params, memory_bytes
        self.map = RegisterMap(params.nic, params.router.links)
        self.now = 0
        self.closed = False
        self.cards = [_Card(self, rank) for rank in range(topology.cards)]
        self._random = random.Random(seed)
        self._slow, self._late = set(slow), late
        self._channels: dict[tuple[int, int, bool], deque] = {}
        self._actors: list[tuple[str, int, int]] = []
        for rank in range(topology.cards):
            speed = self._random.choice((1, 10, 100))
            queues = range(params.nic.queues)
            self._actors += speed * (
                [("fetch", rank, queue) for queue in queues]
                + [("start", rank, queue) for queue in (*queues, params.nic.queues)]
                + [("send", rank, 0), ("multiply", rank, 0), ("record", rank, 0)])
        self._everyone = sorted(set(self._actors))

    def channel(self, source: int, target: int, response: bool = False) -> deque:
        key = (source, target, response)
        if key not in self._channels:
            self._channels[key] = deque()
        return self._channels[key]

    # --- time

    def _act(self, actor: tuple[str, int, int]) -> bool:
        name, rank, queue = actor
        if rank in self._slow and self.now < self._late:
            return False
        method = getattr(self.cards[rank], name)
        return method(queue) if name in ("fetch", "start") else method()

    def _deliver(self, key: tuple[int, int, bool]) -> bool:
        channel = self._channels[key]
        if not channel:
            return False
        item = channel.popleft()
        if key[2]:
            self.cards[key[1]].answer(*item)
        else:
            self.cards[key[1]].receive(item)
        return True

    def _step(self) -> bool:
        """Let one thing happen; False if nothing can."""
        self.now += 1
        channels = list(self._channels)
        for _ in range(16):
            if channels and self._random.random() < 0.4:
                if self._deliver(self._random.choice(channels)):
                    return True
            elif self._act(self._random.choice(self._actors)):
                return True
        self._random.shuffle(channels)
        start = self._random.randrange(len(self._everyone))
        if (any(self._deliver(key) for key in channels)
                or any(self._act(actor) for actor in
                       self._everyone[start:] + self._everyone[:start])):
            return True
        if self._slow and self.now < self._late:  # nothing but sleep: let it pass
            self.now = min(self._late, self.now + 1000)
            return True
        return False

    @property
    def cycle(self) -> int:
        quantum = self.params.host_quantum
        return -(-self.now // quantum) * quantum

    def _align(self) -> None:
        while self.now % self.params.host_quantum:
            self._step()

    # --- the protocol

    def register_write(self, rank: int, offset: int, value: int) -> None:
        self._align()
        self.cards[rank].register_write(offset, value)

    def register_read(self, rank: int, offset: int) -> int:
        self.advance(1)
        return self.cards[rank].register_read(offset)

    def read_registers(self, requests: Sequence[tuple[int, int]]) -> list[int]:
        return [self.register_read(node, offset) for node, offset in requests]

    def memory_write(self, rank: int, address: int, data: bytes | np.ndarray) -> None:
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        assert address >= 0 and address + len(raw) <= self.memory_bytes
        self.cards[rank].memory[address:address + len(raw)] = raw

    def memory_read(self, rank: int, address: int, size: int) -> np.ndarray:
        assert address >= 0 and address + size <= self.memory_bytes
        return self.cards[rank].memory[address:address + size].copy()

    def wait(self, conditions: Sequence[Completions], timeout: int) -> None:
        end = self.now + timeout
        while any((self.cards[c.rank].record_tail - c.total) & _MASK32 >= 1 << 31
                  for c in conditions):
            if self.now >= end:
                raise WaitTimeout(f"no completion within {timeout} cycles")
            if not self._step():
                raise StallError("nothing can happen")
        self._align()

    def advance(self, cycles: int) -> None:
        end = self.now + cycles
        while self.now < end:
            self._step()
        self._align()

    def close(self) -> None:
        self.closed = True


def gemm(memory: np.ndarray, fields: dict) -> None:
    """Exact products and sums, one rounding."""
    m, n, k = fields["m"], fields["n"], fields["k"]
    a = _matrix(memory, fields["a"], m, k, fields["lda"], fields["a_format"])
    b = (_matrix(memory, fields["b"], n, k, fields["ldb"], fields["b_format"]).T
         if fields["b_transposed"] else
         _matrix(memory, fields["b"], k, n, fields["ldb"], fields["b_format"]))
    for row in range(m):
        place = fields["c"] + row * fields["ldc"]
        line = np.array([_dot(a[row], b[:, column]) for column in range(n)], np.float32)
        memory[place:place + 4 * n] = line.view(np.uint8)


def _matrix(memory: np.ndarray, base: int, rows: int, columns: int, pitch: int,
            kind: Format) -> np.ndarray:
    numpy = {Format.E4M3: ml_dtypes.float8_e4m3fn, Format.E5M2: ml_dtypes.float8_e5m2}[kind]
    lines = [memory[base + row * pitch:base + row * pitch + columns] for row in range(rows)]
    return np.array(lines, np.uint8).reshape(rows, columns).view(numpy).astype(np.float64)


def _dot(a: np.ndarray, b: np.ndarray) -> np.float32:
    products = a * b
    if not np.isfinite(products).all():
        return np.float32(products.sum())
    total = sum(int(product * 2.0 ** 32) for product in products)
    if total == 0:
        return np.float32(0)
    drop = max(0, abs(total).bit_length() - 24)
    kept, rest = divmod(abs(total), 1 << drop)
    kept += 2 * rest > 1 << drop or (2 * rest == 1 << drop and kept % 2 == 1)
    return np.float32(np.copysign(np.ldexp(np.float64(kept), drop - 32), total))
