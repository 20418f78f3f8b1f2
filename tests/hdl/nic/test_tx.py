"""tx of a rail: every byte in its lane, packets split at the mtu, no cycle lost, replies pass."""

from collections import deque

import cocotb

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
from hdl.nic.interfaces import Transfer, TransferDone
from hdl.nic.packets import Reply, packet_count, split
from hdl.nic.tx import Transmitter
from hdl.params import PRESETS
from tests.bench import Bench, MemoryPorts, Source, elaborated, run_bench

PARAMS = PRESETS["default"]
NODE = 0x1234
SIZE = 1 << 16
MTU = PARAMS.nic.mtu
REPLY_VC = PARAMS.link.vcs_per_class
FLIT = flit(PARAMS.link)


def transfer(rng, slot, source, target, length, **fields):
    return {"slot": slot, "op": rng.choice([PacketOp.WRITE, PacketOp.REDUCE]),
            "ack": rng.getrandbits(1), "dtype": rng.choice(list(DType)),
            "redop": rng.choice(list(ReduceOp)), "counter": rng.getrandbits(8),
            "tag": rng.getrandbits(16), "source": source,
            "target": {"offset": target, "node": rng.getrandbits(16)}, "length": length,
            "key": rng.getrandbits(32), "path": rng.getrandbits(8),
            "generation": rng.getrandbits(3), "extended": int(rng.random() < 0.3),
            "addend": rng.randrange(1 << 47), **fields}


def number(layout, values):
    return int.from_bytes(pack(layout, values), "little")


