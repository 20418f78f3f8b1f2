"""The CRC: against a division of polynomials, and what it promises to find."""

import itertools
import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import link_word
from hdl.link.crc import CRC_BITS, Crc
from hdl.params import LinkParams
from tests.bench import Bench, run_bench

WIDTH = link_word(LinkParams()).size - CRC_BITS
CASTAGNOLI = 0x1_1EDC_6F41


class CrcBlock(wiring.Component):
    """The CRC of a word and of its lower part, in hardware."""

    def __init__(self) -> None:
        super().__init__({"word": In(WIDTH), "crc": Out(CRC_BITS), "low": Out(CRC_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        crc = Crc(WIDTH)
        masks = crc.registers(m)
        m.d.comb += [self.crc.eq(crc.parities(self.word, masks)),
                     self.low.eq(crc.parities(self.word[:96], masks))]
        return m


def remainder(word: int) -> int:
    """Of word · x^32 by the polynomial, by long division."""
    word <<= CRC_BITS
    while word >> CRC_BITS:
        word ^= CASTAGNOLI << word.bit_length() - 1 - CRC_BITS
    return word


@cocotb.test()
async def hardware_equals_the_model(dut):
    bench = Bench(dut)
    crc = Crc(WIDTH)
    await bench.start()
    for _ in range(200):
        word = bench.rng.getrandbits(WIDTH) if bench.rng.random() < 0.8 \
            else 1 << bench.rng.randrange(WIDTH)
        dut.word.value = word
        await bench.cycles(1)
        assert int(dut.crc.value) == crc.compute(word)
        assert int(dut.low.value) == crc.compute(word & (1 << 96) - 1)


def test_the_hardware_equals_the_model() -> None:
    run_bench(CrcBlock(), __name__)


def test_the_model_is_a_division_of_polynomials() -> None:
    rng = random.Random(1)
    crc = Crc(WIDTH)
    for _ in range(100):
        word = rng.getrandbits(rng.randrange(1, WIDTH + 1))
        assert crc.compute(word) == remainder(word)


def test_up_to_three_wrong_bits_and_every_short_burst_are_found() -> None:
    # Bits of the CRC field itself err too: alone, each flips its own bit of the syndrome.
    columns = Crc(WIDTH).columns
    syndromes = [1 << bit for bit in range(CRC_BITS)] + columns
    assert 0 not in syndromes
    assert len(set(syndromes)) == len(syndromes)
    single = set(syndromes)
    assert not any(a ^ b in single for a, b in itertools.combinations(syndromes, 2))
    for start in range(WIDTH - CRC_BITS + 1):
        # No combination of 32 neighbours cancels: they are linearly independent.
        basis: dict[int, int] = {}
        for value in columns[start:start + CRC_BITS]:
            while value and value.bit_length() in basis:
                value ^= basis[value.bit_length()]
            assert value, f"a burst from bit {start} on is missed"
            basis[value.bit_length()] = value


def test_four_and_five_wrong_bits_are_found() -> None:
    columns = [1 << bit for bit in range(CRC_BITS)] + Crc(WIDTH).columns
    pairs = {a ^ b for a, b in itertools.combinations(columns, 2)}
    # Four bits cancel if two pairs have one sum; five always leave an odd syndrome.
    assert len(pairs) == len(columns) * (len(columns) - 1) // 2
    assert CASTAGNOLI.bit_count() % 2 == 0


@pytest.mark.parametrize("word", [-1, 1 << WIDTH])
def test_a_word_that_is_too_wide_is_refused(word: int) -> None:
    with pytest.raises(ValueError, match=f"at most {WIDTH} bits"):
        Crc(WIDTH).compute(word)
    with pytest.raises(ValueError, match="width must be"):
        Crc(0)
