"""The host-visible registers of a card: one map for RTL, drivers and documentation.

Registers are 64 bits wide at byte offsets that are multiples of 8. Whatever counts is a *total*
that only grows (32 bits, modulo 2^32) unless said otherwise. Ring sizes are powers of two, so that
entry ``total mod size`` is where a total points.

Reads of unmapped offsets return 0 and writes to them do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .params import NicParams

__all__ = ["HOST_ADDRESS_BITS", "IDENT", "Register", "RegisterMap"]

#: Width of a host port address.
HOST_ADDRESS_BITS = 13
#: Value of the ``IDENT`` register: "SNC" and the revision of this map.
IDENT = 0x534E_4300_0000_0002


@dataclass(frozen=True)
class Register:
    """One register, or an array of ``count`` of them ``stride`` bytes apart."""

    name: str
    offset: int
    #: ``ro``: the host reads; ``rw``: the host reads and writes; ``wo``: reads return 0.
    access: str
    doc: str
    count: int = 1
    stride: int = 8

    def at(self, index: int = 0) -> int:
        """Byte offset of element ``index``.

        Raises
        ------
        IndexError
            If the array has no such element.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"register {self.name} has no element {index}: 0 to {self.count - 1}")
        return self.offset + index * self.stride


class RegisterMap:
    """The registers of a card whose NIC has parameters ``params`` and whose router has ``links``
    link ports."""

    def __init__(self, params: NicParams, links: int = 0) -> None:
        queues, counters = params.queues, params.counters
        table = [
            Register("ident", 0x000, "ro", "Identifies this register map and its revision."),
            Register("node", 0x008, "ro", "Node id of this card."),
            Register("completion_base", 0x010, "rw",
                     "Byte address of the completion ring (a multiple of 32)."),
            Register("completion_size", 0x018, "rw",
                     "Records in the completion ring (a power of two; 0 holds all completions)."),
            Register("completion_tail", 0x020, "ro", "Total of completion records written."),
            Register("completion_head", 0x028, "rw",
                     "Total of completion records that the host has consumed. The card never "
                     "overwrites an unconsumed record: it holds completions while the ring is "
                     "full."),
            Register("errors", 0x030, "ro", "Total of commands that ended with an error."),
            Register("waited", 0x038, "ro",
                     "Total of cycles (64 bits) that commands spent waiting for counters."),
            Register("direct_taken", 0x040, "ro", "Total of direct commands taken."),
            Register("direct_lost", 0x048, "ro",
                     "Total of direct commands dropped because the window was full."),
            Register("packets_sent", 0x050, "ro", "Total of packets sent, responses included."),
            Register("packets_received", 0x058, "ro",
                     "Total of packets received, responses included."),
            Register("slots_busy", 0x060, "ro", "Bitmap of in-flight command slots."),
            Register("deadline", 0x068, "rw",
                     "Cycles (48 bits) after which a command that waits for a counter, or a "
                     "transfer that is not complete, ends with TIMEOUT; 0 for never. Written while "
                     "no command is under way."),
            Register("queue_base", 0x100, "rw",
                     "Byte address of the command ring (a multiple of 64).", queues, 0x40),
            Register("queue_size", 0x108, "rw",
                     "Commands in the ring (a power of two).", queues, 0x40),
            Register("queue_tail", 0x110, "rw",
                     "Doorbell: total of commands that the host has posted.", queues, 0x40),
            Register("queue_head", 0x118, "ro",
                     "Total of commands that the card has fetched: their ring entries are free.",
                     queues, 0x40),
            Register("queue_wait", 0x300, "ro",
                     "What holds the queue's next command: bit 0 waiting for a counter, bit 1 "
                     "waiting at a fence or for a slot, bits 15:8 counter, bits 63:32 awaited "
                     "value. The last element is the direct queue.", queues + 1),
            Register("link", 0x400, "ro",
                     "LinkStatus of each link port: bit 0 down, bits 3:1 why (LinkFault), bits "
                     "63:32 total of flits sent again.", links),
            Register("counter", 0x800, "ro", "Totals of the synchronisation counters.", counters),
            Register("direct", 0x1000, "wo",
                     "Doorbell window: the eight words of one command; writing the last posts it "
                     "to the direct queue.", 8),
        ]
        self._registers = {register.name: register for register in table}

    def __getattr__(self, name: str) -> Register:
        try:
            return self.__dict__["_registers"][name]
        except KeyError:
            raise AttributeError(f"no register {name!r}") from None

    def __iter__(self) -> Iterator[Register]:
        return iter(self._registers.values())
