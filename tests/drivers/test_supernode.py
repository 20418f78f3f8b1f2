"""The drivers on the model of a machine, under many random interleavings."""

from __future__ import annotations

import os
import random

import ml_dtypes
import numpy as np
import pytest

from drivers.backend import StallError, WaitTimeout
from drivers.collectives import Send, reference
from drivers.commands import Command
from drivers.counters import CounterPool, OutOfCountersError
from drivers.device import DIRECT, LIST_QUEUE, Operation
from drivers.dtypes import DTYPES, reducible
from drivers.group import OPERATORS
from drivers.handle import OperationError
from drivers.lease import Lease
from drivers.supernode import SuperNode
from hdl.layouts import Op, Status
from hdl.params import CardParams, NicParams, RouterParams, preset
from hdl.topology import Bound, parse

from .model import ModelBackend

SMALL = preset("small")
#: Of models that do things in an order of their own.
SEEDS = random.Random(int(os.environ["SUPERNODE_SEED"]))
CUBE = CardParams(router=RouterParams(), nic=NicParams(mtu=256, counters=8, slots=4))


def machine(spec="ring:3", *, params=SMALL, seed=None, rings=256, **options) -> SuperNode:
    seed = SEEDS.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    return SuperNode(ModelBackend(parse(spec), params, seed=seed, **options), queue_entries=rings,
                     completion_entries=rings)


def random_values(rng, shape, dtype):
    if DTYPES[dtype].numpy.kind == "i":
        return rng.integers(-128, 128, shape).astype(DTYPES[dtype].numpy)
    return rng.standard_normal(shape).astype(np.float32).astype(DTYPES[dtype].numpy)


def check_allreduce(supernode: SuperNode, cards, count, dtype, seed=0, op="sum"):
    rng = np.random.default_rng(seed)
    inputs = {card: random_values(rng, count, dtype) for card in cards}
    arrays = {card: supernode.malloc(count, dtype, card).write(inputs[card]) for card in cards}
    handle = supernode.allreduce([arrays[card] for card in cards], op=op)
    result = handle.wait()
    wanted = reference(handle.schedule, [inputs[card] for card in handle.order], dtype,
                       OPERATORS[op])
    for card, values in zip(handle.order, wanted, strict=True):
        assert arrays[card].read().tobytes() == values.tobytes()
    supernode.free(*arrays.values())
    return result


# --- AllReduce

@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("count", [0, 1, 3, 1023, 4096])
@pytest.mark.parametrize("cards", [1, 2, 3, 5, 8])
def test_allreduce_is_bit_exact_on_any_number_of_cards_and_elements(cards, count, dtype):
    check_allreduce(machine(f"ring:{cards}"), range(cards), count, dtype)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", reducible())
def test_allreduce_serves_every_type_and_operator(dtype, op):
    check_allreduce(machine("ring:3"), range(3), 201, dtype, op=op)
    check_allreduce(machine("torus:2x2x2", params=CUBE), range(8), 403, dtype, op=op)


@pytest.mark.parametrize("seed", range(40))
def test_allreduce_is_bit_exact_under_any_interleaving(seed):
    rng = random.Random(seed)
    supernode = machine(rng.choice(["ring:4", "ring:5", "torus:2x2x2"]), params=CUBE, seed=seed,
                        rings=rng.choice([4, 16, 256]))
    count = rng.randrange(600)
    for repeat in range(2):
        check_allreduce(supernode, range(supernode.cards), count, "f32", seed + repeat)


def test_allreduce_of_a_group_leaves_the_others_alone():
    supernode = machine("torus:2x2x2", params=CUBE)
    bystander = supernode.malloc(64, "f32", 3).write(np.arange(64, dtype=np.float32))
    result = check_allreduce(supernode, [6, 1, 4, 7], 500, "f32")
    assert {record.card for record in result.completions} == {6, 1, 4, 7}
    assert bystander.read().tolist() == list(range(64))


@pytest.mark.parametrize("algorithm", ["ring", "dimensions"])
@pytest.mark.parametrize("seed", range(6))
def test_both_algorithms_are_bit_exact_when_lists_do_not_fit_and_counters_are_few(seed, algorithm):
    supernode = machine("mesh:3x2", params=CUBE, seed=seed, rings=4)
    rng = np.random.default_rng(seed)
    inputs = [random_values(rng, 100 * seed, "f32") for _ in range(6)]
    arrays = [supernode.malloc(100 * seed, "f32", card).write(inputs[card]) for card in range(6)]
    handle = supernode.allreduce(arrays, algorithm=algorithm)
    handle.wait()
    assert handle.algorithm == algorithm
    wanted = reference(handle.schedule, [inputs[card] for card in handle.order], "f32")
    for card, values in zip(handle.order, wanted, strict=True):
        assert arrays[card].read().tobytes() == values.tobytes()


