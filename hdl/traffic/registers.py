"""The host-visible registers of a traffic node: one map for RTL, software and documentation.

Registers are 64 bits wide. Times are values of ``now``. Totals count from reset on and are never
cleared; a host that wants the figures of an interval reads them at both ends.
"""

from collections.abc import Iterator

from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from hdl.layouts import NODE_BITS
from hdl.params import TrafficParams
from hdl.registers import HOST_ADDRESS_BITS, Register

__all__ = ["FLITS_BITS", "IDENT", "SIZES", "STREAMS", "Field", "ReceivedSignature",
           "RegisterWrite", "SentSignature", "Size", "Target", "TrafficRegisters"]

#: Value of the ``ident`` register: "SNT" and the revision of this map.
IDENT = 0x534E_5400_0000_0001
#: Packet sizes in a mix.
SIZES = 4
#: Random streams of a node, of two words of state each.
STREAMS = 2
#: Width of a number of flits of a packet.
FLITS_BITS = 9


class RegisterWrite(data.Struct):
    """A register that is written, as the blocks of the tile hear of it."""

    address: HOST_ADDRESS_BITS
    data: 64


class Target(data.Struct):
    """One destination with a weight: chosen by random fractions below ``below`` and not below that
    of an earlier one."""

    below: 32
    node: NODE_BITS
    reserved: 16


class Size(data.Struct):
    """One packet size with a weight, chosen like a :class:`Target`; the last one otherwise."""

    below: 32
    flits: FLITS_BITS
    reserved: 32 - FLITS_BITS


class Field(data.Struct):
    """One coordinate field of node ids: coordinates 0 … ``size`` − 1 from bit ``shift`` on."""

    size: NODE_BITS + 1
    shift: 4
    reserved: 43


#: Totals of a sender and of a receiver: width and meaning. Each is counted at the packet's tail.
_SENT = {
    "packets": (48, "Total of packets sent."),
    "flits": (48, "Total of flits sent, headers included."),
    "measured": (48, "Total of measured packets sent."),
    "digest": (64, "Sum, modulo 2^64, of a hash of (src, dst, creation) of all packets sent."),
}
_RECEIVED = {
    "packets": (48, "Total of packets received."),
    "flits": (48, "Total of flits received, headers included."),
    "measured": (48, "Total of measured packets received."),
    "digest": (64, "Sum, modulo 2^64, of the same hash over all packets received."),
    "latency_sum": (64, "Sum of the latencies of measured packets, from creation to tail."),
    "latency_max": (32, "Largest of them."),
    "misrouted": (32, "Total of packets for another node."),
    "corrupt": (32, "Total of packets that were not, bit for bit, what their header promised."),
    "disordered": (32, "Total of packets older than one of their source before. 0 if adaptive."),
    "duplicated": (32, "Total of packets equal to the last of their source. 0 if adaptive."),
    "cut": (32, "Total of packets that were closed with a poisoned tail."),
    "returned": (32, "Total of error responses to packets that could not be delivered."),
}


class SentSignature(wiring.Signature):
    """Totals of what a node has sent."""

    def __init__(self) -> None:
        super().__init__({name: Out(width) for name, (width, _) in _SENT.items()})


class ReceivedSignature(wiring.Signature):
    """Totals of what a node has received."""

    def __init__(self) -> None:
        super().__init__({name: Out(width) for name, (width, _) in _RECEIVED.items()})


class TrafficRegisters:
    """The registers of a traffic node with parameters ``params``."""

    def __init__(self, params: TrafficParams) -> None:
        table = [
            Register("ident", 0x000, "ro", "Identifies this register map and its revision."),
            Register("node", 0x008, "ro", "Node id."),
            Register("start", 0x010, "wo",
                     "First cycle in which a packet may be created. Writing it begins the "
                     "traffic: everything else is set before."),
            Register("stop", 0x018, "wo", "Cycle from which on no packet begins to be sent. After "
                                          "reset: never."),
            Register("measure_start", 0x020, "wo",
                     "Packets created from this cycle on are measured. After reset: none."),
            Register("measure_end", 0x028, "wo",
                     "First cycle whose packets are not measured any more. After reset: never."),
            Register("bin_shift", 0x030, "wo", "A bin of the histogram is 2^bin_shift cycles wide "
                                               "(0 to 15)."),
            Register("bin_index", 0x038, "wo", "Bin that ``bin`` reads next."),
            Register("bin", 0x040, "ro",
                     "Measured packets with a latency of ⌊latency ÷ 2^bin_shift⌋ = ``bin_index``, "
                     "which each read raises by one. The last bin holds all longer ones too."),
            Register("next", 0x048, "ro",
                     "Creation cycle of the next packet, or a lower bound of it: all packets "
                     "created before have been sent."),
            Register("gap", 0x080, "wo", "Thresholds of the gaps between packets.", 16),
            Register("size", 0x100, "wo",
                     "Packet sizes: bits 31:0 threshold, 40:32 flits. Thresholds do not fall.",
                     SIZES),
            Register("field", 0x120, "wo",
                     "Coordinate fields of node ids: bits 16:0 size, 20:17 shift.", 4),
            Register("seed", 0x140, "wo", "State of the random streams.", 2 * STREAMS),
            Register("target", 0x200, "wo",
                     "Destinations: bits 31:0 threshold, 47:32 node. Thresholds do not fall from "
                     "one to the next.", params.targets),
        ]
        table += [Register(f"sent_{name}", 0x400 + 8 * place, "ro", text)
                  for place, (name, (_, text)) in enumerate(_SENT.items())]
        table += [Register(f"received_{name}", 0x480 + 8 * place, "ro", text)
                  for place, (name, (_, text)) in enumerate(_RECEIVED.items())]
        self._registers = {register.name: register for register in table}

    def __getattr__(self, name: str) -> Register:
        try:
            return self.__dict__["_registers"][name]
        except KeyError:
            raise AttributeError(f"no register {name!r}") from None

    def __iter__(self) -> Iterator[Register]:
        return iter(self._registers.values())
