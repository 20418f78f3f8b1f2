"""The reliable link: exactly once and in order over noise, through resets and lost signals."""

import cocotb

from hdl.layouts import LinkFault
from hdl.params import LinkParams
from tests.bench import Bench, run_bench
from tests.hdl.link.pair import End, FaultyPair

PARAMS = LinkParams(flit_bytes=16, latency=4, vc_depth=14, seq_bits=6, refresh=64, reliable=True)
PLAIN = LinkParams(flit_bytes=16, latency=4, vc_depth=14, seq_bits=6, refresh=64)


async def start(dut, *, limit: int = 5_000, first: int = 0, **rates) -> tuple[Bench, End, End]:
    """Both ends, running. ``now`` starts at ``first``."""
    bench = Bench(dut, limit=limit)
    a, b = End(bench, "a", PARAMS, **rates), End(bench, "b", PARAMS, **rates)
    a.peer, b.peer = b, a
    dut.now.value = first

    def clock() -> None:
        dut.now.value = first + bench.cycle

    bench.on_drive(clock)
    await bench.start()
    rates = [(end.send_rate, end.free_rate) for end in (a, b)]
    for end in (a, b):
        end.send_rate = 0.0
    await bench.until(lambda: a.read("available") and b.read("available"), "start of the link")
    for end, (send, _) in zip((a, b), rates, strict=True):
        end.send_rate = send
    return bench, a, b


async def drain(bench: Bench, *ends: End) -> None:
    for end in ends:
        end.send_rate, end.free_rate, end.error_rate = 0.0, 1.0, 0.0
    await bench.until(lambda: all(not end.sent and not any(end.held) for end in ends),
                      "delivery of all flits")
    await bench.until(lambda: all(end.read("idle") for end in ends), "rest")


def credits_are_whole(bench: Bench, *ends: End) -> None:
    every = (1 << PARAMS.vcs) - 1
    assert all(end.read("available") == every for end in ends)


@cocotb.test()
async def it_starts_in_the_documented_time_and_rests(dut):
    bench, a, b = await start(dut, send_rate=0.0)
    assert bench.cycle <= 2 * PARAMS.latency + 8
    dut._log.info("starts at cycle %d", bench.cycle)
    awake = []
    bench.on_sample(lambda: awake.append(not (a.read("idle") and b.read("idle"))))
    await bench.cycles(PARAMS.refresh)
    del awake[:]
    await bench.cycles(10 * PARAMS.refresh)
    # The word of a tick: it is made, leaves, arrives.
    assert sum(awake) <= 10 * 4
    assert a.read("refused") == b.read("refused") == a.read("replays") == b.read("replays") == 0


@cocotb.test()
async def without_errors_it_equals_a_plain_link_in_every_cycle(dut):
    bench, a, b = await start(dut, send_rate=0.9, free_rate=0.6)

    def compare() -> None:
        for end in "ab":
            for port in (f"available_{end}", f"receive_{end}__valid", f"receive_{end}__payload"):
                mine, twin = getattr(dut, port), getattr(dut, f"twin_{port}")
                if "payload" not in port or int(getattr(dut, f"receive_{end}__valid").value):
                    assert int(mine.value) == int(twin.value), f"cycle {bench.cycle}: {port}"

    bench.on_sample(compare)
    for _ in range(12):
        await bench.cycles(250)
        for end in (a, b):
            end.send_rate = bench.rng.choice((0.1, 0.7, 1.0))
            end.free_rate = bench.rng.choice((0.1, 0.5, 1.0))
    await drain(bench, a, b)
    assert min(a.received, b.received) > 500


@cocotb.test()
async def one_vc_fills_the_link(dut):
    bench, a, b = await start(dut)
    a.vcs = b.vcs = [2]
    await bench.cycles(100)
    before = a.received, b.received
    await bench.cycles(1000)
    assert min(a.received - before[0], b.received - before[1]) >= 990
    await drain(bench, a, b)