def test_cards_with_two_rails_use_both():
    params = CardParams(router=RouterParams(rails=2), nic=NicParams(mtu=256, counters=16))
    supernode = machine("torus:2x2x2", params=params, seed=8)
    rng = np.random.default_rng(8)
    inputs = [random_values(rng, 3000, "f32") for _ in range(8)]
    arrays = [supernode.malloc(3000, "f32", card).write(inputs[card]) for card in range(8)]
    handle = supernode.allreduce(arrays)
    handle.wait()
    assert {part.rail for part in handle.schedule.slices} == {0, 1}
    wanted = reference(handle.schedule, [inputs[card] for card in handle.order], "f32")
    for card, values in zip(handle.order, wanted, strict=True):
        assert arrays[card].read().tobytes() == values.tobytes()


def test_a_group_that_is_no_box_is_not_summed_by_dimensions():
    supernode = machine("torus:2x2x2", params=CUBE)
    arrays = [supernode.malloc(8, "f32", card) for card in (0, 1, 6)]
    assert "dimensions" not in supernode.allreduce(arrays).reason
    with pytest.raises(ValueError, match="these 3 cards of torus:2x2x2 are none"):
        supernode.allreduce(arrays, algorithm="dimensions")


def test_a_ring_allreduce_follows_neighbours():
    supernode = machine("torus:2x2x2", params=CUBE)
    arrays = [supernode.malloc(8, "f32", card).write(np.ones(8, np.float32)) for card in range(8)]
    handle = supernode.allreduce(arrays, algorithm="ring")
    handle.wait()
    for card, steps in zip(handle.order, handle.schedule.lists, strict=True):
        peers = {handle.order[step.peer] for step in steps if isinstance(step, Send)}
        assert [supernode.topology.hops(card, peer) for peer in peers] == [1]


def test_a_card_that_starts_late_delays_the_others_and_changes_nothing():
    supernode = machine("ring:4", slow=[2], late=0)
    supernode.backend._late = supernode.backend.now + 10_000
    result = check_allreduce(supernode, range(4), 300, "f32")
    assert result.cycles > 9_000
    assert result.waited_cycles > 9_000


def test_two_allreduces_under_way_at_once_do_not_mix():
    supernode = machine("ring:3")
    rng = np.random.default_rng(1)
    handles = []
    for count in (700, 33):
        inputs = [random_values(rng, count, "f32") for _ in range(3)]
        arrays = [supernode.malloc(count, "f32", card).write(inputs[card]) for card in range(3)]
        handles.append((supernode.allreduce(arrays), arrays, inputs))
    for handle, arrays, inputs in reversed(handles):
        handle.wait()
        wanted = reference(handle.schedule, [inputs[card] for card in handle.order], "f32")
        for card, values in zip(handle.order, wanted, strict=True):
            assert arrays[card].read().tobytes() == values.tobytes()


def test_counters_come_back_and_wrap_at_32_bits():
    supernode = machine("ring:3", seed=5)
    for card, device in enumerate(supernode.devices):
        total = 0xFFFF_FFF0 + card
        supernode.backend.cards[card].counters[:] = [total] * SMALL.nic.counters
        device.counters._totals = [total] * SMALL.nic.counters
    for repeat in range(12):
        check_allreduce(supernode, range(3), 200, "f32", repeat)
    for card, device in enumerate(supernode.devices):
        assert device.counters.free == SMALL.nic.counters
        assert device.counters._totals == supernode.backend.cards[card].counters


@pytest.mark.parametrize(("change", "text"), [
    ({"op": "prod"}, "unknown operator 'prod': accepted are sum, min, max"),
    ({"algorithm": "star"}, "unknown algorithm 'star': accepted are auto, dimensions, ring")])
def test_allreduce_refuses_what_is_not_there(change, text):
    supernode = machine()
    arrays = [supernode.malloc(4, "f32", card) for card in range(3)]
    with pytest.raises(ValueError, match=text):
        supernode.allreduce(arrays, **change)


