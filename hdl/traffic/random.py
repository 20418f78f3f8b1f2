"""Random numbers: xoroshiro128++ of Blackman and Vigna ("Scrambled linear pseudorandom number
generators", 2021), 64 bits per step, two words of state, only rotations, additions and XORs.

Latency law: ``value`` is a function of the state, and a step in cycle ``t`` shows in ``t + 1``.
Without ``step`` and ``write`` nothing changes. The state is not reset, and must not be all zero.
"""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FRACTION_BITS", "RandomWord", "RandomWordModel", "cumulative"]

_WORD = (1 << 64) - 1
#: Bits of a random fraction that is compared with a threshold of one bit more, so that a
#: probability of 1 has a threshold too.
FRACTION_BITS = 31


def cumulative(weights: Sequence[float], total: float, slots: int) -> list[int]:
    """Thresholds that choose slot ``i`` with probability ``weights[i] / total``: the first one
    above a random fraction. What is left of ``total`` chooses none of them; slots without a weight
    repeat the last threshold.

    Raises
    ------
    ValueError
        If there are more weights than slots, a weight is negative, or they exceed ``total``.
    """
    if len(weights) > slots:
        raise ValueError(f"{len(weights)} choices, and there is room for {slots}")
    if any(weight < 0 for weight in weights) or sum(weights) > total * (1 + 1e-9):
        raise ValueError(f"weights must be at least 0 and add up to {total} at most, not {weights}")
    sums = [sum(weights[:count + 1]) / total for count in range(len(weights))] or [0.0]
    sums += sums[-1:] * (slots - len(sums))
    return [min(1 << FRACTION_BITS, round(share * (1 << FRACTION_BITS))) for share in sums]


def _rotate(x, by: int):
    """``x`` of 64 bits rotated to the left, in hardware or in numbers."""
    return x.rotate_left(by) if isinstance(x, Value) else (x << by | x >> 64 - by) & _WORD


class RandomWord(wiring.Component):
    """A stream of 64-bit words.

    Members
    -------
    write : ``In(2)``
        Bit ``i`` sets word ``i`` of the state to ``data``.
    data : ``In(64)``
    step : ``In(1)``
        Go on to the next value.
    value : ``Out(64)``
    """

    write: In(2)
    data: In(64)
    step: In(1)
    value: Out(64)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = [Signal(64, name=f"state{word}", reset_less=True) for word in range(2)]
        total, mixed = Signal(64), Signal(64)
        m.d.comb += [
            total.eq(state[0] + state[1]),
            self.value.eq(_rotate(total, 17) + state[0]),
            mixed.eq(state[0] ^ state[1]),
        ]
        with m.If(self.step):
            m.d.sync += [
                state[0].eq(_rotate(state[0], 49) ^ mixed ^ (mixed << 21)),
                state[1].eq(_rotate(mixed, 28)),
            ]
        for word in range(2):
            with m.If(self.write[word]):
                m.d.sync += state[word].eq(self.data)
        return m


class RandomWordModel:
    """Reference model of :class:`RandomWord`."""

    def __init__(self, state: Sequence[int]) -> None:
        self._state = list(state)

    @property
    def value(self) -> int:
        a, b = self._state
        return _rotate(a + b & _WORD, 17) + a & _WORD

    def step(self) -> int:
        """Return the present value and go on to the next one."""
        value, (a, b) = self.value, self._state
        mixed = a ^ b
        self._state = [_rotate(a, 49) ^ mixed ^ (mixed << 21 & _WORD), _rotate(mixed, 28)]
        return value