@cocotb.test()
async def noise_costs_time_and_nothing_else(dut):
    bench, a, b = await start(dut, send_rate=0.9, free_rate=0.5)
    for _ in range(40):
        for end in (a, b):
            end.send_rate = bench.rng.choice((0.02, 0.5, 1.0))
            end.free_rate = bench.rng.choice((0.05, 0.5, 1.0))
            end.error_rate, end.burst = bench.rng.choice(
                ((0.0, 1), (0.01, 1), (0.1, 1), (0.3, 1), (0.05, 5), (0.01, 30)))
        await bench.cycles(400)
        assert not a.read("down") and not b.read("down"), [
            (end.fault, end.error_rate, end.burst, end.send_rate, end.free_rate) for end in (a, b)]
    await drain(bench, a, b)
    await bench.cycles((PARAMS.vcs + 1) * PARAMS.refresh)
    credits_are_whole(bench, a, b)
    assert a.read("refused") == b.struck and b.read("refused") == a.struck
    assert min(a.received, b.received) > 1 << PARAMS.seq_bits + 3
    assert min(a.read("replays"), b.read("replays")) > 100


@cocotb.test()
async def full_buffers_on_both_sides_drain(dut):
    bench, a, b = await start(dut, send_rate=1.0, free_rate=0.0)
    for end in (a, b):
        end.error_rate = 0.2
    await bench.cycles(600)
    # Every buffer of both ends is full, and the replay buffers cannot hold one flit more.
    assert all(end.held == [PARAMS.vc_depth] * PARAMS.vcs for end in (a, b))
    for end in (a, b):
        end.free_rate = 1.0
    before = a.received, b.received
    await bench.cycles(1000)
    assert min(a.received - before[0], b.received - before[1]) > 100
    await drain(bench, a, b)
    await bench.cycles((PARAMS.vcs + 1) * PARAMS.refresh)
    credits_are_whole(bench, a, b)


@cocotb.test()
async def a_lost_last_word_is_made_good_in_a_round_trip(dut):
    bench, a, b = await start(dut, send_rate=0.0)
    for victim in (a, b):
        await bench.cycles(bench.rng.randrange(40))
        a.send_rate = 1.0
        await bench.until(lambda: a.offer is not None, "a flit")
        a.send_rate, victim.error_rate = 0.0, 1.0
        await bench.cycles(2)
        a.error_rate = 0.0
        await bench.until(lambda: not a.sent, "its delivery")
        if victim is a:
            assert a.arrivals == [] and b.arrivals[-1] - a.departures[-1] <= 3 * PARAMS.latency + 9
        await bench.cycles(PARAMS.latency)
        b.error_rate = 0.0
    await drain(bench, a, b)
    await bench.cycles((PARAMS.vcs + 1) * PARAMS.refresh)
    credits_are_whole(bench, a, b)


@cocotb.test()
async def a_reset_of_one_end_is_seen_and_the_link_starts_again(dut):
    bench, a, b = await start(dut, send_rate=1.0, free_rate=0.3, first=123_456)
    for round_ in range(12):
        await bench.cycles(bench.rng.randrange(1, 300))
        one, other = bench.rng.sample((a, b), 2)
        for end in (a, b):
            end.error_rate = bench.rng.choice((0.0, 0.0, 0.2))
        faults = set()
        bench.on_sample(lambda faults=faults, other=other: faults.add(other.fault))
        one.ports["reset"].value = 1
        for end in (a, b):
            end.send_rate = 0.0
        await bench.cycles(bench.rng.randrange(1, 5))
        one.ports["reset"].value = 0
        one.held = [0] * PARAMS.vcs
        # The other end's buffers are full of the old session; the link waits for them.
        await bench.until(lambda other=other: other.read("down"), "notice of the reset")
        one.sent.clear()
        other.sent.clear()
        await bench.until(lambda: a.read("available") and b.read("available"), "new start")
        assert LinkFault.PEER_RESET in faults, f"round {round_}: {faults}"
        assert not (a.read("down") or b.read("down"))
        credits_are_whole(bench, a, b)
        for end in (a, b):
            end.send_rate = 1.0
    await drain(bench, a, b)


