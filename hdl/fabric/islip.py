"""iSLIP: a matching of the inputs of a crossbar to its outputs, found in one cycle.

Each iteration has two steps. Every output without a partner *grants* one of the inputs without a
partner that request it; every input *accepts* one of its grants. Both choose round robin. The
pointers of both sides move to just after the partner, and only if the grant was accepted in the
first iteration: an output that was refused insists on the same input, so pointers drift apart until
under load all outputs grant different inputs, and no request starves.
(N. McKeown, "The iSLIP scheduling algorithm for input-queued switches", IEEE/ACM Transactions on
Networking 7(2), 1999.)

Latency law: the match is a function of this cycle's requests and of the pointers; the pointers
follow one cycle later. Every match counts as used. Without requests nothing changes.

Inputs see rows of the request matrix and outputs see columns. The matrix is turned by a butterfly
exchange: for each bit of the index, rows that differ in the bit swap blocks of columns. It works on
whole words of a power of two, a handful of operations each, where gathering columns bit by bit
takes as many as the matrix has elements.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import lowest_bit
from hdl.params import Policy

__all__ = ["Islip", "IslipModel", "index_masks", "masked_index", "transpose"]


def index_masks(m: Module, width: int) -> list[Signal]:
    """For each bit of an index below ``width``, a power of two: the indices that have it set.

    These are registers that only reset writes. As constants they would be folded into every word
    that they mask, bit by bit, and a word operation would become as many as it has bits.
    """
    masks = [Signal(width, name=f"mask{bit}",
                    init=sum(1 << index for index in range(width) if index >> bit & 1))
             for bit in range(width.bit_length() - 1)]
    m.d.sync += [mask.eq(mask) for mask in masks]
    return masks


def masked_index(one_hot: Value, masks: Sequence[Value]) -> Value:
    """Index of the only set bit of a word; 0 if there is none."""
    return Cat((one_hot & mask).any() for mask in masks)


def transpose(m: Module, rows: Sequence[Value], masks: Sequence[Value], name: str) -> list[Value]:
    """Columns of a square matrix of bits whose rows are words of ``2 ** len(masks)`` bits."""
    width = 1 << len(masks)
    for bit, mask in enumerate(masks):
        step = 1 << bit
        turned = [Signal(width, name=f"{name}{bit}_{index}") for index in range(width)]
        for low in range(width):
            if low & step:
                continue
            high = low | step
            m.d.comb += [
                turned[low].eq(rows[low] & ~mask | (rows[high] & ~mask) << step),
                turned[high].eq((rows[low] & mask) >> step | rows[high] & mask),
            ]
        rows = turned
    return list(rows)


class Islip(wiring.Component):
    """Match ``n`` inputs to ``n`` outputs.

    Parameters
    ----------
    n : int
        Ports on each side, 2…64.
    iterations : int
    policy : Policy
        ``FIXED`` keeps the pointers still.

    Members
    -------
    request : ``In(n).array(n)``
        Of an input: the outputs that it has something for.
    match : ``Out(n).array(n)``
        Of an input: the output that it is matched to, one-hot, or 0.
    """

    def __init__(self, n: int, *, iterations: int, policy: Policy = Policy.ROUND_ROBIN) -> None:
        if not isinstance(n, int) or not 2 <= n <= 64:
            raise ValueError(f"n must be an integer from 2 to 64, not {n!r}")
        if not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"iterations must be an integer of at least 1, not {iterations!r}")
        if not isinstance(policy, Policy):
            raise ValueError(f"policy must be one of {', '.join(map(str, Policy))}, not {policy!r}")
        self._n, self._iterations, self._policy = n, iterations, policy
        super().__init__({"request": In(n).array(n), "match": Out(n).array(n)})

    @property
    def n(self) -> int:
        return self._n

    @property
    def iterations(self) -> int:
        return self._iterations

    @property
    def policy(self) -> Policy:
        return self._policy

    def elaborate(self, platform: object) -> Module:
        m = Module()
        n = self._n
        width = 1 << (n - 1).bit_length()
        masks = index_masks(m, width)

        def turned(words: Sequence[Value], name: str) -> list[Value]:
            full = [Signal(width, name=f"{name}_{index}") for index in range(n)]
            m.d.comb += [word.eq(part) for word, part in zip(full, words, strict=True)]
            none = [Const(0, width)] * (width - n)
            return [column[:n] for column in transpose(m, [*full, *none], masks, name)[:n]]

        def choose(requests: Value, after: Value, name: str) -> Value:
            wanted, first, chosen = (Signal(n, name=f"{name}_{part}")
                                     for part in ("wanted", "first", "chosen"))
            m.d.comb += [
                wanted.eq(requests),
                first.eq(wanted & after),
                chosen.eq(lowest_bit(Mux(first.any(), first, wanted))),
            ]
            return chosen

        # Of each port, the partners behind the one it was matched to last.
        after_in = [Signal(n, name=f"after_in{port}") for port in range(n)]
        after_out = [Signal(n, name=f"after_out{port}") for port in range(n)]
        columns = turned(self.request, "request")
        matches: list[Value] = [Const(0, n)] * n
        for turn in range(self._iterations):
            free_in, taken = Signal(n, name=f"free_in{turn}"), Signal(n, name=f"taken{turn}")
            m.d.comb += [free_in.eq(~Cat(match.any() for match in matches)),
                         taken.eq(reduce(or_, matches))]
            grants = [choose(Mux(taken[port], 0, columns[port] & free_in) if turn
                             else columns[port], after_out[port], f"grant{turn}_{port}")
                      for port in range(n)]
            accepts = [choose(granted, after_in[port], f"accept{turn}_{port}")
                       for port, granted in enumerate(turned(grants, f"granted{turn}"))]
            if turn == 0 and self._policy is Policy.ROUND_ROBIN:
                accepted = Signal(n)
                m.d.comb += accepted.eq(reduce(or_, accepts))
                for port in range(n):
                    with m.If(accepts[port].any()):
                        m.d.sync += after_in[port].eq(-(accepts[port] << 1))
                    with m.If(accepted[port]):
                        m.d.sync += after_out[port].eq(-(grants[port] << 1))
            # An input that has a partner gets no grants: it does not lose it.
            matches = [match | accept for match, accept in zip(matches, accepts, strict=True)]
        m.d.comb += [self.match[port].eq(matches[port]) for port in range(n)]
        return m


class IslipModel:
    """Reference model of :class:`Islip`, written from its definition."""

    def __init__(self, n: int, *, iterations: int, policy: Policy = Policy.ROUND_ROBIN) -> None:
        self.n, self.iterations, self.policy = n, iterations, policy
        self._grant, self._accept = [0] * n, [0] * n

    def step(self, wants: Sequence[set[int]]) -> list[int | None]:
        """Match once: the output of each input, ``None`` without one. ``wants[i]`` are the outputs
        that input ``i`` requests."""
        n = self.n
        output_of: list[int | None] = [None] * n
        matched: set[int] = set()
        for turn in range(self.iterations):
            grants: dict[int, set[int]] = {}
            for output in set(range(n)) - matched:
                asking = [i for i in range(n) if output_of[i] is None and output in wants[i]]
                if asking:
                    chosen = min(asking, key=lambda i, at=self._grant[output]: (i - at) % n)
                    grants.setdefault(chosen, set()).add(output)
            for i, offers in grants.items():
                output = min(offers, key=lambda j, at=self._accept[i]: (j - at) % n)
                output_of[i] = output
                matched.add(output)
                if turn == 0 and self.policy is Policy.ROUND_ROBIN:
                    self._grant[output] = (i + 1) % n
                    self._accept[i] = (output + 1) % n
        return output_of
