"""Shared memory ports: everything arrives once, in order, at its owner, and nobody starves."""

from __future__ import annotations

from collections import deque

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.nic.memory import OWNER_BIT, ReadArbiter, WriteArbiter
from hdl.ports import MemoryReadSignature, MemoryWriteSignature, memory_index_bits
from tests.bench import Bench, MemoryPorts, Source, run_bench

FLIT = 16
INDEX_BITS = memory_index_bits(FLIT)
SIZE = 4096


class SharedPorts(wiring.Component):
    """Both arbiters in one top, to build once."""

    def __init__(self) -> None:
        read, write = MemoryReadSignature(FLIT), MemoryWriteSignature(FLIT)
        super().__init__({"tx": In(read), "fetch": In(read), "read": Out(read),
                          "payload": In(write), "records": In(write), "write": Out(write)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reads = reads = ReadArbiter(flit_bytes=FLIT)
        m.submodules.writes = writes = WriteArbiter(flit_bytes=FLIT)
        for outer, inner in ((self.tx, reads.tx), (self.fetch, reads.fetch),
                             (self.payload, writes.payload), (self.records, writes.records)):
            connect(m, flipped(outer), inner)
        connect(m, flipped(self.read), reads.port)
        connect(m, flipped(self.write), writes.port)
        return m


class HoldCheck:
    """No offer of ``prefix`` is withdrawn or changed before it is taken."""

    def __init__(self, bench: Bench, prefix: str) -> None:
        self.bench, self.prefix, self.offer = bench, prefix, None
        bench.on_sample(self.sample)

    def sample(self) -> None:
        payload, valid, ready = (int(getattr(self.bench.dut, f"{self.prefix}__{part}").value)
                                 for part in ("payload", "valid", "ready"))
        assert self.offer is None or (valid and payload == self.offer), "an offer changed"
        self.offer = payload if valid and not ready else None


@cocotb.test()
async def reads_come_back_to_their_owner_in_order(dut) -> None:
    bench = Bench(dut)
    memory = MemoryPorts(bench, ["read"], [], size=SIZE, flit_bytes=FLIT, latency=5, rate=0.7)
    memory.data[:] = bytes(bench.rng.randrange(256) for _ in range(SIZE))
    sources = {name: Source(bench, f"{name}__request", rate=0.7) for name in ("tx", "fetch")}
    HoldCheck(bench, "read__request")
    expected: dict[str, deque[int]] = {}
    for name, source in sources.items():
        expected[name] = deque()
        for _ in range(400):
            index, tag = bench.rng.randrange(SIZE // FLIT), bench.rng.randrange(1 << OWNER_BIT)
            source.send(index | tag << INDEX_BITS)
            word = int.from_bytes(memory.data[index * FLIT:(index + 1) * FLIT], "little")
            expected[name].append(word | tag << 8 * FLIT)

    def sample() -> None:
        for name, due in expected.items():
            if int(getattr(dut, f"{name}__response__valid").value):
                assert int(getattr(dut, f"{name}__response__payload").value) == due.popleft()

    bench.on_sample(sample)
    bench.on_stuck(lambda: f"{ {name: len(due) for name, due in expected.items()} } reads due")
    await bench.start()
    await bench.until(lambda: not any(expected.values()), "last response")


@cocotb.test()
async def an_uncontended_request_passes_in_its_cycle(dut) -> None:
    bench = Bench(dut)
    MemoryPorts(bench, ["read"], ["write"], size=SIZE, flit_bytes=FLIT)
    sources = {name: Source(bench, f"{name}__request")
               for name in ("tx", "fetch", "payload", "records")}
    seen: list[str] = []

    def sample() -> None:
        for port in ("read", "write"):
            if int(getattr(dut, f"{port}__request__valid").value):
                seen.append(f"{port} {bench.cycle}")

    bench.on_sample(sample)
    await bench.start()
    for name, source in sources.items():
        await bench.cycles(3)
        seen.clear()
        source.send(7)
        await bench.until(lambda source=source: source.empty, "request")
        port = "read" if name in ("tx", "fetch") else "write"
        assert seen == [f"{port} {source.sent[0][0]}"]


@cocotb.test()
async def writes_arrive_once_and_records_go_first(dut) -> None:
    bench = Bench(dut)
    memory = MemoryPorts(bench, [], ["write"], size=SIZE, flit_bytes=FLIT, rate=0.6)
    HoldCheck(bench, "write__request")
    sources = {name: Source(bench, f"{name}__request", rate=rate)
               for name, rate in (("payload", 1.0), ("records", 0.3))}
    sent: dict[str, list[tuple[int, bytes, int]]] = {"payload": [], "records": []}
    for half, (name, source) in enumerate(sources.items()):
        for _ in range(300):
            flit = bench.rng.randrange(SIZE // FLIT // 2) + half * (SIZE // FLIT // 2)
            word, mask = bench.rng.getrandbits(8 * FLIT), bench.rng.getrandbits(FLIT)
            source.send(word | mask << 8 * FLIT | flit << 9 * FLIT)
            sent[name].append((flit * FLIT, word.to_bytes(FLIT, "little"), mask))
    ahead = [0]

    def sample() -> None:
        if not int(dut.records__request__valid.value):
            return
        if int(dut.payload__request__ready.value):
            ahead[-1] += int(dut.payload__request__valid.value)
        if int(dut.records__request__ready.value):
            ahead.append(0)

    bench.on_sample(sample)
    await bench.start()
    await bench.until(lambda: all(s.empty for s in sources.values()), "last write")
    for name, half in (("payload", 0), ("records", 1)):
        got = [(address, word, mask) for _, address, word, mask in memory.log
               if address // (SIZE // 2) == half]
        assert got == sent[name]
    # At most the payload flit that was offered before it goes ahead of a record.
    assert max(ahead) == 1


def test_shared_memory_ports() -> None:
    run_bench(SharedPorts(), __name__)
