"""A machine that is stuck says why: the chain of waits down to what started it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import emu
from drivers.backend import StallError, WaitTimeout
from drivers.commands import Command
from drivers.device import LIST_QUEUE, Operation
from drivers.lease import Lease
from emu.faults import Faults, Outage
from emu.library import EventKind
from hdl.layouts import Op
from hdl.params import preset
from hdl.topology import Bound

MEMORY = 1 << 20


def machine(spec, **options):
    return emu.open(spec, preset="small", memory_bytes=MEMORY, **options)


def chain(error) -> list[str]:
    """The lines of the chain, without what the engine says of the cycle."""
    lines = str(error.value).splitlines()
    start = next(index for index, line in enumerate(lines)
                 if re.match(r" +card \d+: command", line))
    return [line.strip() for line in lines[start:]]


def launch(sn, *lists):
    """Post command lists, one per card; the last command of each reports."""
    operation = Operation("a test")
    for device, commands in zip(sn.devices, lists, strict=True):
        if commands:
            device.stage(operation, LIST_QUEUE, [*commands[:-1], commands[-1].signalling()])
    return sn.launch(operation, Bound({}), Lease(sn.devices))


def test_a_chain_of_counters_ends_at_the_one_that_nobody_raises():
    with machine("ring:3") as sn:
        sn.devices[2].counters.expect(7, 1)
        handle = launch(
            sn,
            [Command(op=Op.NOP, wait=(3, 2)), Command(op=Op.NOP),
             Command(op=Op.WRITE, node=1, address=64, length=8, target_counter=5)],
            [Command(op=Op.NOP, wait=(5, 1)),
             Command(op=Op.WRITE, node=2, address=64, length=8, target_counter=7)],
            [Command(op=Op.NOP, wait=(7, 1))])
        with pytest.raises(StallError) as error:
            handle.wait()
    waits = "card {}: command 0 of queue 0 (NOP) waits for counter {} to reach {}, it has 0"
    raises = ("card {}: command {} of queue 0 (WRITE to card {}), which adds to it, stands behind "
              "command 0 of queue 0")
    assert chain(error) == [
        waits.format(0, 3, 2), "no command that was posted adds to counter 3 of card 0",
        waits.format(1, 5, 1), raises.format(0, 2, 1), waits.format(0, 3, 2) + ", as told above",
        waits.format(2, 7, 1), raises.format(1, 1, 2), waits.format(1, 5, 1) + ", as told above"]


def test_circular_waits_are_told_once_and_end():
    with machine("ring:2") as sn:
        lists = [[Command(op=Op.NOP, wait=(4, 1)),
                  Command(op=Op.WRITE, node=1 - card, address=64, length=8, target_counter=4)]
                 for card in (0, 1)]
        with pytest.raises(StallError) as error:
            launch(sn, *lists).wait()
    lines = chain(error)
    waits = "card {}: command 0 of queue 0 (NOP) waits for counter 4 to reach 1, it has 0"
    raises = ("card {}: command 1 of queue 0 (WRITE to card {}), which adds to it, stands behind "
              "command 0 of queue 0")
    assert lines == [waits.format(0), raises.format(1, 0), waits.format(1), raises.format(0, 1),
                     waits.format(0) + ": a circle of waits"]


@pytest.mark.parametrize("reliable", [False, True])
def test_a_memory_that_stops_fills_the_buffers_back_to_the_sender(reliable):
    depth = preset("small").link.vc_depth
    with machine("ring:5", reliable=reliable, stall_rate={2: 1.0}) as sn:
        source, target = (sn.malloc(16 * 1024, "f32", card) for card in (0, 2))
        source.write(np.zeros(16 * 1024, np.float32))
        with pytest.raises(WaitTimeout) as error:
            sn.write(source, target, timeout=20_000)
    lines = chain(error)
    assert lines[0] == "card 0: command 0 of the direct queue (WRITE to card 2) is under way"
    assert re.fullmatch(
        rf"{depth} of {depth} flits stand on VC \d of link 1:\+x into card 2, first of them a "
        r"packet \(WRITE from card 0 to card 2\)", lines[1])
    assert lines[2] == "card 2 does not take it (1 memory write requests not accepted)"


def test_packets_of_another_transfer_are_named_where_they_are_in_the_way():
    depth = preset("small").link.vc_depth
    # Packets from cards 1 and 2 to card 4 are spread over the same lane of the ring.
    with machine("ring:8", stall_rate={4: 1.0}) as sn:
        big, landing = (sn.malloc(16 * 1024, "f32", card) for card in (2, 4))
        # Card 2 fills the buffers down to card 4; what card 1 sends there stands behind it.
        first = sn._move(Op.WRITE, big, landing, True)
        sn.backend.advance(3000)
        source, target = (sn.malloc(16 * 1024, "f32", card) for card in (1, 4))
        with pytest.raises(WaitTimeout) as error:
            sn.write(source, target, timeout=20_000)
        assert not first.done
    vc, = {int(match[1]) for line in chain(error) if (match := re.search(r" VC (\d)", line))}
    stands = (f"{depth} of {depth} flits stand on VC {vc} of link {{}}:+x into card {{}}, first of "
              "them a packet (WRITE from card {} to card 4)")
    leaves = f"it leaves card {{}} by port +x, where there is no credit of VC {vc}"
    assert chain(error) == [
        "card 1: command 0 of the direct queue (WRITE to card 4) is under way",
        stands.format(1, 2, 1), leaves.format(2), stands.format(2, 3, 2), leaves.format(3),
        stands.format(3, 4, 2), "card 4 does not take it (1 memory write requests not accepted)"]


def write_over(faults):
    """One packet from card 0 to card 1, acknowledged; the cycle in which it leaves card 0."""
    with machine("ring:3", faults=faults, event_log=True) as sn:
        source, target = (sn.malloc(8, "f32", card) for card in (0, 1))
        source.write(np.zeros(8, np.float32))
        sn.write(source, target)
        log = sn.backend.event_log()
    words = log[(log["kind"] == EventKind.LINK) & (log["node"] == 0) & (log["digest"] != 0)]
    return int(words["cycle"][0])


def test_a_packet_lost_on_a_dead_link_is_missed_by_name():
    leaves = write_over(None)
    outage = Outage(node=0, port=0, start=leaves + 2)
    with pytest.raises(StallError) as error:
        write_over(Faults(outages=[outage]))
    assert chain(error) == [
        "card 0: command 0 of the direct queue (WRITE to card 1) is under way",
        "link 0:+x (SIGNAL) on the way between card 0 and card 1 is down: what was on it is lost",
        "dead link 0:+x (SIGNAL)"]


@pytest.mark.parametrize("options", [{}, {"reliable": True}, {"faults": Faults()}])
def test_at_rest_nothing_stands_on_any_link(options):
    with machine("ring:3", **options) as sn:
        arrays = [sn.malloc(1000, "f32", card).write(np.ones(1000, np.float32))
                  for card in range(3)]
        sn.allreduce(arrays).wait()
        sn.backend.advance(1000)
        assert sn.backend.channels() == []
        counts = sn.backend.fabric.channel_counts(preset("small").link.vcs)
        links = sn.backend.link_statistics()
        assert counts[:, :, 0].sum(axis=1).tolist() == [link.flits for link in links]
        assert counts[:, :, 0].any()
