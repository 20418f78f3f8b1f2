"""What the engine promises the drivers: time, memory, registers, waits and their failures."""

from __future__ import annotations

import gc
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from drivers.backend import Completions, StallError, WaitTimeout
from emu.emulator import EngineBackend, EngineError
from emu.library import EventKind
from hdl.topology import parse

from . import toys
from .machines import toy_card, toy_params

PARAMS = toy_params()
FLIT = PARAMS.link.flit_bytes
LATENCY = PARAMS.memory.latency


@pytest.fixture
def machine(request):
    """A ring of two toy cards, with an event log."""
    options = {"event_log": True, "memory_bytes": 1 << 20, **getattr(request, "param", {})}
    backend = EngineBackend(parse(options.pop("spec", "ring:2")), PARAMS, card=toy_card, **options)
    yield backend
    backend.close()


def send(backend, rank, **fields):
    backend.register_write(rank, toys.SEND, toys.send_word(**fields))


def events(backend, kind):
    log = backend.event_log()
    return log[log["kind"] == kind]


def test_bytes_sent_arrive_in_the_peers_memory_and_nowhere_else(machine):
    data = np.random.default_rng(0).integers(1, 256, 3 * FLIT, dtype=np.uint8)
    machine.memory_write(0, 4 * FLIT, data)
    machine.register_write(1, toys.BASE, 16)
    send(machine, 0, index=4, count=3, port=0)
    machine.wait([Completions(1, 1)], 10_000)
    view = machine.memory_view(1)
    assert np.array_equal(view[16 * FLIT:19 * FLIT], data)
    assert not view[:16 * FLIT].any() and not view[19 * FLIT:].any()
    assert np.array_equal(machine.memory_read(1, 16 * FLIT, 3 * FLIT), data)


def test_a_word_arrives_one_link_latency_after_it_left(machine):
    send(machine, 0, index=0, count=1, port=0, hops=1)
    machine.wait([Completions(0, 1)], 10_000)
    first, second = events(machine, EventKind.LINK)
    assert (first["node"], second["node"]) == (0, 1)
    # The toy passes a word on three cycles after its arrival: two in a queue, output register.
    assert second["cycle"] - first["cycle"] == PARAMS.link.latency + 3


def test_a_read_is_answered_after_the_memory_latency_with_its_tag(machine):
    send(machine, 0, index=0, count=20, port=0)
    machine.wait([Completions(1, 1)], 10_000)
    asked, answered = events(machine, EventKind.READ_REQUEST), events(machine,
                                                                      EventKind.READ_RESPONSE)
    assert np.array_equal(answered["cycle"] - asked["cycle"], np.full(20, LATENCY))
    assert np.array_equal(answered["value"], asked["digest"])  # the tag


def test_writes_touch_only_enabled_bytes(machine):
    machine.memory_view(0)[:4 * FLIT] = 0xAA
    machine.memory_view(1)[:4 * FLIT] = 0x55
    send(machine, 0, index=0, count=4, port=0)
    machine.wait([Completions(1, 1)], 10_000)
    last = machine.memory_read(1, 3 * FLIT, FLIT)  # mask 0x0f0f
    lanes = np.arange(FLIT)
    enabled = (lanes < 4) | ((lanes >= 8) & (lanes < 12))
    assert np.array_equal(last, np.where(enabled, 0xAA, 0x55))


