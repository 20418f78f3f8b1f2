"""CRC-32 of a link word: one object that is both the software model and the hardware.

The polynomial is that of CRC-32C (Castagnoli), 0x1EDC6F41, since at the length of a link word it
finds every error of up to five bits (Hamming distance 6 up to 5,243 bits; the polynomial of IEEE
802.3 has 6 only up to 268; P. Koopman, "32-Bit Cyclic Redundancy Codes for Internet Applications",
DSN 2002), every odd number of wrong bits, and every burst of up to 32 bits. Of all other errors it
misses one in 2^32.

Bit i of the word stands for x^(i+32), so a CRC does not depend on how wide the word is that its
bits are part of: two ends whose words differ agree on the CRC of what they have in common. The CRC
is linear, without initial value or final inversion: a word that is sent has its strobe set, so the
word of all zeros, whose CRC is zero, is not sent.

Each bit of the CRC is the parity of a masked word. The masks are registers that only reset writes,
which a synthesis tool takes for the constants that they are. As constants they would be folded into
the word bit by bit, and a simulator would go through it bit by bit; as they are, a word costs 32
conjunctions and parities.

Latency law: combinational.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value

__all__ = ["CRC_BITS", "Crc"]

CRC_BITS = 32
_POLYNOMIAL = 0x1EDC6F41


class Crc:
    """The CRC of words of up to ``width`` bits.

    Parameters
    ----------
    width : int
    """

    def __init__(self, width: int) -> None:
        if not isinstance(width, int) or width < 1:
            raise ValueError(f"width must be an integer of at least 1, not {width!r}")
        self._width = width
        #: By bit of a word, the CRC of that bit alone.
        self.columns: list[int] = []
        remainder = 1
        for power in range(width + CRC_BITS):
            if power >= CRC_BITS:
                self.columns.append(remainder)
            remainder <<= 1
            if remainder >> CRC_BITS:
                remainder ^= 1 << CRC_BITS | _POLYNOMIAL

    @property
    def width(self) -> int:
        return self._width

    @property
    def masks(self) -> list[int]:
        """By bit of the CRC, the bits of a word of which it is the parity."""
        return [sum(1 << index for index, column in enumerate(self.columns) if column >> bit & 1)
                for bit in range(CRC_BITS)]

    def compute(self, word: int) -> int:
        """The CRC of ``word``.

        Raises
        ------
        ValueError
            If it has more than ``width`` bits.
        """
        if word < 0 or word >> self._width:
            raise ValueError(f"word must have at most {self._width} bits, not {word.bit_length()}")
        crc = 0
        for index, column in enumerate(self.columns):
            if word >> index & 1:
                crc ^= column
        return crc

    def registers(self, m: Module) -> list[Signal]:
        """The masks, in hardware; any number of :meth:`parities` of the module share them."""
        masks = [Signal(self._width, name=f"mask{bit}", init=mask)
                 for bit, mask in enumerate(self.masks)]
        m.d.sync += [mask.eq(mask) for mask in masks]
        return masks

    def parities(self, word: Value, masks: Sequence[Signal]) -> Value:
        """The CRC of ``word``, a value of at most ``width`` bits, in hardware."""
        return Cat((word & mask[:len(word)]).xor() for mask in masks)
