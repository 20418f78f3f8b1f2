"""rx of a rail: memory as if packets came one by one, counts and replies after their writes."""

from collections import deque

import cocotb
import numpy as np

from hdl.compute.elements import ELEMENT_BYTES, OPERATORS
from hdl.compute.reduce import combine
from hdl.layouts import (
    NO_COUNTER,
    DType,
    Extension,
    PacketHeader,
    PacketOp,
    ReduceOp,
    Status,
    flit,
    pack,
    unpack,
)
from hdl.nic.interfaces import Response
from hdl.nic.packets import Reply, refusal
from hdl.nic.rx import Receiver
from hdl.params import PRESETS
from tests.bench import Bench, MemoryPorts, Sink, elaborated, run_bench

PARAMS = PRESETS["default"]
LINK = PARAMS.link
SIZE = 1 << 14
RESPONSE_VC = LINK.vcs_per_class


def number(layout, values):
    return int.from_bytes(pack(layout, values), "little")


def packet_flits(header, payload, vc, lane=None, cut=None, extension=None):
    """Flits of a packet as numbers; lanes outside the range hold ones. A poisoned tail follows the
    first ``cut`` flits of one that was cut."""
    lane = header["address"] % 32 if lane is None else lane
    flits = -(-(lane + len(payload)) // 32) if payload else 0
    image = b"\xff" * lane + payload + b"\xff" * (32 * flits - lane - len(payload))
    heads = [number(PacketHeader, header)]
    if extension is not None:
        heads.append(number(Extension, extension))
    words = heads + [
        int.from_bytes(image[32 * i:32 * i + 32], "little") for i in range(flits)]
    if cut is not None:
        words = [*words[:cut], 0]
    last = len(words) - 1
    return [number(flit(LINK), {
        "payload": word, "head": i == 0, "tail": i == last, "vc": vc,
        "poison": i == last and cut is not None}) for i, word in enumerate(words)]


class Rx:
    """Drives a receiver with packets and applies them one by one to an image of the memory."""

    def __init__(self, dut, *, latency=64, rate=1.0, arrival=1.0, reply_rate=None):
        self.dut, self.arrival = dut, arrival
        self.bench = bench = Bench(dut, limit=30_000)
        self.memory = MemoryPorts(bench, ["read"], ["write"], size=SIZE, latency=latency, rate=rate)
        self.image = bytearray(bench.rng.randbytes(SIZE))
        self.memory.data[:] = self.image
        self.replies = Sink(bench, "reply", rate=rate if reply_rate is None else reply_rate)
        #: Flits to arrive, by VC.
        self.queues = {0: deque(), RESPONSE_VC: deque()}
        self.credits = dict.fromkeys(self.queues, LINK.vc_depth)
        self.arrivals = []  # (cycle, vc)
        self.increments, self.responses = [], []
        #: (counter, writes that memory must have accepted before)
        self.expected_increments, self.expected_replies, self.expected_responses = [], [], []
        self.writes = 0
        self.idle_cycles = 0
        self._quiet = False
        self.tails = self.expected_tails = 0
        dut.memory_bytes.value = SIZE
        dut.receive__valid.value = 0
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)
        bench.on_stuck(self._stuck)

    def _stuck(self):
        waiting = [len(queue) for queue in self.queues.values()]
        return (f"to arrive {waiting}, credits {self.credits}, {len(self.increments)} of "
                f"{len(self.expected_increments)} increments, {len(self.replies.received)} of "
                f"{len(self.expected_replies)} replies")

    def _drive(self):
        rng = self.bench.rng
        able = [vc for vc, queue in self.queues.items() if queue and self.credits[vc]]
        valid = bool(able) and rng.random() < self.arrival
        self.dut.receive__valid.value = int(valid)
        if valid:
            vc = rng.choice(able)
            self.dut.receive__payload.value = self.queues[vc].popleft()
            self.credits[vc] -= 1
            self.arrivals.append((self.bench.cycle, vc))

    def _sample(self):
        dut, cycle = self.dut, self.bench.cycle
        outputs = [int(signal.value) for signal in (
            dut.free__valid, dut.read__request__valid, dut.write__request__valid,
            dut.increment__valid, dut.response__valid, dut.received)]
        if int(dut.idle.value):
            self.idle_cycles += 1
            assert not any(outputs), f"cycle {cycle}: busy while idle {outputs}"
        elif self._quiet:
            raise AssertionError(f"cycle {cycle}: idle fell without an input")
        self._quiet = bool(int(dut.idle.value)) and not (
            int(dut.receive__valid.value) or int(dut.read__response__valid.value)
            or int(dut.reply__valid.value))
        if int(dut.free__valid.value):
            vc = int(dut.free__payload.value)
            self.credits[vc] += 1
            assert self.credits[vc] <= LINK.vc_depth
        if int(dut.increment__valid.value):
            counter, writes = self.expected_increments[len(self.increments)]
            assert int(dut.increment__payload.value) == counter
            accepted = len(self.memory.log) - (self.memory.log[-1][0] == cycle
                                               if self.memory.log else 0)
            assert accepted >= writes, f"cycle {cycle}: counted before its writes were accepted"
            self.increments.append(cycle)
        if int(dut.response__valid.value):
            self.responses.append(unpack(Response, int(dut.response__payload.value)))
        self.tails += int(dut.received.value)

    def request(self, header, payload=b"", cut=None, addend=None):
        """Let a request arrive, all of it or ``cut`` flits and a poisoned tail, and expect what it
        does. An ``addend`` is the address of a reduction's other operand."""
        header = {"version": 0, "op": PacketOp.WRITE, "flags": {}, "counter": NO_COUNTER,
                  "dtype": DType.F32, "redop": ReduceOp.SUM, "length": len(payload)} | header
        extension = None if addend is None else {"address": addend}
        if extension:
            header["flags"] = header["flags"] | {"extended": 1}
        heads = 1 if addend is None else 2
        words = packet_flits(header, payload, 0, cut=cut, extension=extension)
        self.queues[0].extend(words)
        self.expected_tails += 1
        fields = unpack(PacketHeader, number(PacketHeader, header))
        # Of a packet that was cut before its extension, nobody knows more.
        status = refusal(fields, memory_bytes=SIZE, counters=PARAMS.nic.counters,
                         extension=None if cut is not None and cut < heads else extension)
        if cut is not None and cut < heads and fields["op"] is not PacketOp.REDUCE:
            status = Status.BAD_COMMAND
        if status is Status.OK and cut is not None:
            lane = fields["address"] % 32
            self._apply(fields, payload[:max(0, 32 * (cut - heads) - lane)], addend)
            self.writes += max(0, cut - heads)
            status = Status.POISON
        elif status is Status.OK:
            self._apply(fields, payload, addend)
            self.writes += len(words) - heads
            if fields["counter"] != NO_COUNTER:
                self.expected_increments.append((fields["counter"], self.writes))
        ack = fields["flags"]["ack"]
        if ack or status is not Status.OK:
            self.expected_replies.append({
                "dst": fields["src"], "slot": fields["slot"], "tag": fields["tag"], "ack": ack,
                "generation": fields["generation"],
                "status": status, "address": fields["address"], "length": fields["length"]})
        return status

    def _apply(self, fields, payload, addend=None):
        part = slice(fields["address"], fields["address"] + len(payload))
        if fields["op"] is PacketOp.REDUCE:
            kind = f"u{ELEMENT_BYTES[fields['dtype']]}"
            start = fields["address"] if addend is None else addend
            old = np.frombuffer(self.image[start:start + len(payload)], kind)
            payload = combine(old, np.frombuffer(payload, kind), fields["dtype"],
                              fields["redop"]).tobytes()
        self.image[part] = payload

    def response(self, rng):
        fields = {"op": PacketOp.RESPONSE, "klass": 1, "src": rng.getrandbits(16),
                  "generation": rng.getrandbits(3), "counter": rng.getrandbits(8),
                  "flags": {"ack": rng.getrandbits(1)}, "slot": rng.getrandbits(4),
                  "tag": rng.getrandbits(16), "status": rng.choice(list(Status)), "address": 0}
        self.queues[RESPONSE_VC].extend(packet_flits(fields, b"", RESPONSE_VC))
        self.expected_tails += 1
        self.expected_responses.append({
            "slot": fields["slot"], "ack": fields["flags"]["ack"], "status": fields["status"],
            "tag": fields["tag"], "peer": fields["src"], "generation": fields["generation"],
            "link": fields["counter"] if fields["status"] is Status.LINK_DOWN else 0})

    async def finish(self):
        await self.bench.until(
            lambda: not any(self.queues.values())
            and len(self.increments) == len(self.expected_increments)
            and len(self.replies.received) == len(self.expected_replies)
            and all(credit == LINK.vc_depth for credit in self.credits.values())
            and len(self.memory.log) >= self.writes, "last packet")
        await self.bench.cycles(8)
        assert int(self.dut.idle.value)
        assert [unpack(Reply, word) for word in self.replies.payloads] == self.expected_replies
        assert self.responses == self.expected_responses
        assert len(self.memory.log) == self.writes
        assert self.tails == self.expected_tails
        assert self.memory.data == self.image