@cocotb.test()
async def a_lost_signal_is_reported_and_the_link_starts_again_when_it_returns(dut):
    bench, a, b = await start(dut, send_rate=1.0, free_rate=0.3)
    for ends in ([a], [b], [a, b]):
        await bench.cycles(200)
        for end in (a, b):
            end.send_rate = 0.0
        for end in ends:
            end.ports["up"].value = 0
        await bench.until(lambda ends=ends: all(end.read("down") for end in ends), "report")
        assert all(end.fault is LinkFault.SIGNAL for end in ends)
        await bench.cycles(3 * PARAMS.refresh)
        for end in ends:
            assert end.read("available") == 0 and end.read("idle")
            end.ports["up"].value = 1
        if len(ends) == 1:
            other = b if ends[0] is a else a
            await bench.until(lambda other=other: other.read("down"), "notice at the other end")
            assert other.fault is LinkFault.PEER_DOWN
        a.sent.clear()
        b.sent.clear()
        await bench.until(lambda: a.read("available") and b.read("available"), "new start")
        credits_are_whole(bench, a, b)
        for end in (a, b):
            end.send_rate = 1.0
    await drain(bench, a, b)


@cocotb.test()
async def a_link_without_use_goes_down_and_comes_back(dut):
    bench, a, b = await start(dut, send_rate=0.5, free_rate=0.5)
    await bench.cycles(100)
    a.error_rate, b.error_rate = 1.0, 1.0
    await bench.until(lambda: a.read("down") and b.read("down"), "end of patience")
    assert {a.fault, b.fault} <= {LinkFault.REPLAY_LIMIT, LinkFault.PEER_DOWN}
    assert LinkFault.REPLAY_LIMIT in (a.fault, b.fault)
    a.send_rate = b.send_rate = 0.0
    await bench.cycles(200)
    assert a.read("down") and b.read("down")
    a.sent.clear()
    b.sent.clear()
    a.error_rate = b.error_rate = 0.0
    await bench.until(lambda: a.read("available") and b.read("available"), "new start")
    a.send_rate = b.send_rate = 1.0
    await bench.cycles(300)
    await drain(bench, a, b)


@cocotb.test()
async def a_link_that_is_not_drained_waits(dut):
    bench, a, b = await start(dut, send_rate=0.0)
    b.drained = 0
    a.ports["reset"].value = 1
    await bench.cycles(2)
    a.ports["reset"].value = 0
    await bench.cycles(4 * PARAMS.refresh)
    assert b.read("down") and not b.read("available")
    b.drained = 1
    await bench.until(lambda: a.read("available") and b.read("available"), "new start")
    await drain(bench, a, b)


@cocotb.test()
async def an_end_alone_is_reported_and_starts_when_the_other_comes(dut):
    bench = Bench(dut, limit=3_000)
    a, b = End(bench, "a", PARAMS, send_rate=0.0), End(bench, "b", PARAMS, send_rate=0.0)
    a.peer, b.peer = b, a
    bench.on_drive(lambda: setattr(dut.now, "value", bench.cycle))
    b.ports["reset"].value = 1
    await bench.start()
    await bench.cycles(100)
    assert not a.read("down") and not a.read("available")
    await bench.until(lambda: a.read("down"), "report")
    assert a.fault is LinkFault.PEER_DOWN
    b.ports["reset"].value = 0
    await bench.until(lambda: a.read("available") and b.read("available"), "start")
    assert a.fault is LinkFault.NONE and not a.read("down")


def test_a_reliable_link_delivers_in_order_exactly_once_and_starts_again() -> None:
    run_bench(FaultyPair(PARAMS, PARAMS, twin=PLAIN), __name__)