class Tx:
    """Drives a transmitter, takes its flits and compares them with a packetiser in Python."""

    def __init__(self, dut, *, latency=64, rate=1.0, credit=1.0):
        self.dut, self.credit = dut, credit
        self.bench = bench = Bench(dut, limit=20_000)
        self.transfers = Source(bench, "transfer", rate=rate)
        self.replies = Source(bench, "reply", rate=rate)
        self.memory = MemoryPorts(bench, ["read"], [], size=SIZE, latency=latency, rate=rate)
        self.memory.data[:] = bench.rng.randbytes(SIZE)
        #: Per class: expected flits as (head, tail, payload, mask of meaningful bits).
        self.expected = deque(), deque()
        self.flits = []  # (cycle, class)
        self.done, self.expected_done = [], []
        self.open = [True, True]
        self.idle_cycles = 0
        self._quiet = False
        self.tails = 0
        dut.node.value = NODE
        dut.available.value = 0
        bench.on_drive(self._drive)
        bench.on_sample(self._sample)
        bench.on_stuck(lambda: f"{len(self.expected[0])} request flits, "
                               f"{len(self.expected[1])} reply flits, available "
                               f"{int(dut.available.value):b}")

    def _drive(self):
        rng = self.bench.rng
        self.dut.available.value = sum(
            1 << vc for vc, up in ((0, self.open[0]), (REPLY_VC, self.open[1]))
            if up and (self.credit >= 1 or rng.random() < self.credit))

    def _sample(self):
        dut, cycle = self.dut, self.bench.cycle
        sending = int(dut.send__valid.value)
        done = int(dut.done__valid.value)
        if self._quiet:
            assert int(dut.idle.value), f"cycle {cycle}: idle fell without an input"
        if int(dut.idle.value):
            self.idle_cycles += 1
            assert not (sending or done or int(dut.sent.value)
                        or int(dut.read__request__valid.value)), f"cycle {cycle}: busy while idle"
        inputs = (int(dut.transfer__valid.value) or int(dut.reply__valid.value)
                  or int(dut.read__response__valid.value) or self.credit < 1)
        self._quiet = bool(int(dut.idle.value)) and not inputs
        if sending:
            self._check(int(dut.send__payload.value))
        if done:
            self.done.append((cycle, unpack(TransferDone, int(dut.done__payload.value))))
        self.tails += int(dut.sent.value)

    def _check(self, word):
        cycle = self.bench.cycle
        seen = unpack(FLIT, word)
        payload, head, tail, vc = (seen[name] for name in ("payload", "head", "tail", "vc"))
        assert int(self.dut.available.value) >> vc & 1, f"cycle {cycle}: no credit on VC {vc}"
        klass = {0: 0, REPLY_VC: 1}[vc]
        assert self.expected[klass], f"cycle {cycle}: a flit too many in class {klass}"
        want_head, want_tail, want, mask = self.expected[klass].popleft()
        assert (head, tail) == (want_head, want_tail), (
            f"cycle {cycle}: head, tail are {head}, {tail}, not {want_head}, {want_tail}; "
            f"{unpack(PacketHeader, payload)}")
        assert payload & mask == want & mask, f"cycle {cycle}: {payload & mask:064x} {want:064x}"
        self.flits.append((cycle, klass))

    def send(self, fields):
        """Offer a transfer and expect its packets."""
        self.transfers.send(number(Transfer, fields))
        position, full = fields["source"], (1 << 256) - 1
        target = fields["target"]
        for address, length in split(target["offset"], fields["length"], MTU):
            header = {"dst": target["node"], "src": NODE, "op": fields["op"],
                      "flags": {"ack": fields["ack"], "extended": fields["extended"]},
                      "address": address, "length": length}
            header |= {name: fields[name] for name in ("slot", "counter", "dtype", "redop", "key",
                                                       "tag", "path", "generation")}
            self.expected[0].append((1, int(not length and not fields["extended"]),
                                     number(PacketHeader, header), full))
            if fields["extended"]:
                addend = {"address": fields["addend"] + position - fields["source"]}
                self.expected[0].append((0, int(not length), number(Extension, addend), full))
            lane, image = address % 32, self.memory.data[position:position + length]
            flits = -(-(lane + length) // 32) if length else 0
            word = int.from_bytes(image, "little") << 8 * lane
            mask = (1 << 8 * length) - 1 << 8 * lane
            for place in range(flits):
                self.expected[0].append((0, int(place == flits - 1), word >> 256 * place & full,
                                         mask >> 256 * place & full))
            position += length
        self.expected_done.append({"slot": fields["slot"], "packets": packet_count(
            target["offset"], fields["length"], MTU)})

    def reply(self, fields):
        self.replies.send(number(Reply, fields))
        header = {"dst": fields["dst"], "src": NODE, "klass": 1, "op": PacketOp.RESPONSE,
                  "flags": {"ack": fields["ack"]}, "counter": NO_COUNTER}
        header |= {name: fields[name] for name in ("slot", "generation", "tag", "status",
                                                   "address", "length")}
        self.expected[1].append((1, 1, number(PacketHeader, header), (1 << 256) - 1))

    async def finish(self):
        await self.bench.until(lambda: not any(self.expected)
                               and len(self.done) == len(self.expected_done), "last flit")
        await self.bench.cycles(3)
        assert [done for _, done in self.done] == self.expected_done
        assert int(self.dut.idle.value)
        assert self.transfers.empty and self.replies.empty
        assert not int(self.dut.send__valid.value)


def random_reply(rng):
    return {"dst": rng.getrandbits(16), "slot": rng.getrandbits(4), "tag": rng.getrandbits(16),
            "generation": rng.getrandbits(3), "ack": rng.getrandbits(1),
            "status": rng.choice(list(Status)),
            "address": rng.getrandbits(48), "length": rng.randrange(4097)}


@cocotb.test()
async def every_byte_leaves_in_the_lane_of_its_target_under_random_stalls(dut):
    tx = Tx(dut, latency=8, rate=0.7, credit=0.7)
    rng = tx.bench.rng
    for number_ in range(900):
        length = rng.randrange(0, 200)
        source = rng.randrange(0, SIZE - 4096)
        target = rng.randrange(0, 1 << 47)
        kind = rng.randrange(6)
        if kind == 0:  # around a packet boundary
            target = target // MTU * MTU + rng.randrange(-40, 40) % MTU
        elif kind == 1:
            length = rng.choice([0, 1, 2, 31, 32, 33, 63, 64, 65])
        elif kind == 2 and number_ % 10 == 0:  # several packets
            length = rng.randrange(MTU - 2, 3 * MTU)
        tx.send(transfer(rng, number_ % 16, source, target, length))
        if rng.random() < 0.3:
            tx.reply(random_reply(rng))
    await tx.bench.start()
    await tx.finish()


@cocotb.test()
async def all_pairs_of_lanes_are_aligned(dut):
    tx = Tx(dut, latency=8)
    rng = tx.bench.rng
    for source in range(32):
        for target in range(32):
            tx.send(transfer(rng, 0, 1024 + source, 64 * 1024 + target, rng.randrange(1, 100)))
    await tx.bench.start()
    await tx.finish()


@cocotb.test()
async def a_full_packet_takes_33_cycles_and_the_next_transfer_follows_at_once(dut):
    tx = Tx(dut)
    rng = tx.bench.rng
    shapes = [(0, 0, 4096), (7, 0, 4096), (0, 7, 2048), (64, 31, 1024), (31, 0, 1023),
              (33, 65, 3000), (5, 4, 300), (4, 5, 300), (0, 0, 256)] + [(1, 0, 64)] * 8
    packets = 0
    for slot, (source, target, length) in enumerate(shapes):
        tx.send(transfer(rng, slot % 16, source, target, length, extended=0))
        packets += packet_count(target, length, MTU)
    await tx.bench.start()
    await tx.finish()
    cycles = [cycle for cycle, _ in tx.flits]
    # One memory latency, and two cycles from the response of the first flit to its header.
    assert cycles[0] - tx.transfers.sent[0][0] == 1 + 64 + 1
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))
    assert cycles[33 * 4 - 1] - cycles[0] == 33 * 4 - 1
    assert tx.done[-1][0] == cycles[-1] + 1
    assert tx.tails == packets


