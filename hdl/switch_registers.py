"""The host-visible registers of a switch: one map for RTL, drivers and documentation.

Registers are 64 bits wide at byte offsets that are multiples of 8. Reads of unmapped offsets
return 0 and writes to them do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from .registers import Register

__all__ = ["SWITCH_IDENT", "SwitchRegisterMap"]

#: Value of the ``ident`` register: "SNS" and the revision of this map.
SWITCH_IDENT = 0x534E_5300_0000_0001


class SwitchRegisterMap:
    """The registers of a switch with ``radix`` ports."""

    def __init__(self, radix: int) -> None:
        self.ident = Register("ident", 0x000, "ro",
                              "Identifies this register map and its revision.")
        self.radix = Register("radix", 0x008, "ro", "Number of ports.")
        self.node = Register("node", 0x010, "ro", "Node id of this switch.")
        self.table = Register("table", 0x100, "wo",
                              "Each write is one RouteWrite: a level or an entry of the route "
                              "tables. Software writes while no packet is under way.")
        self.link = Register("link", 0x400, "ro", "LinkStatus of each port.", radix)

    def __iter__(self) -> Iterator[Register]:
        return iter((self.ident, self.radix, self.node, self.table, self.link))
