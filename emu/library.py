"""The engine's C ABI, as ctypes sees it. Mirrors ``engine/settings.hpp`` and ``engine/abi.cpp``."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path

import numpy as np

__all__ = ["EVENT", "CardStatistics", "CardStatus", "Condition", "EventKind", "Outcome", "Settings",
           "load_engine"]


class Settings(Structure):
    """What a fabric is built with."""

    _fields_ = [("cards", c_uint32), ("flit_bytes", c_uint32), ("link_latency", c_uint32),
                ("window", c_uint32), ("quantum", c_uint32), ("memory_latency", c_uint32),
                ("flat", c_uint32), ("skip_idle", c_uint32), ("event_log", c_uint32),
                ("reserved", c_uint32), ("memory_bytes", c_uint64), ("seed", c_uint64),
                ("stall_rate", c_double), ("patience", c_uint64)]


class Condition(Structure):
    """Completions of card ``rank`` have reached ``total``."""

    _fields_ = [("rank", c_uint32), ("total", c_uint32)]


class CardStatus(Structure):
    """What one card is doing."""

    _fields_ = [("network_wake", c_uint64), ("compute_wake", c_uint64),
                ("host_operations", c_uint64), ("host_reads", c_uint64),
                ("memory_reads", c_uint64), ("words_arriving", c_uint64),
                ("network_idle", c_uint32), ("compute_idle", c_uint32),
                ("read_requests", c_uint32), ("write_requests", c_uint32),
                ("gemm_blocked", c_uint32), ("done_blocked", c_uint32),
                ("completions", c_uint32), ("reserved", c_uint32)]


class CardStatistics(Structure):
    """How often one card was evaluated."""

    _fields_ = [("stepped", c_uint64), ("network_evaluations", c_uint64),
                ("compute_evaluations", c_uint64)]


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
    GEMM = 7
    DONE = 8


#: One record of the event log. ``node`` is a rank; ``port`` a link port or memory port.
EVENT = np.dtype([("cycle", "<u8"), ("node", "<u4"), ("port", "<u2"), ("kind", "<u2"),
                  ("value", "<u8"), ("digest", "<u8")])

_FABRIC = c_void_p
_FUNCTIONS = {
    "sn_create": (_FABRIC, [POINTER(Settings)]),
    "sn_destroy": (None, [_FABRIC]),
    "sn_error": (c_char_p, [_FABRIC]),
    "sn_add_card": (c_int, [_FABRIC, c_void_p]),
    "sn_connect": (c_int, [_FABRIC, c_uint32, c_uint32, c_uint32, c_uint32]),
    "sn_set_value": (c_int, [_FABRIC, c_uint32, c_uint32, c_char_p, c_char_p, c_uint64]),
    "sn_start": (c_int, [_FABRIC]),
    "sn_cycle": (c_uint64, [_FABRIC]),
    "sn_run": (c_int, [_FABRIC, POINTER(Condition), c_uint32, c_uint64, c_double]),
    "sn_host_write": (None, [_FABRIC, c_uint32, c_uint32, c_uint64]),
    "sn_host_read": (None, [_FABRIC, c_uint32, c_uint32]),
    "sn_host_result": (c_int, [_FABRIC, c_uint32, POINTER(c_uint64)]),
    "sn_completions": (c_uint32, [_FABRIC, c_uint32]),
    "sn_card_status": (None, [_FABRIC, c_uint32, POINTER(CardStatus)]),
    "sn_card_statistics": (None, [_FABRIC, c_uint32, POINTER(CardStatistics)]),
    "sn_link_statistics": (None, [_FABRIC, c_uint32, c_uint32, POINTER(c_uint64),
                                  POINTER(c_uint64)]),
    "sn_exercise": (None, [_FABRIC, c_uint32, c_uint32, c_uint64]),
    "sn_log": (c_uint64, [_FABRIC, POINTER(c_void_p)]),
}


def load_engine(path: Path) -> ctypes.CDLL:
    """Load an engine and declare its functions."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