@cocotb.test()
async def an_empty_transfer_leaves_two_cycles_after_it_was_accepted(dut):
    tx = Tx(dut)
    rng = tx.bench.rng
    for slot in range(10):
        tx.send(transfer(rng, slot, 0, rng.getrandbits(47), 0, extended=0))
    await tx.bench.start()
    await tx.finish()
    cycles = [cycle for cycle, _ in tx.flits]
    first = tx.transfers.sent[0][0] + 2
    assert cycles == list(range(first, first + 10))


@cocotb.test()
async def requests_without_credit_never_hold_replies(dut):
    tx = Tx(dut)
    rng = tx.bench.rng
    tx.open[0] = False
    for slot in range(20):
        tx.send(transfer(rng, slot % 16, rng.randrange(9000), rng.getrandbits(40), 500))
        tx.reply(random_reply(rng))
    await tx.bench.start()
    await tx.bench.until(lambda: not tx.expected[1], "last reply")
    assert [klass for _, klass in tx.flits] == [1] * 20
    assert tx.flits[0][0] == 0  # in the cycle of the offer
    await tx.bench.cycles(300)
    # Reading runs ahead: 128 flits, at most 17 per transfer, and two ranges in the reader.
    assert len(tx.transfers.sent) >= 128 // 17 + 2
    assert int(dut.idle.value), "blocked by credits alone"
    tx.open[0] = True
    await tx.finish()


@cocotb.test()
async def a_rail_that_waits_for_memory_is_idle(dut):
    tx = Tx(dut, latency=500)
    tx.send(transfer(tx.bench.rng, 3, 5, 9, 40))
    await tx.bench.start()
    await tx.finish()
    assert tx.idle_cycles >= 490
    assert not tx.replies.sent


def test_tx() -> None:
    run_bench(elaborated(Transmitter, PARAMS), __name__)


