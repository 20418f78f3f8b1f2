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
exchange on squares of a power of two, which stand side by side in words: for each bit of the index,
rows that differ in the bit swap blocks of columns. That takes a handful of operations on each word
per bit, where gathering columns bit by bit takes as many as the matrix has elements.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import behind, first_of
from hdl.params import Policy

__all__ = ["Islip", "IslipModel", "index_masks", "masked_index"]


def index_masks(m: Module, width: int, bits: int, name: str = "mask") -> list[Signal]:
    """For each of ``bits`` bits of an index: the indices below ``width`` that have it set.

    These are registers that only reset writes. As constants they would be folded into every word
    that they mask, bit by bit, and a word operation would become as many as it has bits.
    """
    masks = [Signal(width, name=f"{name}{bit}",
                    init=sum(1 << index for index in range(width) if index >> bit & 1))
             for bit in range(bits)]
    m.d.sync += [mask.eq(mask) for mask in masks]
    return masks


def masked_index(one_hot: Value, masks: Sequence[Value]) -> Value:
    """Index of the only set bit of a word; 0 if there is none."""
    return Cat((one_hot & mask).any() for mask in masks)


class _Turner:
    """Turns a matrix of bits of ``inputs`` rows and ``outputs`` columns, and back."""

    def __init__(self, m: Module, inputs: int, outputs: int) -> None:
        self._m, self._inputs, self._outputs = m, inputs, outputs
        self._bits = (outputs - 1).bit_length()
        self._side = 1 << self._bits
        #: Squares side by side in a word.
        self._squares = -(-inputs // self._side)
        self._masks = index_masks(m, self._side * self._squares, self._bits, "high")

    def columns(self, rows: Sequence[Value], name: str) -> list[Value]:
        """Of each output, the inputs; ``rows`` are the outputs of each input."""
        side = self._side
        words = [Cat((rows[index] if index < self._inputs else Const(0, self._outputs))
                     | Const(0, side) for index in range(place, side * self._squares, side))
                 for place in range(side)]
        return [word[:self._inputs] for word in self._turn(words, name)[:self._outputs]]

    def rows(self, columns: Sequence[Value], name: str) -> list[Value]:
        """Of each input, the outputs."""
        side = self._side
        words = self._turn([*columns, *[Const(0, self._inputs)] * (side - self._outputs)], name)
        return [words[index % side][index // side * side:][:self._outputs]
                for index in range(self._inputs)]

    def _turn(self, words: list[Value], name: str) -> list[Value]:
        width = self._side * self._squares
        for bit, mask in enumerate(self._masks):
            step = 1 << bit
            turned = [Signal(width, name=f"{name}{bit}_{index}") for index in range(self._side)]
            for low in range(self._side):
                if low & step:
                    continue
                high = low | step
                swap = Signal(width, name=f"{name}_swap{bit}_{low}")
                shifted = Cat(Const(0, step), words[high][:width - step])
                self._m.d.comb += [
                    swap.eq((words[low] ^ shifted) & mask),
                    turned[low].eq(words[low] ^ swap),
                    turned[high].eq(words[high] ^ swap[step:]),
                ]
            words = list(turned)
        return words


class Islip(wiring.Component):
    """Match inputs to outputs.

    Parameters
    ----------
    inputs, outputs : int
        Ports on each side, 1…64.
    iterations : int
    policy : Policy
        ``FIXED`` keeps the pointers still.

    Members
    -------
    request : ``In(outputs).array(inputs)``
        Of an input: the outputs that it has something for.
    match : ``Out(outputs).array(inputs)``
        Of an input: the output that it is matched to, one-hot, or 0.
    """

    def __init__(self, inputs: int, outputs: int, *, iterations: int,
                 policy: Policy = Policy.ROUND_ROBIN) -> None:
        for name, ports in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(ports, int) or not 1 <= ports <= 64:
                raise ValueError(f"{name} must be an integer from 1 to 64, not {ports!r}")
        if not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"iterations must be an integer of at least 1, not {iterations!r}")
        if not isinstance(policy, Policy):
            raise ValueError(f"policy must be one of {', '.join(map(str, Policy))}, not {policy!r}")
        self._inputs, self._outputs = inputs, outputs
        self._iterations, self._policy = iterations, policy
        super().__init__({"request": In(outputs).array(inputs),
                          "match": Out(outputs).array(inputs)})

    @property
    def iterations(self) -> int:
        return self._iterations

    @property
    def policy(self) -> Policy:
        return self._policy

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Of each port, the partners behind the one it was matched to last.
        after_in = [Signal(self._outputs, name=f"after_in{port}") for port in range(self._inputs)]
        after_out = [Signal(self._inputs, name=f"after_out{port}")
                     for port in range(self._outputs)]
        turner = _Turner(m, self._inputs, self._outputs)
        asking = Signal()
        m.d.comb += asking.eq(reduce(or_, self.request).any())
        with m.If(asking):
            columns = turner.columns(self.request, "request")
            matches: list[Value] = [Const(0, self._outputs)] * self._inputs
            for turn in range(self._iterations):
                matches = self._iterate(m, turn, turner, columns, matches, after_in, after_out)
            m.d.comb += [self.match[port].eq(match) for port, match in enumerate(matches)]
        return m

    def _iterate(self, m: Module, turn: int, turner: _Turner, columns: list[Value],
                 matches: list[Value], after_in: list[Signal],
                 after_out: list[Signal]) -> list[Value]:
        """Add what one iteration finds to ``matches``."""
        wanted = columns
        if turn:
            free, taken = Signal(self._inputs, name=f"free{turn}"), reduce(or_, matches)
            m.d.comb += free.eq(~Cat(match.any() for match in matches))
            wanted = [Signal(self._inputs, name=f"wanted{turn}_{port}")
                      for port in range(self._outputs)]
            for port, column in enumerate(columns):
                with m.If(~taken[port]):
                    m.d.comb += wanted[port].eq(column & free)
        left = Signal(name=f"left{turn}")
        grants, accepts = (
            [Signal(width, name=f"{name}{turn}_{port}") for port in range(count)]
            for name, width, count in (("grant", self._inputs, self._outputs),
                                       ("accept", self._outputs, self._inputs)))
        m.d.comb += left.eq(reduce(or_, wanted).any())
        with m.If(left):
            m.d.comb += [grant.eq(first_of(column, after))
                         for grant, column, after in zip(grants, wanted, after_out, strict=True)]
            granted = turner.rows(grants, f"granted{turn}")
            m.d.comb += [accept.eq(first_of(row, after))
                         for accept, row, after in zip(accepts, granted, after_in, strict=True)]
        if turn == 0 and self._policy is Policy.ROUND_ROBIN:
            accepted = Signal(self._outputs)
            m.d.comb += accepted.eq(reduce(or_, accepts))
            for port, accept in enumerate(accepts):
                with m.If(accept.any()):
                    m.d.sync += after_in[port].eq(behind(accept))
            for port, grant in enumerate(grants):
                with m.If(accepted[port]):
                    m.d.sync += after_out[port].eq(behind(grant))
        # An input that has a partner gets no grants: it does not lose it.
        return [match | accept for match, accept in zip(matches, accepts, strict=True)]


class IslipModel:
    """Reference model of :class:`Islip`, written from its definition."""

    def __init__(self, inputs: int, outputs: int, *, iterations: int,
                 policy: Policy = Policy.ROUND_ROBIN) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.iterations, self.policy = iterations, policy
        self._grant, self._accept = [0] * outputs, [0] * inputs

    def step(self, wants: Sequence[set[int]]) -> list[int | None]:
        """Match once: the output of each input, ``None`` without one. ``wants[i]`` are the outputs
        that input ``i`` requests."""
        output_of: list[int | None] = [None] * self.inputs
        matched: set[int] = set()
        for turn in range(self.iterations):
            grants: dict[int, set[int]] = {}
            for output in set(range(self.outputs)) - matched:
                asking = [i for i in range(self.inputs)
                          if output_of[i] is None and output in wants[i]]
                if asking:
                    chosen = min(asking, key=lambda i, at=self._grant[output]:
                                 (i - at) % self.inputs)
                    grants.setdefault(chosen, set()).add(output)
            for i, offers in grants.items():
                output = min(offers, key=lambda j, at=self._accept[i]: (j - at) % self.outputs)
                output_of[i] = output
                matched.add(output)
                if turn == 0 and self.policy is Policy.ROUND_ROBIN:
                    self._grant[output] = (i + 1) % self.inputs
                    self._accept[i] = (output + 1) % self.outputs
        return output_of
