"""Packing of commands and descriptors, packet counts, completion records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.commands import Command, CompletionRecord, Gemm, packet_count
from hdl import layouts
from hdl.layouts import NO_COUNTER, DType, Format, Op, Status


@given(st.integers(0, 1 << 20), st.integers(0, 20_000), st.sampled_from([256, 1024, 4096]))
def test_packet_count_is_the_number_of_blocks_that_the_target_touches(address, length, mtu):
    blocks = {byte // mtu for byte in range(address, address + length)}
    assert packet_count(address, length, mtu) == max(1, len(blocks))


def test_a_command_keeps_every_field():
    command = Command(op=Op.REDUCE, source=0x1234, node=7, address=0x5678, length=99,
                      dtype=DType.BF16, rail=2, wait=(5, 0x1_0000_0003), target_counter=9,
                      local_counter=11, ack=True, signal=True, tag=0xBEEF)
    raw = command.pack()
    assert len(raw) == 64
    fields = layouts.unpack(layouts.Command, raw)
    assert fields["op"] is Op.REDUCE and fields["dtype"] is DType.BF16
    assert fields["flags"] == {"ack": 1, "signal": 1, "wait": 1, "inline": 0, "addend": 0,
                               "order": layouts.Order.NONE, "reserved": 0}
    assert fields["target"] == {"offset": 0x5678, "node": 7}
    assert (fields["source"], fields["length"], fields["rail"], fields["tag"]) == (
        0x1234, 99, 2, 0xBEEF)
    assert (fields["wait_counter"], fields["wait_value"]) == (5, 3)
    assert (fields["target_counter"], fields["local_counter"]) == (9, 11)


def test_a_plain_command_names_no_counter_and_waits_for_none():
    fields = layouts.unpack(layouts.Command, Command(op=Op.NOP).pack())
    assert fields["target_counter"] == fields["local_counter"] == NO_COUNTER
    assert fields["flags"]["wait"] == 0


def test_a_descriptor_keeps_every_field():
    gemm = Gemm(m=1, n=2, k=3, a=4, b=5, c=8, lda=6, ldb=7, ldc=12, a_format=Format.E5M2,
                b_format=Format.E4M3, b_transposed=True)
    raw = gemm.pack()
    assert len(raw) == 128
    fields = layouts.unpack(layouts.Descriptor, raw)
    assert {name: fields[name] for name in vars(gemm)} == vars(gemm)


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="'length'"):
        Command(op=Op.WRITE, length=1 << 32).pack()


def test_a_completion_record_is_parsed():
    raw = layouts.pack(layouts.Completion, {
        "phase": 1, "queue": 2, "op": Op.GEMM, "status": Status.BAD_DESCRIPTOR, "tag": 77,
        "peer": 3, "link": 4, "posted": 5, "started": 6, "ended": 7})
    record = CompletionRecord.parse(9, raw)
    assert CompletionRecord.phase(np.frombuffer(raw, np.uint8)) == 1 and not record.ok
    assert record == CompletionRecord(9, 2, Op.GEMM, Status.BAD_DESCRIPTOR, 77, 3, 4, 5, 6, 7)
