"""A rail joined to itself: what tx sends over the local link, rx applies; answers return."""

import gc
import warnings

import cocotb
import numpy as np
import pytest
from amaranth.hdl import UnusedElaboratable

from hdl.compute.elements import ELEMENT_BYTES, OPERATORS
from hdl.compute.reduce import combine
from hdl.layouts import NO_COUNTER, DType, PacketOp, ReduceOp, Status, pack, unpack
from hdl.nic.interfaces import Response, Transfer, TransferDone
from hdl.nic.packets import packet_count, split
from hdl.nic.rail import Rail
from hdl.params import PRESETS, CardParams, LinkParams, NicParams, RouterParams
from tests.bench import Bench, MemoryPorts, Source, elaborated, run_bench

NODE = 77
SIZE = 1 << 16


def rail_params(flit_bytes: int) -> CardParams:
    return CardParams(router=RouterParams(link=LinkParams(flit_bytes=flit_bytes)),
                      nic=NicParams(read_depth=96))


class Loop:
    """A rail whose local link returns to itself, in the same cycle, as between a rail and its
    router; the lower half of memory is read, the upper half written."""

    def __init__(self, dut, *, latency=64, rate=1.0):
        self.dut = dut
        self.bench = bench = Bench(dut, limit=20_000)
        self.flit_bytes = len(dut.tx_read__response__payload) // 8
        self.mtu = rail_params(self.flit_bytes).nic.mtu
        self.transfers = Source(bench, "transfer", rate=rate)
        self.memory = MemoryPorts(bench, ["tx_read", "rx_read"], ["write"], size=SIZE,
                                  flit_bytes=self.flit_bytes, latency=latency, rate=rate)
        self.image = bytearray(bench.rng.randbytes(SIZE))
        self.memory.data[:] = self.image
        self.done, self.responses, self.increments = [], [], []
        self.words = []  # cycles with a flit on the local link
        self.sent = self.received = 0
        self.expected_done, self.expected_responses, self.packets = [], [], 0
        self.idle_cycles = 0
        dut.node.value, dut.memory_bytes.value, dut.local__up.value = NODE, SIZE, 1
        dut.local__rx.value = 0
        bits = 8 * self.flit_bytes
        self._strobe, self._valid = 1 << bits, 1 << bits + 2
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)
        bench.on_stuck(lambda: f"{len(self.done)} of {len(self.expected_done)} transfers, "
                               f"{len(self.responses)} of {len(self.expected_responses)} "
                               f"responses, {self.sent} sent, {self.received} received")

    def _drive(self):
        word = int(self.dut.local__tx.value)
        self.dut.local__rx.value = word if word & self._strobe else 0
        if word & self._valid:
            self.words.append(self.bench.cycle)

    def _sample(self):
        dut, cycle = self.dut, self.bench.cycle
        if int(dut.done__valid.value):
            self.done.append((cycle, unpack(TransferDone, int(dut.done__payload.value))))
        if int(dut.response__valid.value):
            self.responses.append((cycle, unpack(Response, int(dut.response__payload.value))))
        if int(dut.increment__valid.value):
            self.increments.append((cycle, int(dut.increment__payload.value)))
        self.sent += int(dut.sent.value)
        self.received += int(dut.received.value)
        if int(dut.idle.value):
            self.idle_cycles += 1
            assert not int(dut.local__tx.value) & self._strobe
            assert not (int(dut.tx_read__request__valid.value) or int(dut.sent.value)
                        or int(dut.rx_read__request__valid.value) or int(dut.received.value)
                        or int(dut.write__request__valid.value))

    def send(self, slot, op, source, target, length, *, ack=0, counter=NO_COUNTER, tag=0,
             dtype=DType.F32, redop=ReduceOp.SUM, status=Status.OK, addend=None):
        self.transfers.send(int.from_bytes(pack(Transfer, {
            "slot": slot, "op": op, "ack": ack, "dtype": dtype, "redop": redop,
            "counter": counter, "tag": tag, "source": source,
            "extended": addend is not None, "addend": addend or 0,
            "target": {"offset": target, "node": NODE}, "length": length}), "little"))
        packets = packet_count(target, length, self.mtu)
        self.packets += packets
        self.expected_done.append({"slot": slot, "packets": packets})
        if ack or status is not Status.OK:
            self.expected_responses += [{
                "slot": slot, "generation": 0, "ack": ack, "status": status, "tag": tag,
                "peer": NODE, "link": 0}] * packets
        if status is Status.OK and length:
            for address, size in split(target, length, self.mtu):
                done = address - target
                payload = bytes(self.image[source + done:source + done + size])
                if op is PacketOp.REDUCE:
                    kind = f"u{ELEMENT_BYTES[dtype]}"
                    start = done + (target if addend is None else addend)
                    old = np.frombuffer(bytes(self.image[start:start + size]), kind)
                    payload = combine(old, np.frombuffer(payload, kind), dtype, redop).tobytes()
                self.image[address:address + size] = payload
        return packets if status is Status.OK and counter != NO_COUNTER else 0

    async def finish(self, counts):
        packets = self.packets + len(self.expected_responses)
        await self.bench.until(lambda: self.received == packets and len(self.increments) == counts
                               and int(self.dut.idle.value), "last packet")
        await self.bench.cycles(10)
        assert self.sent == packets == self.received
        assert [done for _, done in self.done] == self.expected_done
        assert [response for _, response in self.responses] == self.expected_responses
        assert len(self.increments) == counts
        assert self.memory.data == self.image
        assert int(self.dut.idle.value)


