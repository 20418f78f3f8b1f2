"""What stands on the links of a fabric: flits that receivers have not freed, and their packets.

The engine notes, per link and virtual channel, what the link's words say (``engine/flow.hpp``);
here the two directions of a cable are put together. Results do not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from drivers.stalls import Channel
from hdl.layouts import PacketHeader, field_slices, link_word, unpack
from hdl.params import LinkParams

from .library import Field, FlowFormat

if TYPE_CHECKING:
    from .fabric import Fabric

__all__ = ["channels_of", "flow_format"]


def flow_format(params: LinkParams) -> FlowFormat:
    """Where the engine finds what it notes: among the bits that follow the payload."""
    fields = field_slices(link_word(params))
    payload = fields["payload"][1]
    where = {name: Field(fields[name][0] - payload, fields[name][1])
             for name in ("kind", "valid", "head", "vc", "seq", "credit", "credit_vc", "freed")}
    return FlowFormat(start=where.pop("kind"), **where, vcs=params.vcs, depth=params.vc_depth,
                      reliable=params.reliable, flit_bytes=params.flit_bytes)


def channels_of(fabric: Fabric, params: LinkParams) -> list[Channel]:
    """Every channel on which flits stand, those of one link together."""
    counts = fabric.channel_counts(params.vcs)
    opposite = {(link.source, link.source_port): index for index, link in enumerate(fabric.links)}
    found = []
    back = [opposite[link.target, link.target_port] for link in fabric.links]
    standing = counts[:, :, 0] - counts[back, :, 1]
    for index, vc in zip(*np.nonzero(standing), strict=True):
        sent, flits = int(counts[index, vc, 0]), int(standing[index, vc])
        packets = fabric.channel_packets(int(index), int(vc), params.vc_depth + 1)
        begin = int(np.searchsorted(packets["first"], sent - flits, "right")) - 1
        headers = [unpack(PacketHeader, packet["header"].tobytes())
                   for packet in packets[max(begin, 0):]]
        found.append(Channel(fabric.links[index], int(vc), flits, params.vc_depth, tuple(headers)))
    return found