@pytest.mark.parametrize("machine", [{"stall_rate": 0.6, "seed": 5}], indirect=True)
def test_stalls_delay_and_lose_nothing(machine):
    data = np.random.default_rng(0).integers(0, 256, 32 * FLIT, dtype=np.uint8)
    machine.memory_write(0, 0, data)
    machine.register_write(1, toys.BASE, 64)
    for part in range(8):
        send(machine, 0, index=4 * part, count=4, port=0)
    machine.wait([Completions(1, 8)], 10_000)
    lanes = np.arange(32 * FLIT)
    enabled = ((lanes // FLIT % 4 != 3) | (lanes % FLIT < 4)
               | ((lanes % FLIT >= 8) & (lanes % FLIT < 12)))
    assert np.array_equal(machine.memory_read(1, 64 * FLIT, 32 * FLIT)[enabled], data[enabled])
    asked, answered = events(machine, EventKind.READ_REQUEST), events(machine,
                                                                      EventKind.READ_RESPONSE)
    delay = answered["cycle"] - asked["cycle"]
    assert delay.min() >= LATENCY and delay.max() > LATENCY
    assert np.array_equal(answered["value"], asked["digest"])


def test_register_writes_arrive_one_per_cycle_on_all_cards_at_once(machine):
    machine.advance(100)
    start = machine.cycle
    assert start == 128 and start % PARAMS.host_quantum == 0
    for value in range(40):  # more than fit in a quantum
        for rank in range(2):
            machine.register_write(rank, toys.BASE, value)
    machine.advance(1)
    machine.register_write(0, toys.BASE, 99)
    machine.advance(200)
    writes = events(machine, EventKind.HOST_WRITE)
    for rank, count in ((0, 41), (1, 40)):
        cycles = writes[writes["node"] == rank]["cycle"]
        assert np.array_equal(cycles, start + np.arange(count))
    assert machine.register_read(0, toys.BASE) == 99
    assert machine.register_read(1, toys.BASE) == 39


def test_a_wait_ends_at_the_first_boundary_at_which_all_conditions_hold(machine):
    machine.register_write(0, toys.TIMER, 1000)
    machine.register_write(1, toys.TIMER, 1023)
    machine.wait([Completions(0, 1)], 10_000)
    assert machine.cycle == 1024
    machine.wait([Completions(0, 1), Completions(1, 1)], 10_000)
    assert machine.cycle == 1024  # cycle 1023 is before the boundary
    machine.wait([Completions(0, 0), Completions(1, 2**32 - 5)], 10_000)
    assert machine.cycle == 1024  # totals compare modulo 2^32


def test_a_sleeping_machine_is_not_evaluated_and_wakes_on_time(machine):
    machine.register_write(0, toys.TIMER, 50_000_000)
    begin = time.perf_counter()
    machine.wait([Completions(0, 1)], 100_000_000)
    assert time.perf_counter() - begin < 1
    assert machine.register_read(0, toys.STAMP) == 50_000_000
    statistics = machine.statistics()
    assert statistics.card_cycles == 2 * machine.cycle > 100_000_000
    assert statistics.stepped_card_cycles < 100


def test_statistics_count_flits_and_evaluations(machine):
    send(machine, 0, index=0, count=10, port=0)
    send(machine, 0, index=0, count=4, port=1)
    machine.register_write(1, toys.COPY, 0)
    machine.wait([Completions(1, 3)], 10_000)
    statistics = machine.statistics()
    links = machine.link_statistics()
    carried = {(link.source, link.source_port): link.flits for link in links}
    assert carried == {(0, 0): 10, (0, 1): 4, (1, 0): 0, (1, 1): 0}
    assert all(link.words == link.flits for link in links)
    assert statistics.stepped_card_cycles <= statistics.network_evaluations + (
        statistics.compute_evaluations) <= 2 * statistics.stepped_card_cycles
    assert statistics.compute_evaluations < statistics.network_evaluations


def test_a_wait_that_runs_out_says_what_is_on_its_way(machine):
    machine.register_write(0, toys.TIMER, 5000)
    with pytest.raises(WaitTimeout, match=r"(?s)400 cycles are over.*"
                       r"card 1: 0 of 3 completions.*network tile sleeps until cycle 5000"):
        machine.wait([Completions(1, 3)], 400)
    assert machine.cycle == 416  # the first boundary from 400 on


def test_a_wait_for_what_cannot_happen_stops_at_once(machine):
    with pytest.raises(StallError, match=r"(?s)nothing can happen any more.*"
                       r"card 1: 0 of 1 completions.*every node is idle"):
        machine.wait([Completions(1, 1)], 10**15)
    assert machine.cycle < 1000


@pytest.mark.parametrize("machine", [{"stall_rate": 0.999999999, "event_log": False}],
                         indirect=True)
def test_a_machine_that_moves_nothing_is_reported_with_what_waits(machine):
    send(machine, 0, index=0, count=1, port=0)
    with pytest.raises(StallError, match=r"(?s)nothing has moved for.*card 0: network tile busy, "
                       r"1 memory read requests not accepted"):
        machine.wait([Completions(1, 1)], 10**15)


def test_an_access_beyond_memory_ends_the_run_and_names_card_port_and_address(machine):
    send(machine, 1, index=machine.memory_bytes // FLIT, count=1, port=0)
    with pytest.raises(EngineError, match=r"card 1 memory port 0: read at address 0x100000 in "
                       r"cycle \d+ is beyond the memory of 1048576 bytes"):
        machine.advance(1000)
    with pytest.raises(EngineError, match="beyond the memory"):
        machine.advance(1)


@pytest.mark.parametrize("machine", [{"spec": "mesh:2"}], indirect=True)
def test_a_flit_into_an_open_port_is_an_error(machine):
    send(machine, 0, index=0, count=1, port=1)
    with pytest.raises(EngineError, match="card 0 sent a flit to link port 1, which leads nowhere"):
        machine.advance(1000)


@pytest.mark.parametrize(("options", "message"), [
    ({"window": 9}, "window must be from 1 to the link latency 8, not 9"),
    ({"window": 0}, "window must be from 1"),
    ({"memory_bytes": 5000}, "memory_bytes must be a multiple of 4096"),
    ({"stall_rate": 1.0}, "stall_rate must be at least 0 and below 1"),
])
def test_wrong_options_are_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as error:
        EngineBackend(parse("ring:2"), PARAMS, card=toy_card, **options)
    assert "\n" not in str(error.value)


def test_routers_get_the_ports_that_the_topology_needs():
    backend = EngineBackend(parse("torus:2x3"), PARAMS, card=toy_card, event_log=True)
    assert backend.params.router.dim_ports == (2, 2) != PARAMS.router.dim_ports
    send(backend, 0, index=0, count=1, port=2)
    backend.advance(100)
    assert [event["node"] for event in events(backend, EventKind.WRITE)] == [2]
    backend.close()


def test_wrong_memory_accesses_are_refused(machine):
    with pytest.raises(ValueError, match="card 0 has no 64 bytes at address 0xfffe0"):
        machine.memory_write(0, machine.memory_bytes - 32, bytes(64))
    with pytest.raises(ValueError, match="no card 2"):
        machine.memory_read(2, 0, 1)


def test_memory_is_shared_sparse_and_outlives_the_machine():
    backend = EngineBackend(parse("ring:4"), PARAMS, card=toy_card, memory_bytes=1 << 36)
    view = backend.memory_view(3)
    view[(1 << 36) - 1] = 7
    assert backend.memory_read(3, (1 << 36) - 1, 1)[0] == 7
    backend.close()
    del backend
    gc.collect()
    assert view[(1 << 36) - 1] == 7 and view[0] == 0


def test_a_closed_machine_says_so(machine):
    machine.close()
    machine.close()
    with pytest.raises(RuntimeError, match="the machine is closed"):
        machine.advance(1)


def test_an_interrupt_ends_a_long_run_between_two_boundaries():
    backend = EngineBackend(parse("ring:2"), PARAMS, card=toy_card, skip_idle=False)
    main = threading.main_thread().ident
    thread = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    thread.start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        backend.advance(10**12)
    assert time.perf_counter() - begin < 5
    assert backend.cycle % PARAMS.host_quantum == 0
    backend.close()


def test_latency_one_runs_in_windows_of_one():
    params = replace(toy_params(latency=1), host_quantum=7)
    backend = EngineBackend(parse("ring:3"), params, card=toy_card, event_log=True)
    send(backend, 0, index=0, count=4, port=0, hops=2)
    backend.wait([Completions(0, 1)], 10_000)
    words = events(backend, EventKind.LINK)
    assert len(words) == 12 and backend.cycle % 7 == 0
    backend.close()
