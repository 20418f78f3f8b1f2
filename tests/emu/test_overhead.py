"""The engine stays cheap beside the tiles it runs."""

from emu.bench import measure_overhead
from hdl.topology import parse

from .machines import TOY, toy_params


def test_the_engines_share_of_a_card_cycle_and_of_a_skipped_window_is_small():
    overhead = measure_overhead(parse("ring:64"), toy_params(latency=16, quantum=64), TOY,
                                cycles=20_000)
    # 31 ns and 16 ns on a quiet machine; the room is for busy ones.
    assert overhead.engine_ns < 200
    assert overhead.skipped_window_ns < 200