def test_allreduce_refuses_arrays_that_do_not_fit_together():
    supernode = machine()
    four, five = supernode.malloc(4, "f32", 0), supernode.malloc(5, "f32", 1)
    for arrays, text in (([four, five], "member 1 has 5 elements instead of 4"),
                         ([four, supernode.malloc(4, "bf16", 1)],
                          "member 1 is bf16 on card 1, and should be f32"),
                         ([four, four], "each card once"), ([], "at least one array"),
                         ([supernode.malloc(4, "u8", 0)],
                          "cards reduce no u8: accepted are f32, bf16, f16, e4m3, e5m2, i32, i8")):
        with pytest.raises(ValueError, match=text):
            supernode.allreduce(arrays)


def test_running_out_of_counters_is_refused_and_gives_back_what_it_took():
    pool = CounterPool("card 4", 2)
    pool.allocate(), pool.allocate()
    with pytest.raises(OutOfCountersError, match="card 4 has no counter left: all 2"):
        pool.allocate()
    supernode = machine("ring:2", params=CardParams(router=RouterParams(dim_ports=(2,)),
                                                    nic=NicParams(mtu=256, counters=1)))
    arrays = [supernode.malloc(8, "f32", card) for card in range(2)]
    with pytest.raises(OutOfCountersError):
        supernode.allreduce(arrays, algorithm="ring")
    assert [device.counters.free for device in supernode.devices] == [1, 1]


# --- remote writes

@pytest.mark.parametrize("ack", [True, False])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 3000])
def test_write_moves_bytes_between_any_two_cards(size, ack):
    supernode = machine("ring:3")
    rng = np.random.default_rng(size)
    for source, target in ((0, 2), (2, 1), (1, 1)):
        values = rng.integers(0, 256, size, np.uint8)
        a = supernode.malloc(size, "u8", source).write(values)
        b = supernode.malloc(size + 2, "u8", target).write(np.zeros(size + 2, np.uint8))
        result = supernode.write(a, b.view(1, size), ack=ack)
        assert b.read().tolist() == [0, *values.tolist(), 0]
        assert (result.efficiency is None) == (size == 0)
        assert len(result.completions) == (1 if ack else 2)


@pytest.mark.parametrize("ack", [True, False])
@pytest.mark.parametrize(("dtype", "op", "join"), [
    ("bf16", "sum", np.add), ("f32", "max", np.maximum), ("f16", "sum", np.add),
    ("e4m3", "min", np.minimum), ("i32", "min", np.minimum), ("i8", "sum", np.add)])
def test_reduce_into_joins_at_the_target(dtype, op, join, ack):
    supernode = machine("ring:3")
    rng = np.random.default_rng(2)
    a, b = (random_values(rng, 777, dtype) for _ in range(2))
    source, target = supernode.malloc(777, dtype, 0), supernode.malloc(777, dtype, 1)
    supernode.reduce_into(source.write(a), target.write(b), op=op, ack=ack)
    assert target.read().tobytes() == join(a, b).tobytes()
    with pytest.raises(ValueError, match="cards reduce no u8"):
        supernode.reduce_into(supernode.malloc(4, "u8", 0), supernode.malloc(4, "u8", 1))


def test_writes_between_arrays_that_differ_are_refused():
    supernode = machine()
    with pytest.raises(ValueError, match=r"source f32\[4\] and target f32\[5\] differ"):
        supernode.write(supernode.malloc(4, "f32", 0), supernode.malloc(5, "f32", 1))


# --- GEMM

