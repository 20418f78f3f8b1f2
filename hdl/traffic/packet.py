"""What a packet of traffic looks like: every bit of every flit follows from a few fields.

::

    flit 0        packet header: a WRITE of class 0 with ``sequence`` = low 24 bits of the cycle of
                  its creation, ``group`` = 1 if it is measured, ``length`` = bytes of its body
    further       words of 64 bits: (dst, src, sequence, number of the flit) + a constant per word

A header takes two flits of 16 B, and of 64 B the first half. Creation cycles of a source all
differ, so (src, dst, sequence) names a packet, and within 2^23 cycles also tells its age.
"""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS, PacketHeader, PacketOp, pack
from hdl.nic.packets import header_flits
from hdl.params import LinkParams

from .registers import FLITS_BITS

__all__ = ["AGE_BITS", "IdentitySignature", "PacketImage", "PacketName", "digest", "digest_model",
           "flit_model", "flits_of_length"]

#: Low bits of a packet's creation cycle that it carries.
AGE_BITS = 24
_WORD = (1 << 64) - 1
#: Odd, without pattern: the fractional part of the golden ratio.
_GOLDEN = 0x9E37_79B9_7F4A_7C15
#: Round constants of the digest: fractional bits of π.
_ROUNDS = (0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344)


class IdentitySignature(wiring.Signature):
    """All that a packet's bits follow from."""

    def __init__(self) -> None:
        super().__init__({
            "dst": Out(NODE_BITS),
            "src": Out(NODE_BITS),
            "created": Out(AGE_BITS),
            "measured": Out(1),
            "flits": Out(FLITS_BITS),
        })


class PacketName(NamedTuple):
    """An identity in numbers."""

    dst: int
    src: int
    created: int
    measured: int
    flits: int


def _offset(word: int) -> int:
    """What is added in 64-bit word ``word`` of a flit."""
    return _GOLDEN * (2 * word + 1) & _WORD


def flits_of_length(length: Value, params: LinkParams) -> Value:
    """Flits of a packet with ``length`` bytes of body."""
    return length[params.flit_bytes.bit_length() - 1:] + header_flits(params)


class PacketImage(wiring.Component):
    """The payload of one flit of a packet; combinational.

    Members
    -------
    valid : ``In(1)``
        Without it ``payload`` means nothing.
    packet : ``In(IdentitySignature())``
    at : ``In(9)``
        Number of the flit, from 0.
    payload : ``Out(flit_bits)``
    """

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        super().__init__({
            "valid": In(1),
            "packet": In(IdentitySignature()),
            "at": In(FLITS_BITS),
            "payload": Out(params.flit_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params, packet = self._params, self.packet
        heads, words = header_flits(params), params.flit_bits // 64
        header = Signal(PacketHeader)
        tag, body = Signal(64), Signal(params.flit_bits)
        # Wide values are formed where they are needed: a simulator then pays for flits only.
        with m.If(self.valid):
            m.d.comb += [
                tag.eq(Cat(packet.dst, packet.src, packet.created, self.at[:8])),
                body.eq(Cat((tag + _offset(word))[:64] for word in range(words))),
                self.payload.eq(body),
            ]
            with m.If(self.at < heads):
                m.d.comb += [
                    header.dst.eq(packet.dst),
                    header.src.eq(packet.src),
                    header.sequence.eq(packet.created),
                    header.group.eq(packet.measured),
                    header.op.eq(PacketOp.WRITE),
                    header.length.eq((packet.flits - heads) << params.flit_bytes.bit_length() - 1),
                    header.address.eq(Cat(packet.created, ~packet.created)),
                    header.key.eq(~Cat(packet.dst, packet.src)),
                ]
                bits = header.as_value()
                if heads == 2:
                    m.d.comb += self.payload.eq(Mux(self.at[0], bits[128:], bits[:128]))
                else:
                    m.d.comb += self.payload[:256].eq(bits)
        return m


def flit_model(name: PacketName, at: int, params: LinkParams) -> int:
    """Reference model of :class:`PacketImage`."""
    heads, ones = header_flits(params), (1 << AGE_BITS) - 1
    tag = name.dst | name.src << 16 | name.created << 32 | (at & 0xFF) << 56
    body = sum((tag + _offset(word) & _WORD) << 64 * word for word in range(params.flit_bits // 64))
    if at >= heads:
        return body
    header = int.from_bytes(pack(PacketHeader, {
        "dst": name.dst, "src": name.src, "sequence": name.created, "group": name.measured,
        "op": PacketOp.WRITE, "length": (name.flits - heads) * params.flit_bytes,
        "address": name.created | (name.created ^ ones) << AGE_BITS,
        "key": (name.dst | name.src << 16) ^ 0xFFFF_FFFF}), "little")
    if heads == 2:
        return header >> 128 * at & (1 << 128) - 1
    return header | body >> 256 << 256


def digest(m: Module, packet: Any) -> Value:
    """The hash of a packet's name, 64 bits, as combinational logic of ``m``.

    Rounds of additions, rotations and XORs, each a bijection: different names have different
    hashes, and sums of them are as good as random. A sum over packets thus says whether two sets
    of them are equal, whatever the order in which they came.
    """
    x, y = Cat(packet.dst, packet.src), Cat(packet.created, packet.dst[:8])
    for number, constant in enumerate(_ROUNDS):
        left, right = Signal(32, name=f"left{number}"), Signal(32, name=f"right{number}")
        m.d.comb += [left.eq(x.rotate_right(8) + y + constant),
                     right.eq(y.rotate_left(3) ^ left)]
        x, y = left, right
    return Cat(x, y)


def digest_model(name: PacketName) -> int:
    """Reference model of :func:`digest`."""
    ones = 0xFFFF_FFFF
    x, y = name.dst | name.src << 16, name.created | (name.dst & 0xFF) << AGE_BITS
    for constant in _ROUNDS:
        x = (x >> 8 | x << 24 & ones) + y + constant & ones
        y = (y << 3 & ones | y >> 29) ^ x
    return x | y << 32
