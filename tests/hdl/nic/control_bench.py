"""The world around the control side of a NIC: host, rails, compute and memory, and a reference.

The reference knows the contract only (layouts, registers, :func:`check_command`): it looks at what
comes out, when the run is over, and says what should have.

Time is driven by hand, so that idle cycles can be *skipped* as an engine does: no clock edge, only
``now`` goes on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import Timer

from hdl.layouts import NO_COUNTER, Command, Completion, Op, PacketOp, Status, pack, unpack
from hdl.nic.check import check_command
from hdl.nic.interfaces import Response, Transfer, TransferDone
from hdl.params import CardParams, NicParams, RouterParams
from hdl.ports import GemmDone, GemmRequest, memory_index_bits
from hdl.registers import RegisterMap
from tests.bench import Bench, MemoryPorts

NODE = 0x0203
MEMORY = 1 << 16
RINGS, COMPLETIONS = 0x1000, 0x8000
MASK32 = (1 << 32) - 1
#: Two rails, so that everything that comes per rail may come twice in one cycle.
PARAMS = CardParams(router=RouterParams(dim_ports=(2,), rails=2, table_bits=4),
                    nic=NicParams(queues=2, counters=16, mtu=256, slots=4, direct_depth=4))


def number(layout: Any, **fields: Any) -> int:
    return int.from_bytes(pack(layout, fields), "little")


def reached(total: int, value: int) -> bool:
    return (total - value) & MASK32 < 1 << 31


class SteppedBench(Bench):
    """A bench whose clock is driven by :meth:`cycles`. With ``skip``, a cycle in which ``quiet()``
    says that the block is idle and no input valid has no clock edge."""

    def __init__(self, dut: Any, *, limit: int = 20_000, skip: bool = False) -> None:
        super().__init__(dut, limit=limit)
        self.skip = skip
        self.skipped = 0
        self.quiet = lambda: False
        self.dut.clk.value = 0

    async def start(self) -> None:
        self.dut.rst.value = 1
        for _ in range(3):
            await self._edge()
        self.dut.rst.value = 0
        self.cycle = -1

    async def _edge(self) -> None:
        self.dut.clk.value = 1
        await Timer(5, "ns")
        self.dut.clk.value = 0
        await Timer(1, "ns")

    async def until(self, condition, what: str) -> None:
        start = self.cycle
        while not condition():
            if self.cycle - start > self.limit:
                raise AssertionError(
                    f"cycle {self.cycle}: no {what} within {self.limit} cycles; {self.stuck()}")
            await self.cycles(1)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            self.cycle += 1
            for action in self._drive:
                action()
            await Timer(4, "ns")
            for action in self._sample:
                action()
            if self.skip and self.quiet():
                self.skipped += 1
            else:
                await self._edge()


@dataclass
class Posted:
    """A command and what became of it."""

    fields: dict[str, Any]
    queue: int
    raw: bytes
    refused: Status
    posted: int | None = None
    offered: int | None = None
    started: int | None = None
    #: Cycle of the last event that completion needs.
    last_event: int | None = None
    outcome: tuple[Status, int, int] = (Status.OK, 0, 0)
    record: dict[str, Any] | None = None
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        return self.refused if self.refused is not Status.OK else self.outcome[0]

    @property
    def tag(self) -> int:
        return self.fields["tag"]


class World:
    """Everything around the control side.

    Parameters
    ----------
    rate : float
        Readiness of every port and chance of every event that is due.
    automatic : bool
        Rails and compute answer by themselves.
    deadline : int
        Of the register of that name.
    loss : float
        Share of answers that never come.
    """

    def __init__(self, dut: Any, params: CardParams, *, rate: float = 1.0, latency: int = 8,
                 automatic: bool = True, skip: bool = False, ring: int = 8,
                 records: int = 16, deadline: int = 0, loss: float = 0.0) -> None:
        self.dut, self.params, self.rate = dut, params, rate
        self.automatic, self.deadline, self.loss = automatic, deadline, loss
        self.map = RegisterMap(params.nic, params.router.links)
        self.bench = bench = SteppedBench(dut, skip=skip)
        self.rng = bench.rng
        self.queues, self.direct = params.nic.queues + 1, params.nic.queues
        self.ring, self.ring_records = ring, records
        self.commands: list[Posted] = []
        self.by_tag: dict[int, Posted] = {}
        self.next_tag = 1
        # host
        self.operations: deque[tuple[int, int, int]] = deque()
        self.reading: deque[list[int]] = deque()
        self.posted = [0] * self.queues
        self.head = 0
        self.drain = 1.0
        self.records: list[dict[str, Any]] = []
        self.doorbells: list[list[tuple[int, int]]] = [[] for _ in range(self.queues)]
        # rails
        rails = range(params.rails)
        self.dones: list[list[int]] = [[] for _ in rails]
        self.answers: list[list[int]] = [[] for _ in rails]
        self.adds: list[list[int]] = [[] for _ in rails]
        self.gemms: list[int] = []
        #: By slot and generation; of a GEMM, by slot alone.
        self.in_slot: dict[tuple[int, int] | int, Posted] = {}
        #: Transfers that a rail has not sent, by slot.
        self.sending: dict[int, Posted] = {}
        #: Counters that the fabric keeps adding to, and how often.
        self.pulses: tuple[range, float] = (range(1), 0.0)
        self.increments: list[tuple[int, int]] = []
        self.late: list[list[tuple[int, int, Status, int]]] = [[] for _ in rails]
        self.known: list[tuple[int, int, Status, int] | None] = [None for _ in rails]
        self.strobes = {"sent": 0, "received": 0}
        self.strobe_rate = 0.0
        self.offers: list[tuple[int, int, dict[str, Any]]] = []
        self.live: list[Any] = [None for _ in rails]
        self.live_gemm: Any = None
        self.fetching = False
        self.fetched = [0] * self.queues
        self.load_posted: list[list[int]] = [[] for _ in range(self.queues)]
        self.trace: list[Any] = []
        self.valid_inputs = self.quiet = False
        self.frozen: list[int] | None = None
        self.outputs = [getattr(dut, name) for name in self._output_names()]
        bench.quiet = lambda: self.quiet
        bench.on_drive(self._drive)
        self.memory = MemoryPorts(bench, ["fetch"], ["records"], size=MEMORY, latency=latency,
                                  flit_bytes=params.link.flit_bytes, rate=rate)
        bench.on_sample(self._sample)
        bench.on_stuck(self._unfinished)

    def _output_names(self) -> list[str]:
        names = ["fetch__request__payload", "fetch__request__valid", "records__request__payload",
                 "records__request__valid", "gemm__payload", "gemm__valid", "host__read_valid",
                 "host__read_data", "host__completions"]
        for rail in range(self.params.rails):
            names += [f"transfers__{rail}__payload", f"transfers__{rail}__valid"]
        if self.params.router.table_bits:
            names += ["table__payload", "table__valid"]
        return names

    async def start(self) -> None:
        dut = self.dut
        dut.node.value, dut.memory_bytes.value = NODE, MEMORY
        for rail in range(self.params.rails):
            getattr(dut, f"transfers__{rail}__ready").value = 0
        await self.bench.start()
        self.write("deadline", self.deadline)
        self.write("completion_base", COMPLETIONS)
        self.write("completion_size", self.ring_records)
        for queue in range(self.params.nic.queues):
            self.write("queue_base", RINGS + queue * 0x1000, queue)
            self.write("queue_size", self.ring, queue)
        reads = [self.read("counter", index) for index in range(self.params.nic.counters)]
        await self.settle()
        self.totals = [result[0] for result in reads]

    # --- host

    def write(self, name: str, value: int, index: int = 0) -> None:
        self.operations.append((1, getattr(self.map, name).at(index), value))

    def read(self, name: str, index: int = 0) -> list[int]:
        """Queue a read; its result is appended to the list that is returned."""
        result: list[int] = []
        self.operations.append((0, getattr(self.map, name).at(index), 0))
        self.reading.append(result)
        return result

    async def settle(self) -> None:
        """Wait until the host's operations are done and their results are here."""
        await self.bench.until(lambda: not self.operations and not self.reading, "host operation")

    async def get(self, name: str, index: int = 0) -> int:
        result = self.read(name, index)
        await self.settle()
        return result[0]

    def post(self, queue: int, fields: dict[str, Any], *, ring_doorbell: bool = True) -> Posted:
        """Put one command into a ring's memory, or through the window."""
        fields = {"tag": self.next_tag, "local_counter": NO_COUNTER,
                  "target_counter": NO_COUNTER} | fields
        self.next_tag += 1
        raw = pack(Command, fields)
        command = Posted(fields=unpack(Command, raw), queue=queue, raw=raw,
                         refused=check_command(self.params, fields, MEMORY))
        self.commands.append(command)
        self.by_tag[command.tag] = command
        if queue == self.direct:
            for word in range(8):
                self.operations.append((1, self.map.direct.at(word), int.from_bytes(
                    raw[8 * word:8 * word + 8], "little")))
        else:
            at = RINGS + queue * 0x1000 + self.posted[queue] % self.ring * 64
            self.memory.data[at:at + 64] = raw
            if ring_doorbell:
                self.write("queue_tail", self.posted[queue] + 1, queue)
        self.posted[queue] += 1
        return command

    def _host(self) -> None:
        dut = self.dut
        go = bool(self.operations) and self.rng.random() < max(self.rate, 0.3)
        dut.host__valid.value = int(go)
        self.valid_inputs |= go
        if not go:
            return
        write, address, value = self.operations.popleft()
        dut.host__write.value, dut.host__address.value, dut.host__data.value = (
            write, address, value)
        now = self.bench.cycle
        for queue in range(self.params.nic.queues):
            if write and address == self.map.queue_tail.at(queue):
                self.doorbells[queue].append((now, value))
        if write and address == self.map.direct.at(7):
            self.doorbells[self.direct].append((now, 0))

    def _consume(self) -> None:
        """Read the records that the card says are there; free some."""
        tail = int(self.dut.host__completions.value)
        while len(self.records) < tail:
            at = COMPLETIONS + len(self.records) % self.ring_records * 32
            record = unpack(Completion, bytes(self.memory.data[at:at + 32]))
            phase = 1 - (len(self.records) // self.ring_records & 1)
            assert record["phase"] == phase, f"record {len(self.records)} has phase {not phase}"
            assert not record["reserved0"] and not record["reserved1"]
            self.records.append(record)
        assert tail - self.head <= self.ring_records, "a record was overwritten"
        if self.head < tail and self.rng.random() < self.drain and not self.operations:
            self.head = tail
            self.write("completion_head", self.head)

    # --- rails and compute

    def _drive(self) -> None:
        dut, rng = self.dut, self.rng
        self.valid_inputs = False
        dut.now.value = self.bench.cycle
        self._host()
        counters, chance = self.pulses
        if rng.random() < chance:
            self.adds[rng.randrange(self.params.rails)].append(rng.choice(counters))
        for rail in range(self.params.rails):
            ready = self.automatic and rng.random() < self.rate
            getattr(dut, f"transfers__{rail}__ready").value = int(ready)
            for port, due in (("transfer_done", self.dones), ("responses", self.answers),
                              ("increments", self.adds)):
                go = bool(due[rail]) and rng.random() < self.rate
                getattr(dut, f"{port}__{rail}__valid").value = int(go)
                if go:
                    value = due[rail].pop(rng.randrange(len(due[rail])) if self.rate < 1 else 0)
                    getattr(dut, f"{port}__{rail}__payload").value = value
                    self._event(port, rail, value)
                self.valid_inputs |= go
            for name in self.strobes:
                go = rng.random() < self.strobe_rate
                getattr(dut, f"{name}__{rail}").value = int(go)
                self.strobes[name] += go
                self.valid_inputs |= go
        dut.gemm__ready.value = int(self.automatic and rng.random() < self.rate)
        go = bool(self.gemms) and rng.random() < self.rate
        dut.done__valid.value = int(go)
        if go:
            value = self.gemms.pop(0)
            dut.done__payload.value = value
            slot = unpack(GemmDone, value)["slot"]
            command = self.in_slot.pop(slot)
            command.last_event = self.bench.cycle
        self.valid_inputs |= go

    def _event(self, port: str, rail: int, value: int) -> None:
        now = self.bench.cycle
        if port == "increments":
            self.increments.append((now, value))
            return
        fields = unpack(TransferDone if port == "transfer_done" else Response, value)
        if port == "responses" and not fields["ack"]:
            key = (fields["tag"], fields["peer"], fields["status"], fields["link"])
            if self.known[rail] != key:
                self.known[rail] = key
                self.late[rail].append(key)
            return
        if port == "transfer_done":
            command = self.sending.pop(fields["slot"])
        else:
            command = self.in_slot[fields["slot"], fields["generation"]]
        assert command.tag == command.plan["tag"]
        plan = command.plan
        plan["events"] -= 1
        if command.record or self._expired(command):
            return
        if port == "responses" and fields["status"] is not Status.OK and (
                command.outcome[0] is Status.OK):
            command.outcome = (fields["status"], fields["peer"], fields["link"])
        if not plan["events"] and not plan["lost"]:
            command.last_event = now
            del self.in_slot[plan["key"]]

    def _expired(self, command: Posted) -> bool:
        """Whether its record says that it timed out."""
        return any(record["tag"] == command.tag and record["status"] is Status.TIMEOUT
                   for record in self.records)

    def take_transfer(self, rail: int, transfer: dict[str, Any], command: Posted) -> None:
        """Plan what a rail makes of a transfer: its end, answers, increments, errors."""
        rng, slot = self.rng, transfer["slot"]
        mtu = self.params.nic.mtu
        packets = max(1, -(-(transfer["target"]["offset"] % mtu + transfer["length"]) // mtu))
        assert slot not in self.sending, f"slot {slot} is used twice"
        key = slot, transfer["generation"]
        before = self.in_slot.get(key)
        assert before is None or self._expired(before), f"slot {slot} is used twice"
        self.in_slot[key] = self.sending[slot] = command
        command.plan = {"tag": command.tag, "key": key, "lost": 0,
                        "events": 1 + (packets if transfer["ack"] else 0)}
        self.dones[rail].append(number(TransferDone, slot=slot, packets=packets))
        errors = command.fields["key"]  # the bench keeps the packets that fail here
        for packet in range(packets):
            bad = packet < errors
            if transfer["ack"] and rng.random() < self.loss:
                command.plan["lost"] += 1
                command.plan["events"] -= 1
                continue
            if transfer["ack"] or bad:
                status = Status.TARGET_RANGE if bad else Status.OK
                if bad and rng.random() < 0.3:
                    status = Status.LINK_DOWN
                self.answers[rail].append(number(
                    Response, slot=slot, generation=transfer["generation"], ack=transfer["ack"],
                    status=status, tag=transfer["tag"], peer=transfer["target"]["node"],
                    link=5 if status is Status.LINK_DOWN else 0))
            if not bad and transfer["target"]["node"] == NODE and (
                    transfer["counter"] < self.params.nic.counters):
                self.adds[rail].append(transfer["counter"])

    def _sample(self) -> None:
        dut, now = self.dut, self.bench.cycle
        values = [int(output.value) for output in self.outputs]
        idle = int(dut.idle.value)
        if self.frozen is not None:
            changed = [output._name for output, new, old in zip(
                self.outputs, values, self.frozen, strict=True) if new != old]
            assert not changed, f"cycle {now}: {changed} changed after an idle cycle"
        self.quiet = (bool(idle) and not self.valid_inputs and now < int(dut.wake.value)
                      and not int(dut.fetch__response__valid.value))
        self.frozen = values if self.quiet else None
        self.trace.append(values)
        if int(dut.host__read_valid.value):
            self.reading.popleft().append(int(dut.host__read_data.value))
        self._watch_fetch(now)
        for rail in range(self.params.rails):
            if not int(getattr(dut, f"transfers__{rail}__valid").value):
                continue
            if self.live[rail] is None:
                transfer = unpack(Transfer, int(getattr(
                    dut, f"transfers__{rail}__payload").value))
                command = self.by_tag[transfer["tag"]]
                self._check_transfer(rail, transfer, command)
                command.offered, command.started = now, now - 1
                self.live[rail] = (transfer, command)
                self.offers.append((now, rail, transfer))
            if int(getattr(dut, f"transfers__{rail}__ready").value):
                transfer, command = self.live[rail]
                self.take_transfer(rail, transfer, command)
                if self.known[rail] is not None and self.known[rail][0] == command.tag:
                    self.known[rail] = None
                self.live[rail] = None
        if int(dut.gemm__valid.value):
            request = unpack(GemmRequest, int(dut.gemm__payload.value))
            if self.live_gemm is None:
                waiting = [c for c in self.commands if c.fields["op"] is Op.GEMM
                           and c.refused is Status.OK and c.offered is None
                           and c.fields["source"] == request["descriptor"]]
                assert waiting, f"nobody asked for a GEMM at {request['descriptor']:#x}"
                self.live_gemm = waiting[0]
                self.live_gemm.offered = now
            if int(dut.gemm__ready.value):
                command, self.live_gemm = self.live_gemm, None
                command.started = now
                status = Status.BAD_DESCRIPTOR if command.fields["key"] else Status.OK
                command.outcome = (status, 0, 0)
                self.in_slot[request["slot"]] = command
                self.gemms.append(number(GemmDone, slot=request["slot"], status=status,
                                         started=now))
        self._consume()

    def _watch_fetch(self, now: int) -> None:
        """Note the doorbell that each command's fetch goes by."""
        dut, flits = self.dut, 64 // self.params.link.flit_bytes
        if not int(dut.fetch__request__valid.value):
            self.fetching = False
            return
        index_bits = memory_index_bits(self.params.link.flit_bytes)
        index = int(dut.fetch__request__payload.value) & (1 << index_bits) - 1
        if not self.fetching and index % flits == 0:
            queue, entry = divmod(index // flits * 64 - RINGS, 0x1000)
            assert entry == self.fetched[queue] % self.ring * 64, "wrong ring entry fetched"
            self.fetched[queue] += 1
            rung = [at for at, _ in self.doorbells[queue] if at <= now - 3]
            self.load_posted[queue].append(rung[-1])
        self.fetching = not int(dut.fetch__request__ready.value)

    def _check_transfer(self, rail: int, transfer: dict[str, Any], command: Posted) -> None:
        fields = command.fields
        assert command.refused is Status.OK and command.offered is None
        assert fields["rail"] == rail
        op = PacketOp.WRITE if fields["op"] is Op.WRITE else PacketOp.REDUCE
        expected = {"op": op, "ack": fields["flags"]["ack"], "counter": fields["target_counter"],
                    "extended": fields["flags"]["addend"]}
        expected |= {name: fields[name] for name in (
            "dtype", "redop", "tag", "source", "target", "length", "key", "path", "addend")}
        assert {name: transfer[name] for name in expected} == expected

    def _unfinished(self) -> str:
        return (f"records {len(self.records)}, operations {len(self.operations)}, in slots "
                f"{ {slot: c.tag for slot, c in self.in_slot.items()} }, "
                f"not done {[c.tag for c in self.commands if not self.done(c)][:10]}")

    # --- the end

    def done(self, command: Posted) -> bool:
        """As far as the bench can tell."""
        if command.plan.get("lost") and self._expired(command):
            return True
        if command.status is not Status.OK or command.fields["flags"]["signal"]:
            return any(r["tag"] == command.tag and r["queue"] == command.queue
                       for r in self.records)
        if command.fields["op"] in (Op.NOP, Op.FENCE, Op.ROUTE):
            return True
        return command.last_event is not None

    async def finish(self) -> None:
        """Wait for the end of every command, then hold everything against the reference."""
        self.drain = 1.0
        pending = deque(self.commands)

        def all_done() -> bool:
            while pending and self.done(pending[0]):
                pending.popleft()
            return not pending and not self.operations
        await self.bench.until(all_done, "end of all commands")
        self.pulses = (range(1), 0.0)
        self.strobe_rate = 0.0
        await self.bench.until(
            lambda: not any(map(any, (self.dones, self.answers, self.adds))), "last event")
        await self.bench.cycles(100)
        await self.settle()
        self._check_records()
        self._check_order()
        await self._check_totals()
        assert int(self.dut.idle.value), "not idle at the end"

    def _check_records(self) -> None:
        late = [[] for _ in self.late]
        mine = []
        for record in self.records:
            if record["queue"] == 0xF:
                key = (record["tag"], record["peer"], record["status"], record["link"])
                late[self.by_tag[record["tag"]].fields["rail"]].append(key)
                assert not record["posted"] and not record["started"] and record["ended"]
            else:
                mine.append(record)
        assert late == self.late, "late errors"
        order = [record["ended"] for record in mine]
        assert order == sorted(set(order)), "records are not in the order of completion"
        for record in mine:
            command = self.by_tag[record["tag"]]
            assert command.record is None, f"second record for {command.fields}"
            command.record = record
        sequence = [0] * self.queues
        for command in self.commands:
            index, fields = sequence[command.queue], command.fields
            sequence[command.queue] += 1
            assert (command.record is not None) == bool(
                fields["flags"]["signal"] or command.status is not Status.OK), fields
            if command.record is None:
                continue
            record, (_, peer, link) = command.record, command.outcome
            if command.queue == self.direct:
                posted = self.doorbells[self.direct][index][0]
            else:
                posted = self.load_posted[command.queue][index]
            assert record["queue"] == command.queue and record["posted"] == posted
            op = fields["op"].value if isinstance(fields["op"], Op) else fields["op"]
            assert (record["op"].value if isinstance(record["op"], Op) else record["op"]) == op
            assert (record["status"], record["peer"], record["link"]) == (
                command.status, peer, link), (fields, record)
            if command.started is not None:
                assert record["started"] == command.started
                assert command.last_event + 2 <= record["ended"] <= (
                    command.last_event + 2 + self.params.nic.slots)
            else:
                assert record["started"] + 2 <= record["ended"] <= (
                    record["started"] + 2 + self.params.nic.slots)
                assert posted + 3 <= record["started"]

    def _check_order(self) -> None:
        """Order within queues, waits and fences."""
        events = sorted([*self.increments, *(
            (c.record["ended"], c.fields["local_counter"]) for c in self.commands
            if c.record and c.status is Status.OK)])

        def total(counter: int, before: int) -> int:
            return self.totals[counter] + sum(
                1 for cycle, index in events if index == counter and cycle < before)
        for queue in range(self.queues):
            last, unfinished = -1, 0
            for command in (c for c in self.commands if c.queue == queue):
                fields, started = command.fields, command.started
                if fields["op"] is Op.GEMM and command.refused is Status.OK:
                    started = command.offered - 1
                elif started is None and command.record:
                    started = command.record["started"]
                if started is not None:
                    assert started > last, "commands of a queue out of order"
                    last = started
                    if fields["flags"]["wait"] and command.refused is Status.OK:
                        assert reached(total(fields["wait_counter"], started),
                                       fields["wait_value"]), "went before its wait was over"
                    if fields["op"] is Op.FENCE and command.refused is Status.OK:
                        assert unfinished < started, "went through a fence"
                if command.record:
                    unfinished = max(unfinished, command.record["ended"])
                elif command.last_event is not None:
                    unfinished = max(unfinished, command.last_event + 2)

    async def _check_totals(self) -> None:
        expected = list(self.totals)
        for _, counter in self.increments:
            expected[counter] += 1
        for command in self.commands:
            if command.status is Status.OK and command.fields["local_counter"] != NO_COUNTER:
                expected[command.fields["local_counter"]] += 1
        for index, value in enumerate(expected):
            assert await self.get("counter", index) == value & MASK32, f"counter {index}"
        errors = sum(c.status is not Status.OK for c in self.commands)
        assert await self.get("errors") == errors + sum(map(len, self.late))
        assert await self.get("completion_tail") == len(self.records)
        assert await self.get("slots_busy") == 0
        assert await self.get("packets_sent") == self.strobes["sent"]
        assert await self.get("packets_received") == self.strobes["received"]
        assert await self.get("direct_taken") == self.posted[self.direct]
        assert await self.get("direct_lost") == 0
        for queue in range(self.params.nic.queues):
            assert await self.get("queue_head", queue) == self.posted[queue]
        for queue in range(self.queues):
            assert await self.get("queue_wait", queue) == 0
        waited = await self.get("waited")
        waits = sum(c.record["started"] - c.record["posted"] for c in self.commands
                    if c.record and c.fields["flags"]["wait"])
        assert waited <= waits or any(not c.record for c in self.commands)