@cocotb.test()
async def transfers_reach_memory_and_are_answered_under_random_stalls(dut):
    loop = Loop(dut, latency=20, rate=0.7)
    rng = loop.bench.rng
    counts = 0
    for number in range(300):
        op = rng.choice([PacketOp.WRITE, PacketOp.REDUCE])
        dtype, redop = rng.choice(list(ELEMENT_BYTES)), rng.choice(OPERATORS)
        element = 1 if op is PacketOp.WRITE else ELEMENT_BYTES[dtype]
        length = rng.choice([0, rng.randrange(0, 200, element), rng.randrange(0, 1200, element)])
        source, target = rng.randrange(SIZE // 2 - length), rng.randrange(
            SIZE // 2, rng.choice([SIZE // 2 + 600, SIZE - length]), element)
        status = Status.OK
        if rng.random() < 0.05:
            target, status = SIZE + rng.randrange(0, 4096, element), Status.TARGET_RANGE
        addend = None
        if op is PacketOp.REDUCE and rng.random() < 0.4:
            flit = loop.flit_bytes
            places = (target - SIZE // 2) // flit + 2 if rng.random() < 0.5 else SIZE // flit // 2
            addend = max(0, min(SIZE // 2 + rng.randrange(max(1, places)) * flit,
                                SIZE - length - flit) // flit * flit) + target % flit
            if addend < target < addend + length:
                addend = target  # a packet must not read what it has written itself
        counts += loop.send(number % 16, op, source, target, length, dtype=dtype, redop=redop,
                            status=status, addend=addend, ack=rng.getrandbits(1),
                            tag=rng.getrandbits(16),
                            counter=rng.choice([NO_COUNTER, rng.randrange(64)]))
    await loop.bench.start()
    await loop.finish(counts)


@cocotb.test()
async def a_stream_of_reductions_keeps_the_link_full(dut):
    loop = Loop(dut)
    counts = sum(loop.send(slot, PacketOp.REDUCE, 4096 * slot, SIZE // 2 + 4096 * slot, 4096,
                           counter=1) for slot in range(4))
    await loop.bench.start()
    await loop.finish(counts)
    flits = counts * (max(1, 32 // loop.flit_bytes) + loop.mtu // loop.flit_bytes)
    assert loop.words == list(range(loop.words[0], loop.words[0] + flits))
    # Accepted, asked +1, data +64, header sent +1, on the pins +1.
    assert loop.words[0] == loop.transfers.sent[0][0] + 1 + 64 + 1 + 1


@cocotb.test()
async def an_acknowledged_write_returns_after_it_is_visible(dut):
    loop = Loop(dut)
    counts = loop.send(9, PacketOp.WRITE, 0, SIZE // 2, loop.flit_bytes, ack=1, counter=7, tag=11)
    await loop.bench.start()
    await loop.finish(counts)
    header_flits = max(1, 32 // loop.flit_bytes)
    last, accepted = loop.words[-1 - header_flits], loop.memory.log[-1][0]
    assert accepted == last + 3
    assert loop.increments == [(accepted + 1, 7)]
    # Sent in the cycle of the count, on the pins one later, taken one later.
    assert loop.responses[0][0] == accepted + 2 + header_flits
    assert loop.idle_cycles >= 60


@pytest.mark.parametrize("flit_bytes", [
    32, pytest.param(16, marks=pytest.mark.slow), pytest.param(64, marks=pytest.mark.slow)])
def test_rail(flit_bytes: int) -> None:
    run_bench(elaborated(Rail, rail_params(flit_bytes), name=f"rail{flit_bytes}"), __name__)


@pytest.mark.parametrize(("params", "index", "message"), [
    (PRESETS["default"], 1, "index must be from 0 to 0, not 1"),
    (CardParams(router=RouterParams(link=LinkParams(classes=1))), 0, "classes must be at least 2"),
])
def test_a_rail_refuses_what_it_cannot_build(params: CardParams, index: int, message: str) -> None:
    with warnings.catch_warnings():
        # A component whose constructor raises is, to Amaranth, one that was never used.
        warnings.simplefilter("ignore", UnusedElaboratable)
        with pytest.raises(ValueError, match=message):
            Rail(params, index)
        gc.collect()