@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("formats", [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e5m2", "e5m2")])
def test_gemm_multiplies_matrices_on_one_card(formats, b_transposed):
    supernode = machine("ring:2", memory_bytes=1 << 18)
    rng = np.random.default_rng(4)
    m, n, k = 5, 9, 17
    a = random_values(rng, (m, k), formats[0])
    b = random_values(rng, (n, k) if b_transposed else (k, n), formats[1])
    c = supernode.malloc((m, n), "f32", 1)
    result = supernode.gemm(supernode.malloc(a.shape, formats[0], 1).write(a),
                            supernode.malloc(b.shape, formats[1], 1).write(b), c,
                            b_transposed=b_transposed).wait()
    wanted = a.astype(np.float64) @ (b.T if b_transposed else b).astype(np.float64)
    assert c.read().tobytes() == wanted.astype(np.float32).tobytes()
    assert result.bound_cycles > 0


def test_gemms_on_several_cards_and_more_than_the_window_holds():
    supernode = machine("ring:3")
    products, wanted = [], []
    free = [device.memory.free_bytes for device in supernode.devices]
    for index in range(15):
        a, b, c = (supernode.malloc((2, 2), kind, index % 3) for kind in ("e4m3", "e4m3", "f32"))
        a.write(np.full((2, 2), index, ml_dtypes.float8_e4m3fn))
        b.write(np.ones((2, 2), ml_dtypes.float8_e4m3fn))
        products.append((a, b, c))
        wanted.append(2 * index)
    result = supernode.gemms(products).wait()
    assert [c.read()[0, 0] for _, _, c in products] == wanted
    assert len(result.completions) == 15
    for product in products:
        supernode.free(*product)
    assert [device.memory.free_bytes for device in supernode.devices] == free


def test_gemms_that_do_not_fit_are_refused_by_name():
    supernode = machine()

    def matrix(shape, dtype="e4m3", card=0):
        return supernode.malloc(shape, dtype, card)

    good = matrix((4, 4), "f32")
    for a, b, c, text in (
            (matrix((4, 3)), matrix((4, 4)), good, "A 4×3, B 4×4 .k×n. and C 4×4 do not match"),
            (matrix((4, 4), "bf16"), matrix((4, 4)), good, "A must be e4m3 or e5m2, not bf16"),
            (matrix((4, 4)), matrix((4, 4)), matrix((4, 4), "bf16"), "C must be f32, not bf16"),
            (matrix((4, 4)), matrix((4, 4), card=1), good, "B is on card 1 and A on card 0"),
            (matrix(16), matrix((4, 4)), good, "A must be a matrix")):
        with pytest.raises(ValueError, match=text):
            supernode.gemm(a, b, c)
    with pytest.raises(ValueError, match="at least one"):
        supernode.gemms([])


# --- results

def test_a_result_is_stamps_against_the_bound():
    supernode = machine("ring:4")
    result = check_allreduce(supernode, range(4), 4096, "f32")
    ended = max(record.ended for record in result.completions)
    posted = min(record.posted for record in result.completions)
    assert result.cycles == ended - posted
    assert result.efficiency == result.bound_cycles / result.cycles
    assert result.time_ns == result.cycles / SMALL.clock_ghz
    assert result.limit == "injection"


def test_all_cards_of_a_group_start_at_one_instant():
    supernode = machine("ring:4")
    for repeat in range(3):
        result = check_allreduce(supernode, range(4), 64, "f32", repeat)
        assert len({record.posted for record in result.completions}) == 1


# --- flow control

@pytest.mark.parametrize("algorithm", ["ring", "dimensions"])
@pytest.mark.parametrize("rings", [4, 16])
def test_lists_longer_than_the_ring_are_continued_and_their_first_doorbell_counts(rings, algorithm):
    supernode = machine("ring:4", rings=rings, seed=rings)
    arrays = [supernode.malloc(8192, "f32", card).write(np.ones(8192, np.float32))
              for card in range(4)]
    backend, bells = supernode.backend, []
    for card in backend.cards:
        def write(offset, value, card=card, plain=card.register_write):
            bells.append((backend.now, card.rank, offset))
            plain(offset, value)
        card.register_write = write
    result = supernode.allreduce(arrays, algorithm=algorithm).wait()
    assert all((array.read() == 4).all() for array in arrays)
    rung = [each for each in bells if each[2] == backend.map.queue_tail.at(0)]
    start = rung[0][0]
    assert len(rung) > 4 or algorithm == "dimensions"  # whose lists are made to fit
    assert {card for now, card, _ in rung if now == start} == set(range(4))
    assert {record.card for record in result.completions if record.posted == start} == set(range(4))
    assert result.cycles == max(record.ended for record in result.completions) - start


def test_rings_wrap_many_times():
    supernode = machine("ring:2", rings=8)
    for repeat in range(30):
        check_allreduce(supernode, range(2), 5, "f32", repeat)
    tails = [card.record_tail for card in supernode.backend.cards]
    assert tails == [30, 30] == [device.consumed for device in supernode.devices]
    assert all(card.heads[0] > 8 for card in supernode.backend.cards)


def test_more_signalling_commands_than_completion_records_neither_overwrite_nor_hang():
    supernode = machine("ring:2", rings=4)
    device = supernode.devices[0]
    operation = Operation("many signals")
    device.stage(operation, LIST_QUEUE, [Command(op=Op.NOP, signal=True)] * 50)
    result = supernode.launch(operation, Bound({}), Lease(supernode.devices)).wait()
    assert len(result.completions) == 50
    assert supernode.backend.cards[0].direct_lost == 0


def test_a_full_completion_ring_does_not_hold_up_cards_that_wait_for_this_one():
    supernode = SuperNode(ModelBackend(parse("ring:2"), SMALL), queue_entries=64,
                          completion_entries=4)
    first, second = supernode.devices
    operation = Operation("signals, then a write")
    first.stage(operation, LIST_QUEUE, [
        *[Command(op=Op.NOP, signal=True)] * 20,
        Command(op=Op.WRITE, node=1, target_counter=0), Command(op=Op.FENCE, signal=True)])
    second.stage(operation, LIST_QUEUE, [Command(op=Op.NOP, wait=(0, 1), signal=True)])
    result = supernode.launch(operation, Bound({}), Lease(supernode.devices)).wait()
    assert len(result.completions) == 22


def test_more_direct_commands_than_the_window_holds_are_not_lost():
    supernode = machine("ring:2")
    device = supernode.devices[1]
    operation = Operation("many direct")
    device.stage(operation, DIRECT, [Command(op=Op.NOP, signal=True)] * 30)
    supernode.launch(operation, Bound({}), Lease(supernode.devices)).wait()
    assert supernode.backend.cards[1].direct_taken == 30
    assert supernode.backend.cards[1].direct_lost == 0


# --- errors

def test_a_failed_command_names_card_command_status_and_peer():
    supernode = machine("ring:3")
    operation = Operation("a write beyond memory")
    supernode.devices[1].stage(operation, DIRECT, [
        Command(op=Op.WRITE, length=64, node=2, address=1 << 40, ack=True, signal=True)])
    handle = supernode.launch(operation, Bound({}), Lease(supernode.devices))
    with pytest.raises(OperationError, match=r"a write beyond memory: card 1: WRITE with tag 0 "
                                             r"ended at cycle .* with TARGET_RANGE from card 2"):
        handle.wait()
    # The machine still works.
    check_allreduce(supernode, range(3), 10, "f32")


def test_a_command_that_was_not_to_signal_reports_its_error_too():
    supernode = machine("ring:2")
    operation = Operation("bad")
    supernode.devices[0].stage(operation, LIST_QUEUE, [
        Command(op=Op.WRITE, length=4, source=1 << 40), Command(op=Op.FENCE, signal=True)])
    handle = supernode.launch(operation, Bound({}), Lease(supernode.devices))
    with pytest.raises(OperationError, match="SOURCE_RANGE") as caught:
        handle.wait()
    assert caught.value.records[0].status is Status.SOURCE_RANGE


@pytest.mark.parametrize("others", [False, True])
def test_a_stall_names_card_queue_counter_and_totals(others):
    supernode = machine("ring:3")
    operation = Operation("a wait for nobody")
    if others:
        supernode.devices[0].stage(operation, LIST_QUEUE, [Command(op=Op.FENCE, signal=True)])
    supernode.devices[2].stage(operation, LIST_QUEUE, [
        Command(op=Op.NOP, wait=(7, 3), signal=True)])
    handle = supernode.launch(operation, Bound({}), Lease(supernode.devices))
    with pytest.raises(StallError, match=r"a wait for nobody: nothing can happen\n  card 2: "
                                         r"command 0 of queue 0 \(NOP\) waits for counter 7 to "
                                         r"reach 3, it has 0\n    no command that was posted "
                                         r"adds to counter 7 of card 2$"):
        handle.wait()


def test_a_timeout_names_what_was_stuck():
    supernode = machine("ring:2", slow=[1], late=1 << 40)
    operation = Operation("half asleep")
    for device in supernode.devices:
        device.stage(operation, LIST_QUEUE, [Command(op=Op.NOP, signal=True)])
    handle = supernode.launch(operation, Bound({}), Lease(supernode.devices))
    with pytest.raises(WaitTimeout, match="half asleep: no completion within 1000 cycles\n  "
                                          "card 1: 1 commands of queue 0 are not fetched"):
        handle.wait(timeout=1000)


def test_a_machine_that_is_no_supernode_is_refused():
    backend = ModelBackend(parse("ring:2"), SMALL)
    backend.cards[1].register_read = lambda offset: 0x1234
    with pytest.raises(RuntimeError, match="card 1 identifies itself as 0x1234"):
        SuperNode(backend)
    with pytest.raises(ValueError, match="queue_entries must be a power of two from 2 on, not 6"):
        SuperNode(ModelBackend(parse("ring:2"), SMALL), queue_entries=6)
    with pytest.raises(ValueError, match="cannot hold rings"):
        SuperNode(ModelBackend(parse("ring:2"), SMALL, memory_bytes=4096))


def test_closing_releases_the_machine():
    backend = ModelBackend(parse("ring:2"), SMALL)
    with SuperNode(backend) as supernode:
        assert supernode.cards == 2 and supernode.rank(1).malloc(4, "f32").card == 1
        with pytest.raises(ValueError, match="has no card 2"):
            supernode.rank(2)
    assert backend.closed
