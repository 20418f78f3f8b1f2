"""The engine's C ABI, as ctypes sees it. Mirrors ``engine/settings.hpp`` and ``engine/abi.cpp``."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from pathlib import Path

import numpy as np
from amaranth.lib.data import StructLayout

from hdl.layouts import PacketHeader

__all__ = ["AGREE", "CALL", "EVENT", "FLOW_PACKET", "HEADER", "LINK_COUNTS", "NEVER", "VOTE",
           "Condition", "EventKind", "Field", "FlowFormat", "LinkSpec", "NodeSpec", "NodeStatus",
           "Outcome", "Peers", "Settings", "TileStatus", "load_engine"]

#: A cycle that does not come.
NEVER = (1 << 64) - 1


class Settings(Structure):
    """What a fabric is built with."""

    _fields_ = [("nodes", c_uint32), ("window", c_uint32), ("quantum", c_uint32),
                ("flat", c_uint32), ("skip_idle", c_uint32), ("event_log", c_uint32),
                ("threads", c_uint32), ("ranks", c_uint32), ("rank", c_uint32),
                ("seed", c_uint64), ("patience", c_uint64)]


class NodeSpec(Structure):
    """A node: what it is called, the models of its tiles, and its memory."""

    _fields_ = [("name", c_char_p), ("models", POINTER(c_char_p)), ("tiles", c_uint32),
                ("memory_latency", c_uint32), ("memory", c_void_p), ("memory_bytes", c_uint64),
                ("stall_rate", c_double), ("rank", c_uint32), ("thread", c_uint32)]


class LinkSpec(Structure):
    """A directed link."""

    _fields_ = [("source", c_uint32), ("source_port", c_uint32), ("target", c_uint32),
                ("target_port", c_uint32), ("latency", c_uint32), ("reserved", c_uint32)]


class Field(Structure):
    """Bits of a link word."""

    _fields_ = [("first", c_uint32), ("width", c_uint32)]


class FlowFormat(Structure):
    """Where the fields of a link word are, for :meth:`~emu.fabric.Fabric.watch`."""

    _fields_ = [*((name, Field) for name in ("start", "valid", "head", "vc", "seq", "credit",
                                             "credit_vc", "freed")),
                ("vcs", c_uint32), ("depth", c_uint32), ("reliable", c_uint32),
                ("flit_bytes", c_uint32)]


class Condition(Structure):
    """Completions of ``node`` have reached ``total``."""

    _fields_ = [("node", c_uint32), ("total", c_uint32)]


#: Numbers of a vote; see ``engine/peers.hpp``.
VOTE = 5
AGREE, CALL = CFUNCTYPE(c_int, POINTER(c_uint64)), CFUNCTYPE(c_int)


class Peers(Structure):
    """What is called while others run other nodes: agree on a vote, send, receive."""

    _fields_ = [("agree", AGREE), ("send", CALL), ("receive", CALL)]


class NodeStatus(Structure):
    """What one node is doing."""

    _fields_ = [("host_operations", c_uint64), ("host_reads", c_uint64),
                ("memory_reads", c_uint64), ("words_arriving", c_uint64),
                ("read_requests", c_uint32), ("write_requests", c_uint32),
                ("streams_blocked", c_uint32), ("completions", c_uint32)]


class TileStatus(Structure):
    """What one tile is doing."""

    _fields_ = [("wake", c_uint64), ("evaluations", c_uint64), ("idle", c_uint32),
                ("reserved", c_uint32)]


class Outcome(IntEnum):
    """Why a run returned."""

    MET = 0
    DEADLINE = 1
    SLICE = 2
    DEAD = 3
    STALLED = 4
    FAILED = 5


class EventKind(IntEnum):
    """Kinds of event-log records."""

    LINK = 0
    READ_REQUEST = 1
    READ_RESPONSE = 2
    WRITE = 3
    HOST_WRITE = 4
    HOST_READ = 5
    HOST_RESULT = 6
    STREAM = 7
    CORRUPT = 8
    LOST = 9
    SIGNAL = 10
    HEADER = 11
    ACTIVITY = 12


#: What the event log keeps of a packet's header: ``value`` is the first half, ``digest`` the other.
#: With flits of 16 B, it is only what is in the first of a header's two.
HEADER = StructLayout({name: PacketHeader.as_shape()[name].shape for name in (
    "dst", "src", "length", "op", "slot", "status", "rail", "address", "tag")})
#: One record of the event log. ``port`` is a link port, a memory port, or the number of a stream or
#: of a word of activity.
EVENT = np.dtype([("cycle", "<u8"), ("node", "<u4"), ("port", "<u2"), ("kind", "<u2"),
                  ("value", "<u8"), ("digest", "<u8")])
#: What a directed link has carried.
LINK_COUNTS = np.dtype([(name, "<u8") for name in
                        ("words", "flits", "corrupted", "corrupted_flits", "lost")])

#: A packet on a virtual channel: the number of its first flit there, and its header.
FLOW_PACKET = np.dtype([("first", "<u8"), ("bytes", "<u8"), ("header", "u1", 32)])

_FABRIC = c_void_p
_FUNCTIONS = {
    "sn_create": (_FABRIC, [POINTER(Settings)]),
    "sn_destroy": (None, [_FABRIC]),
    "sn_error": (c_char_p, [_FABRIC]),
    "sn_add_node": (c_int, [_FABRIC, POINTER(NodeSpec)]),
    "sn_connect": (c_int, [_FABRIC, POINTER(LinkSpec)]),
    "sn_set_errors": (c_int, [_FABRIC, c_uint32, c_uint32, POINTER(Field), c_uint32, c_double,
                              c_uint64]),
    "sn_add_outage": (c_int, [_FABRIC, c_uint32, c_uint32, c_uint64, c_uint64]),
    "sn_set_value": (c_int, [_FABRIC, c_uint32, c_uint32, c_char_p, c_char_p, c_uint64]),
    "sn_start": (c_int, [_FABRIC]),
    "sn_show": (c_int, [_FABRIC, c_uint32, c_uint32, c_char_p, c_uint64, c_uint64]),
    "sn_finish_waves": (c_int, [_FABRIC, c_uint32, c_uint32]),
    "sn_watch": (c_int, [_FABRIC, POINTER(FlowFormat)]),
    "sn_channels": (None, [_FABRIC, c_void_p]),
    "sn_packets": (c_uint32, [_FABRIC, c_uint32, c_uint32, c_void_p, c_uint32]),
    "sn_measure": (None, [_FABRIC]),
    "sn_profile": (None, [_FABRIC, c_uint32, c_void_p]),
    "sn_profile_tile": (c_uint64, [_FABRIC, c_uint32, c_uint32, c_uint32]),
    "sn_set_peers": (None, [_FABRIC, POINTER(Peers)]),
    "sn_mail": (c_uint64, [_FABRIC, c_uint32, POINTER(c_void_p)]),
    "sn_give": (c_int, [_FABRIC, c_void_p, c_uint64]),
    "sn_mail_bytes": (c_uint64, [_FABRIC, c_uint32]),
    "sn_cycle": (c_uint64, [_FABRIC]),
    "sn_active": (c_uint32, [_FABRIC]),
    "sn_run": (c_int, [_FABRIC, POINTER(Condition), c_uint32, c_uint64, c_double]),
    "sn_host_operation": (c_int, [_FABRIC, c_uint32, c_uint32, c_uint32, c_uint64]),
    "sn_host_result": (c_int, [_FABRIC, c_uint32, POINTER(c_uint64)]),
    "sn_node_status": (None, [_FABRIC, c_uint32, POINTER(NodeStatus)]),
    "sn_tile_status": (None, [_FABRIC, c_uint32, c_uint32, POINTER(TileStatus)]),
    "sn_stepped": (None, [_FABRIC, c_void_p]),
    "sn_evaluations": (None, [_FABRIC, c_uint32, c_void_p]),
    "sn_link_counts": (None, [_FABRIC, c_void_p]),
    "sn_error_bits": (c_int, [_FABRIC, c_uint32, c_uint32, c_uint64, c_void_p]),
    "sn_exercise": (None, [_FABRIC, c_uint32, c_uint32, c_uint64]),
    "sn_layout": (c_char_p, [_FABRIC, c_uint32, c_uint32]),
    "sn_parts": (c_uint32, [_FABRIC]),
    "sn_save": (c_int, [_FABRIC, c_uint32, POINTER(c_void_p), POINTER(c_uint64)]),
    "sn_restore": (c_int, [_FABRIC, c_uint32, c_char_p, c_uint64]),
    "sn_resume": (c_int, [_FABRIC]),
    "sn_log": (c_uint64, [_FABRIC, POINTER(c_void_p)]),
    "sn_log_take": (c_uint64, [_FABRIC, POINTER(c_void_p)]),
}


def load_engine(path: Path) -> ctypes.CDLL:
    """Load an engine and declare its functions."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
