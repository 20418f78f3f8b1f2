"""Time between packets: the geometric gaps of Bernoulli injection.

A node that makes a packet in each cycle with probability ``p``, whatever it did before, leaves gaps
of 1, 2, … cycles with P(gap > j) = q^j, q = 1 − p. A gap is drawn at once: one random fraction is
compared with the thresholds q, q², … q^16; the number it lies below is that of cycles without a
packet. If it lies below all of them, 16 cycles pass without one and the rest of the gap is drawn
anew, which is right because the process has no memory. Thresholds are exact to 2^-32.

So a node may sleep until its next packet, and one that the network has held up finds its overdue
packets one per cycle (16 cycles of its past per cycle where there was none): the queue between
source and network is as long as it needs to be, and stored nowhere.
"""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .random import FRACTION_BITS

__all__ = ["GAP_STEPS", "Gap", "gap_thresholds"]

#: Thresholds, and cycles that one draw can cover.
GAP_STEPS = 16


def gap_thresholds(probability: float) -> list[int]:
    """Thresholds for ``probability`` packets per cycle.

    Raises
    ------
    ValueError
        If it is not from 0 to 1.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"a node makes from 0 to 1 packets per cycle, not {probability}")
    return [round((1 - probability) ** step * (1 << FRACTION_BITS))
            for step in range(1, GAP_STEPS + 1)]


class Gap(wiring.Component):
    """One draw, combinational.

    Members
    -------
    valid : ``In(1)``
        Draw; without it the outputs mean nothing.
    fraction : ``In(31)``
        Random.
    thresholds : ``In(data.ArrayLayout(32, 16))``
    cycles : ``Out(5)``
        Cycles that pass: the gap if ``ends``, else 16 of it.
    ends : ``Out(1)``
    """

    valid: In(1)
    fraction: In(FRACTION_BITS)
    thresholds: In(data.ArrayLayout(FRACTION_BITS + 1, GAP_STEPS))
    cycles: Out(5)
    ends: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.valid):
            # The last threshold is the lowest.
            m.d.comb += [
                self.ends.eq(self.fraction >= self.thresholds[GAP_STEPS - 1]),
                self.cycles.eq(sum(self.fraction < threshold for threshold in self.thresholds)
                               + self.ends),
            ]
        return m
