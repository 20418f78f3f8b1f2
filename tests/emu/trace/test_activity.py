"""What tiles say that they do is what they are seen to do from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import emu
from emu.library import HEADER, EventKind
from hdl.layouts import (
    CommandActivity,
    GemmActivity,
    GemmPhase,
    Op,
    PacketOp,
    RailActivity,
    ReplyState,
    RxState,
    TxState,
    unpack,
)

CARDS, M, N, K = 3, 11, 9, 33


@pytest.fixture(scope="module")
def run() -> Iterator[SimpleNamespace]:
    """Acknowledged writes, an AllReduce and a GEMM; all records of completions that there are."""
    with emu.open(f"ring:{CARDS}", preset="small", memory_bytes=1 << 22, event_log=True) as sn:
        records = []
        ones = np.ones(1000, np.float32)
        arrays = [sn.malloc(1000, "f32", card).write(ones) for card in range(CARDS)]
        for card in range(CARDS):
            records += sn.write(arrays[card], arrays[(card + 1) % CARDS], ack=True).completions
        records += sn.allreduce(arrays).wait(100_000).completions
        a, b, c = (sn.malloc(shape, dtype, 1) for shape, dtype in (
            ((M, K), "e4m3"), ((K, N), "e4m3"), ((M, N), "f32")))
        records += sn.gemm(a, b, c).wait(100_000).completions
        fabric = sn.backend.fabric
        yield SimpleNamespace(log=sn.backend.event_log(), records=records, end=fabric.cycle,
                              words=fabric.activity(0), array=sn.params.compute.array)


def words(run: Any, card: int, name: str) -> list[tuple[int, int]]:
    """Cycles and values of a word of a card's activity."""
    log = run.log[(run.log["kind"] == EventKind.ACTIVITY) & (run.log["node"] == card)
                  & (run.log["port"] == run.words.index(name))]
    return list(zip(log["cycle"].tolist(), log["value"].tolist(), strict=True))


def cycles(run: Any, card: int, name: str, state: Callable[[int], Any]) -> Counter[Any]:
    """In how many cycles a word says what."""
    found: Counter[Any] = Counter()
    changes = [(0, 0), *words(run, card, name), (run.end, 0)]
    for (cycle, value), (until, _) in pairwise(changes):
        found[state(value)] += until - cycle
    return found


def packets(run: Any, card: int) -> list[dict[str, Any]]:
    """Headers of the packets that a card makes."""
    log = run.log[(run.log["kind"] == EventKind.HEADER) & (run.log["node"] == card)]
    found = [unpack(HEADER, value | rest << 64)
             for value, rest in zip(log["value"].tolist(), log["digest"].tolist(), strict=True)]
    return [packet for packet in found if packet["src"] == card]


@pytest.mark.parametrize("card", range(CARDS))
def test_commands_start_and_end_in_the_cycles_of_their_stamps(run: Any, card: int) -> None:
    spans, opened, last = set(), {}, unpack(CommandActivity, 0)
    for cycle, value in words(run, card, "commands"):
        now = unpack(CommandActivity, value)
        if now["ended"]["turn"] != last["ended"]["turn"]:
            assert not now["ended"]["failed"]
            spans.add((*opened.pop(now["ended"]["slot"]), cycle - 1))
        if now["started"]["turn"] != last["started"]["turn"]:
            started = now["started"]
            assert started["slot"] not in opened
            opened[started["slot"]] = started["op"], started["tag"], cycle - 1
        last = now
    assert not opened
    for record in run.records:
        # A GEMM's stamp is that of the compute tile, which takes it a cycle after its dispatch.
        late = int(record.op is Op.GEMM)
        if record.card == card:
            assert (record.op, record.tag, record.started - late, record.ended) in spans


@pytest.mark.parametrize("card", range(CARDS))
def test_a_rail_sends_in_as_many_cycles_as_its_packets_have_flits(run: Any, card: int) -> None:
    made = packets(run, card)
    requests = [packet for packet in made if packet["op"] is not PacketOp.RESPONSE]
    flits = sum(1 + (packet["address"] % 32 + packet["length"] + 31) // 32 for packet in requests)
    tx = cycles(run, card, "rails.0", lambda value: unpack(RailActivity, value)["tx"])
    replies = cycles(run, card, "rails.0", lambda value: unpack(RailActivity, value)["reply"])
    assert tx[TxState.SEND] == flits > 0
    assert replies[ReplyState.SEND] == len(made) - len(requests) > 0
    assert tx[TxState.MEMORY] > 0  # for the first flit of each transfer, at the least


@pytest.mark.parametrize("card", range(CARDS))
def test_a_rail_takes_in_as_many_cycles_as_flits_come_for_it(run: Any, card: int) -> None:
    coming = sum(1 + (packet["address"] % 32 + packet["length"] + 31) // 32
                 for other in range(CARDS) for packet in packets(run, other)
                 if packet["dst"] == card and packet["op"] is not PacketOp.RESPONSE)
    rx = cycles(run, card, "rails.0", lambda value: unpack(RailActivity, value)["rx"])
    assert rx[RxState.TAKE] == coming > 0


def test_the_array_multiplies_in_as_many_cycles_as_tiles_have_columns(run: Any) -> None:
    phases = cycles(run, 1, "gemm", lambda value: unpack(GemmActivity, value)["phase"])
    tiles = -(-M // run.array) * -(-N // run.array)
    assert phases[GemmPhase.MULTIPLY] == tiles * K
    record, = (record for record in run.records if record.op is Op.GEMM)
    busy = sum(count for phase, count in phases.items() if phase is not GemmPhase.REST)
    # From the cycle after it was taken to that in which the slot's end is handed over.
    assert record.ended - record.started - busy in (1, 2, 3)
    assert not words(run, 0, "gemm")