def elements(rng, dtype, count):
    """Bytes of elements that make sums interesting, specials now and then."""
    width = ELEMENT_BYTES[dtype]
    tops = (0x3f, 0xbf, 0x40, 0x00, 0x7f)
    return b"".join(
        rng.randbytes(width - 1) + bytes([rng.choice([*tops, rng.randrange(256)])])
        for _ in range(count))


def random_request(rx, rng, window):
    """A WRITE or REDUCE into a window of memory, so that ranges often overlap."""
    header = {"op": rng.choice([PacketOp.WRITE, PacketOp.REDUCE]), "src": rng.getrandbits(16),
              "slot": rng.getrandbits(4), "generation": rng.getrandbits(3),
              "tag": rng.getrandbits(16), "key": rng.getrandbits(32),
              "flags": {"ack": int(rng.random() < 0.4)},
              "counter": rng.choice([NO_COUNTER, *range(PARAMS.nic.counters)]),
              "dtype": rng.choice(list(ELEMENT_BYTES)), "redop": rng.choice(OPERATORS)}
    element = ELEMENT_BYTES[header["dtype"]]
    count = rng.choice([0, 1, rng.randrange(1, 40), rng.randrange(1, 40), 256])
    header["address"] = rng.randrange(0, window, element)
    if header["op"] is PacketOp.WRITE:
        header["address"] += rng.randrange(element)
    payload = elements(rng, header["dtype"], count)
    bad = rng.random()
    if bad < 0.03:
        header["version"] = 1 + rng.randrange(15)
    elif bad < 0.06:
        header["op"] = rng.choice([PacketOp.READ, PacketOp.ATOMIC, PacketOp.RESPONSE, 9])
    elif bad < 0.09:
        header["address"] = SIZE - element * rng.randrange(0, max(1, count))
    elif bad < 0.12:
        header["counter"] = rng.randrange(PARAMS.nic.counters, NO_COUNTER)
    elif bad < 0.15:
        header["op"] = PacketOp.REDUCE
        header |= rng.choice([{"dtype": 7}, {"redop": 3}, {"redop": ReduceOp.SWAP}, {"dtype": 15},
                              {"dtype": DType.F16, "address": header["address"] | 1},
                              {"dtype": DType.I32, "address": header["address"] | 2}])
    elif bad < 0.18:
        header["flags"]["poison"] = 1
    elif bad < 0.21:
        header |= {"address": (1 << 48) - element}
    addend = cut = None
    if rng.random() < 0.4:
        lane = header["address"] % 32
        addend = rng.randrange(window // 32) * 32 + lane
        if rng.random() < 0.1:
            addend = rng.choice([addend ^ 4, SIZE - 64 + lane, (1 << 48) - 32 + lane])
        if addend < header["address"] < addend + len(payload):
            # Within a packet, what is read above what was written is open.
            addend = header["address"]
    flits = -(-(header["address"] % 32 + len(payload)) // 32) + (addend is not None)
    if payload and rng.random() < 0.1:
        cut = rng.randrange(1, flits + 1)
    return rx.request(header, payload, cut, addend)


@cocotb.test()
async def memory_is_as_if_packets_came_one_by_one(dut):
    rx = Rx(dut, latency=20, rate=0.7, arrival=0.8)
    rng = rx.bench.rng
    seen = set()
    for _ in range(1200):
        seen.add(random_request(rx, rng, rng.choice([256, SIZE - 1024])))
        if rng.random() < 0.3:
            rx.response(rng)
    await rx.bench.start()
    await rx.finish()
    assert seen >= {Status.OK, Status.BAD_COMMAND, Status.TARGET_RANGE, Status.BAD_COUNTER,
                    Status.BAD_DTYPE, Status.POISON}


@cocotb.test()
async def memory_is_right_when_nothing_stalls(dut):
    rx = Rx(dut)
    rng = rx.bench.rng
    for _ in range(600):
        random_request(rx, rng, rng.choice([128, 2048]))
    await rx.bench.start()
    await rx.finish()


def stream(rx, start, pieces, rng, dtype, redop):
    """REDUCE packets to adjacent ranges; returns the flits they take."""
    address = start
    for size in pieces:
        rx.request({"op": PacketOp.REDUCE, "address": address, "counter": 3, "dtype": dtype,
                    "redop": redop},
                   elements(rng, dtype, size // ELEMENT_BYTES[dtype]))
        address += size
    return len(rx.queues[0])


async def at_line_rate(dut, start, pieces, dtype, redop=ReduceOp.SUM):
    rx = Rx(dut)
    flits = stream(rx, start, pieces, rx.bench.rng, dtype, redop)
    await rx.bench.start()
    await rx.finish()
    cycles = [cycle for cycle, _ in rx.arrivals]
    assert cycles == list(range(cycles[0], cycles[0] + flits)), "an arriving flit found no credit"
    # The last flit: parsed 1, asked 2, its data 64 and one more, written 4 cycles later.
    assert rx.memory.log[-1][0] == cycles[-1] + 2 + 64 + 1 + 4
    assert rx.increments[-1] == rx.memory.log[-1][0] + 1


@cocotb.test()
async def reductions_of_full_packets_run_at_line_rate(dut):
    await at_line_rate(dut, 1024, [1024] * 12, DType.F32)


@cocotb.test()
async def adjacent_reductions_that_share_flits_run_at_line_rate(dut):
    await at_line_rate(dut, 1024 + 6, [1018, 1000, 24, 500, 300, 224, 1024, 1002], DType.BF16)


@cocotb.test()
async def reductions_of_bytes_at_any_address_run_at_line_rate(dut):
    await at_line_rate(dut, 1024 + 3, [1021, 999, 25, 500, 300, 224, 1024, 1001], DType.E4M3)


@cocotb.test()
async def maxima_of_integers_run_at_line_rate(dut):
    await at_line_rate(dut, 1024 + 4, [1020, 1000, 24, 500, 300, 224, 1024], DType.I32,
                       ReduceOp.MAX)


@cocotb.test()
async def reductions_of_the_same_bytes_wait_for_each_other(dut):
    rx = Rx(dut)
    rng = rx.bench.rng
    for _ in range(4):
        rx.request({"op": PacketOp.REDUCE, "address": 64, "counter": 1},
                   elements(rng, DType.F32, 16))
    await rx.bench.start()
    await rx.finish()
    gaps = {after - before for before, after in zip(rx.increments, rx.increments[1:], strict=False)}
    assert min(gaps) > 64


@cocotb.test()
async def sums_with_addends_elsewhere_cost_a_cycle_per_packet(dut):
    rx = Rx(dut)
    rng = rx.bench.rng
    for packet in range(6):
        rx.request({"op": PacketOp.REDUCE, "address": 1024 + 1024 * packet + 8, "counter": 3},
                   elements(rng, DType.F32, 254), addend=8192 + 1024 * packet + 8)
    flits = len(rx.queues[0])
    await rx.bench.start()
    await rx.finish()
    assert flits == 6 * 34
    cycles = [cycle for cycle, _ in rx.arrivals]
    assert cycles == list(range(cycles[0], cycles[0] + flits)), "an arriving flit found no credit"
    assert rx.memory.log[-1][0] == cycles[-1] + 2 + 64 + 1 + 4


@cocotb.test()
async def a_sum_waits_for_writes_to_its_addend_and_not_to_its_target(dut):
    rx = Rx(dut)
    rng = rx.bench.rng
    reduce = {"op": PacketOp.REDUCE, "counter": 1}
    rx.request(reduce | {"address": 0}, elements(rng, DType.F32, 8), addend=64)
    rx.request(reduce | {"address": 0}, elements(rng, DType.F32, 8), addend=128)
    rx.request(reduce | {"address": 256}, elements(rng, DType.F32, 8), addend=0)
    await rx.bench.start()
    await rx.finish()
    first, second, third = rx.increments
    assert second - first == 3 and third - second > 64


@cocotb.test()
async def a_write_is_on_the_port_three_cycles_after_it_arrived(dut):
    rx = Rx(dut)
    rng = rx.bench.rng
    rx.request({"address": 37, "counter": 5, "flags": {"ack": 1}}, rng.randbytes(100))
    rx.response(rng)
    await rx.bench.start()
    await rx.finish()
    first = next(cycle for cycle, vc in rx.arrivals if vc == 0)
    payload = [cycle for cycle, vc in rx.arrivals if vc == 0][1:]
    assert first == payload[0] - 1 or rx.arrivals[1][1] == RESPONSE_VC
    assert [cycle for cycle, *_ in rx.memory.log] == [cycle + 3 for cycle in payload]
    assert rx.increments == [payload[-1] + 4]
    assert rx.replies.received[0][0] == payload[-1] + 4


@cocotb.test()
async def responses_sink_while_replies_and_memory_are_stuck(dut):
    rx = Rx(dut, rate=0.0)
    rng = rx.bench.rng
    for _ in range(60):
        rx.request({"op": PacketOp.REDUCE, "address": 0, "flags": {"ack": 1}}, bytes(64))
    for _ in range(200):
        rx.response(rng)
    await rx.bench.start()
    await rx.bench.until(lambda: len(rx.responses) == 200, "last response")
    assert not rx.replies.received
    rx.memory.rate = rx.replies.rate = 1.0
    await rx.finish()


@cocotb.test()
async def requests_wait_for_reply_room_and_a_rail_that_waits_is_idle(dut):
    rx = Rx(dut, latency=300, reply_rate=0.0)
    for _ in range(100):
        rx.request({"address": 0, "flags": {"ack": 1}, "counter": 2})
    rx.request({"op": PacketOp.REDUCE, "address": 4, "counter": 2}, bytes(4))
    await rx.bench.start()
    await rx.bench.cycles(400)
    assert len(rx.increments) == PARAMS.nic.rmw_packets
    assert int(dut.idle.value)
    rx.replies.rate = 1.0
    before = rx.idle_cycles
    await rx.finish()
    assert rx.idle_cycles - before >= 290


@cocotb.test()
async def a_cut_packet_counts_nothing_and_is_answered(dut):
    rx = Rx(dut)
    rng = rx.bench.rng
    for cut in range(1, 5):
        for op in (PacketOp.WRITE, PacketOp.REDUCE):
            header = {"op": op, "address": 256 * cut + 4, "counter": 5, "tag": cut, "generation": 3}
            assert rx.request(header, elements(rng, DType.F32, 24), cut) is Status.POISON
            rx.request(header | {"address": 4096 + 256 * cut}, elements(rng, DType.F32, 24))
    await rx.bench.start()
    await rx.finish()
    assert len(rx.increments) == 8 and len(rx.replies.received) == 8


def test_rx() -> None:
    run_bench(elaborated(Receiver, PARAMS), __name__)
