"""Every bit-level format of the machine, once.

The same objects serve RTL (as shapes), drivers and tests (through :meth:`pack` and
:meth:`unpack`, or numpy through :func:`field_slices`). Nothing else in the project knows a bit
position. First fields sit at the least significant bits, and memory is little-endian.

Formats
-------
``link_word``       what a link carries per cycle: flit slot, control slot, CRC
``PacketHeader``    32 B at the head of every packet
``Extension``       32 B more, of packets that need them
``Command``         64 B in a command ring or through the doorbell window
``Descriptor``      128 B in memory: one GEMM
``Completion``      32 B in the completion ring
``…Activity``       what a tile is doing, for whoever looks on
"""

import enum as py_enum
from collections.abc import Mapping
from functools import cache
from typing import Any

from amaranth.hdl import Shape, unsigned
from amaranth.lib import data, enum

from .params import LinkParams

__all__ = [
    "ADDRESS_BITS", "CYCLE_BITS", "NODE_BITS", "NO_COUNTER",
    "Accumulate", "Argument", "Command", "CommandActivity", "CommandFlags", "Completion", "DType",
    "Descriptor", "EndedCommand", "Extension", "Format", "GemmActivity", "GemmPhase",
    "GlobalAddress", "LinkFault", "LinkKind", "LinkStatus", "Op", "Operands", "Order",
    "PacketFlags", "PacketHeader", "PacketOp", "RailActivity", "ReduceOp", "ReplyState",
    "RouteEntry", "RouteLevel", "RouteWrite", "RxState", "StartedCommand", "Status", "Strides",
    "TxState", "field_slices", "flit", "link_word", "pack", "queue_activity", "unpack",
]

#: Offset within a card's memory.
ADDRESS_BITS = 48
#: Node id: packed coordinates, one bit field per dimension (see ``hdl/topology``).
NODE_BITS = 16
#: The global cycle counter ``now`` and every stamp taken from it.
CYCLE_BITS = 48
#: Counter index that means "no counter".
NO_COUNTER = 0xFF


class Op(enum.Enum, shape=8):
    """Command operations."""

    NOP = 0
    #: Completes when every earlier command of its queue has completed; later ones wait for it.
    FENCE = 1
    WRITE = 2
    READ = 3
    #: Remote write that adds into the target's memory.
    REDUCE = 4
    ATOMIC = 5
    GEMM = 6
    COPY = 7
    #: Write an entry of this card's route table, in ``source`` (see ``fabric/table``).
    ROUTE = 8


class Order(enum.Enum, shape=2):
    """What a command's accesses wait for, of those of earlier commands of its queue."""

    #: Nothing.
    NONE = 0
    #: Packets of one (source, destination, class, rail) arrive in the order of their commands.
    RELAXED = 1
    #: All of them: it starts when every earlier command of its queue is complete.
    STRONG = 2


class CommandFlags(data.Struct):
    """Flags of a command."""

    #: Ask the target for a response per packet; completion then means "visible at the target".
    ack: 1
    #: Write a completion record when done (errors always write one).
    signal: 1
    #: Hold the command until counter ``wait_counter`` has reached ``wait_value``.
    wait: 1
    #: Of a WRITE: the data are the command's own operands, up to 16 bytes, and not in memory.
    inline: 1
    #: Of a REDUCE: what is added to the payload lies at ``addend``, and the sum goes to ``target``.
    addend: 1
    order: Order
    reserved: 1


class DType(enum.Enum, shape=4):
    """Element types of reductions and collectives."""

    F32 = 0
    BF16 = 1
    F16 = 2
    E4M3 = 3
    E5M2 = 4
    I32 = 5
    I8 = 6


class ReduceOp(enum.Enum, shape=4):
    """Reduction operators, and what an ATOMIC does."""

    SUM = 0
    MIN = 1
    MAX = 2
    #: ATOMIC only.
    SWAP = 8
    COMPARE_SWAP = 9


class Status(enum.Enum, shape=8):
    """How a command ended."""

    OK = 0
    #: Operation unknown, not built into this card, or reserved fields set.
    BAD_COMMAND = 1
    #: Element type or operator not supported, or address not a multiple of the element.
    BAD_DTYPE = 2
    #: The target address range leaves the target's memory.
    TARGET_RANGE = 3
    #: The source address range leaves this card's memory.
    SOURCE_RANGE = 4
    #: Counter index that the target or this card does not have.
    BAD_COUNTER = 5
    #: Descriptor refused by the compute tile.
    BAD_DESCRIPTOR = 6
    #: Region key or permission refused.
    PROTECTION = 7
    #: A link on the way died.
    LINK_DOWN = 8
    #: No response before the deadline.
    TIMEOUT = 9
    #: The packet was cut and closed with a poisoned tail.
    POISON = 10


class PacketOp(enum.Enum, shape=4):
    """Packet operations."""

    WRITE = 0
    REDUCE = 1
    READ = 2
    ATOMIC = 3
    #: Response without payload: an ack or an error (``status``).
    RESPONSE = 4
    READ_RESPONSE = 5


class PacketFlags(data.Struct):
    """Flags of a packet."""

    #: The requester wants a response.
    ack: 1
    #: The payload is not to be trusted.
    poison: 1
    #: An :class:`Extension` follows the header.
    extended: 1
    reserved: 5


class LinkKind(enum.Enum, shape=1):
    """What a link word means during bring-up."""

    RUN = 0
    START = 1


class LinkFault(enum.Enum, shape=3):
    """Why a link is down."""

    NONE = 0
    #: The signal went away.
    SIGNAL = 1
    #: The other end was reset.
    PEER_RESET = 2
    #: The other end is built or configured differently.
    MISMATCH = 3
    #: The same flit was resent too often.
    REPLAY_LIMIT = 4
    #: The other end took the link down.
    PEER_DOWN = 5


class LinkStatus(data.Struct):
    """State of one end of a link, as registers show it."""

    down: 1
    fault: LinkFault
    reserved: 28
    #: Total of flits sent again.
    replays: 32


class RouteLevel(data.Struct):
    """One level of a route table: destinations with ``dst & mask == value`` look up the field
    ``dst >> shift``. An invalid level matches nothing."""

    mask: NODE_BITS
    value: NODE_BITS
    shift: 4
    valid: 1
    reserved: 3


class RouteEntry(data.Struct):
    """One entry of a route table."""

    index: 12
    #: Port that the packet leaves by.
    port: 6
    #: Lane there, if ``fixed``; otherwise a packet keeps the lane on which it came.
    lane: 3
    fixed: 1
    #: Input port whose table is written, unless it is those of all.
    input: 6
    every_input: 1
    reserved: 11


class RouteWrite(data.Struct):
    """A write to a route table: ``body`` is a :class:`RouteEntry` or a :class:`RouteLevel`."""

    body: 40
    level: 2
    entry: 1
    reserved: 5


class Format(enum.Enum, shape=4):
    """Operand and result formats of a GEMM."""

    E4M3 = 0
    E5M2 = 1
    F32 = 2


class Accumulate(enum.Enum, shape=4):
    """How a GEMM adds its products."""

    #: Exact fixed point, one round-to-nearest-even to the result format at the end.
    EXACT = 0


class GlobalAddress(data.Struct):
    """A byte of memory anywhere in the supernode."""

    offset: ADDRESS_BITS
    node: NODE_BITS


@cache
def link_word(params: LinkParams) -> data.StructLayout:
    """Layout of the word that one link carries per cycle and direction.

    ``strobe`` is set when the word holds a flit or a total that changed or is due; a word without
    it is *empty* and is not transported. The flit slot is meaningful while ``valid``; the control
    slot carries the freed-credit total of one VC while ``credit``, and the ack total while
    ``acks``. A plain link leaves ``seq``, ``turn``, ``acks``, ``ack``, ``asked`` and ``crc`` zero;
    a reliable one numbers every word (see ``link/replay``).

    The payload comes first so that it sits on machine-word boundaries in a simulator.
    """
    return data.StructLayout({
        # flit slot
        "payload": unsigned(params.flit_bits),
        "strobe": unsigned(1),
        "kind": LinkKind,
        "valid": unsigned(1),
        "head": unsigned(1),
        "tail": unsigned(1),
        # Of a tail: the packet was cut; this flit carries nothing.
        "poison": unsigned(1),
        "vc": unsigned(params.vc_bits),
        # Number of the flit or, in a word without one, of the next flit.
        "seq": unsigned(params.seq_bits),
        # Total of replays that were asked for and begun, modulo 2.
        "turn": unsigned(1),
        # control slot
        "credit": unsigned(1),
        "credit_vc": unsigned(params.vc_bits),
        "freed": unsigned(params.total_bits),
        "acks": unsigned(1),
        "ack": unsigned(params.seq_bits),
        # Total of replays that this end asks for, modulo 2.
        "asked": unsigned(1),
        "crc": unsigned(32),
    })


@cache
def flit(params: LinkParams) -> data.StructLayout:
    """Layout of one flit inside a tile: what a link word's flit slot carries."""
    return data.StructLayout({
        "payload": unsigned(params.flit_bits),
        "head": unsigned(1),
        "tail": unsigned(1),
        "poison": unsigned(1),
        "vc": unsigned(params.vc_bits),
    })


class PacketHeader(data.Struct):
    """The 32 B at the head of every packet. The first 16 B hold all that routing needs.

    Payload bytes sit in the lanes of the *target* address: the first payload flit holds the bytes
    from ``address`` to the next flit boundary.
    """

    dst: NODE_BITS
    src: NODE_BITS
    version: 4
    klass: 2
    #: Rail that injects the packet and receives it.
    rail: 3
    reserved0: 7
    #: Scratch space of routers.
    route: 16
    #: Congestion marks, flow group, path and end-to-end sequence of multi-path transport. In a full
    #: mesh, ``path`` p > 0 asks for the way over the node with coordinate p − 1.
    ecn: 2
    group: 6
    path: 8
    sequence: 24
    op: PacketOp
    flags: PacketFlags
    #: In-flight slot at the requester, echoed by its response.
    slot: 4
    #: Of a response: how the request ended.
    status: Status
    # --- 16 B
    #: Target byte address; in a response, the address of the request.
    address: ADDRESS_BITS
    #: Payload bytes, 0…4096; in a response, those of the request.
    length: 13
    #: Of the requester's slot, echoed by its response: it tells answers to the slot's present
    #: command from late ones to a command that timed out there.
    generation: 3
    #: Counter at the target that the packet adds 1 to, or :data:`NO_COUNTER`. In a response with
    #: ``LINK_DOWN``: the port of the dead link at node ``src``.
    counter: 8
    dtype: DType
    redop: ReduceOp
    #: Region key at the target.
    key: 32
    #: The command's tag, echoed by responses so that a late error can name its command.
    tag: 16


class Extension(data.Struct):
    """The 32 B behind the header of a packet with the flag ``extended``; not part of ``length``."""

    #: Of an ATOMIC: what is added or stored, and what memory is compared with.
    operand: 64
    compare: 64
    # --- 16 B
    #: Of a READ or ATOMIC, where the answer goes in the requester's memory; of a REDUCE, where the
    #: addend lies in the target's.
    address: ADDRESS_BITS
    reserved: 80


class Strides(data.Struct):
    """What a command that repeats adds to its addresses and its wait value each time."""

    source: 32
    target: 32
    wait: 32
    reserved: 32


class Operands(data.Struct):
    """Data within a command: those of an ATOMIC, or 16 bytes of an ``inline`` WRITE."""

    operand: 64
    compare: 64


class Argument(data.Union):
    """The last 16 B of a command: strides if it repeats, operands where it takes them."""

    strides: Strides
    operands: Operands


class Command(data.Struct):
    """One command, 64 B. Reserved fields must be zero.

    ``count`` = 0 or 1 runs the command once. Larger counts repeat it with the strides added to
    source, destination and wait value each time. A READ or ATOMIC puts what comes from ``target``
    at ``source``; a COPY stays in this card's memory.
    """

    op: Op
    flags: CommandFlags
    #: Comes back in the completion record; otherwise unused by the hardware.
    tag: 16
    dtype: DType
    redop: ReduceOp
    rail: 8
    wait_counter: 8
    #: Counter at the target that each packet adds 1 to, or :data:`NO_COUNTER`.
    target_counter: 8
    #: Counter of this card that completion adds 1 to, or :data:`NO_COUNTER`.
    local_counter: 8
    #: Path of all packets, see :class:`PacketHeader`.
    path: 8
    #: Of a REDUCE with the flag ``addend``: byte offset in the target's memory.
    addend: ADDRESS_BITS
    # --- 16 B
    #: The wait ends when (total − wait_value) mod 2^32 < 2^31.
    wait_value: 32
    #: Bytes to move.
    length: 32
    #: Local byte address; of a GEMM, its descriptor (a multiple of 128).
    source: ADDRESS_BITS
    reserved: 16
    # --- 32 B
    target: GlobalAddress
    key: 32
    count: 32
    # --- 48 B
    argument: Argument


class Descriptor(data.Struct):
    """One GEMM, 128 B at a multiple of 128: C[m×n] = A[m×k] · B[k×n].

    A and C are row-major. B is row-major k×n, or n×k when ``b_transposed``. Leading dimensions are
    bytes between rows. C's address and leading dimension are multiples of 4; A and B have any
    alignment. ``k`` = 0 gives C = +0; ``m`` = 0 or ``n`` = 0 writes nothing.
    """

    m: 32
    n: 32
    k: 32
    a_format: Format
    b_format: Format
    c_format: Format
    accumulate: Accumulate
    b_transposed: 1
    reserved0: 15
    # --- 16 B
    a: 64
    b: 64
    # --- 32 B
    c: 64
    lda: 32
    ldb: 32
    # --- 48 B
    ldc: 32
    reserved1: 32
    reserved2: 64
    reserved3: 512


class Completion(data.Struct):
    """One record of the completion ring, 32 B.

    ``phase`` is 1 on the first pass through the ring and flips on each further one, so a reader
    tells a new record from an old one without an index.
    """

    phase: 1
    reserved0: 3
    queue: 4
    op: Op
    status: Status
    tag: 16
    #: Node that refused the command, when ``status`` says that one did.
    peer: NODE_BITS
    #: Port of ``peer`` whose link died, when ``status`` is ``LINK_DOWN``.
    link: 8
    #: Cycle of the doorbell that made the command visible.
    posted: CYCLE_BITS
    #: Cycle at which its wait was over and its work began.
    started: CYCLE_BITS
    #: Cycle at which it was complete.
    ended: CYCLE_BITS
    reserved1: 48


class StartedCommand(data.Struct):
    """The command that was started last."""

    #: Turns over with every command.
    turn: 1
    queue: 4
    slot: 4
    op: Op
    tag: 16


class EndedCommand(data.Struct):
    """The command that was completed last."""

    #: Turns over with every command.
    turn: 1
    failed: 1
    slot: 4


class CommandActivity(data.Struct):
    """Registers that are written in the cycles of a command's stamps ``started`` (of a GEMM, that
    of its dispatch) and ``ended``, and so show them one cycle later."""

    started: StartedCommand
    ended: EndedCommand


def queue_activity(queues: int) -> data.StructLayout:
    """Layout of what the heads of ``queues`` command queues wait for: a counter, earlier commands
    of their queue (a fence), or room: a slot, or the register before their rail or compute."""
    return data.StructLayout({name: unsigned(queues) for name in ("counter", "fence", "room")})


class TxState(enum.Enum, shape=3):
    """What the transmitter of a rail does with the transfer that it is sending."""

    #: There is none.
    REST = 0
    #: A flit leaves in this cycle.
    SEND = 1
    #: It waits for data from memory.
    MEMORY = 2
    #: It waits for a credit of the router.
    CREDIT = 3
    #: It gives way to a reply.
    REPLY = 4


class ReplyState(enum.Enum, shape=2):
    """What becomes of the reply that a rail is to send next."""

    #: There is none.
    REST = 0
    #: A flit leaves in this cycle.
    SEND = 1
    #: It waits for a credit of the router.
    CREDIT = 2


class RxState(enum.Enum, shape=3):
    """What the receiver of a rail does with the flit at its front."""

    #: There is none.
    REST = 0
    #: It is taken, if memory accepts the read request of a reduction's flit before it.
    TAKE = 1
    #: It waits for memory, which is behind with the flits before it.
    MEMORY = 2
    #: It waits for the writes of an older packet to the bytes that it reduces into.
    ORDER = 3
    #: It waits for room for its reply, or for its record behind those of older packets.
    REPLY = 4


class RailActivity(data.Struct):
    """What a rail does in this cycle."""

    tx: TxState
    reply: ReplyState
    rx: RxState
    #: Slot of the transfer, unless ``tx`` rests.
    slot: 4


class GemmPhase(enum.Enum, shape=3):
    """What the GEMM engine does."""

    REST = 0
    #: Fetches and checks the descriptor.
    FETCH = 1
    #: Waits for operands.
    LOAD = 2
    #: The array takes a column in this cycle.
    MULTIPLY = 3
    #: Waits for the results of an earlier tile to leave the array.
    DRAIN = 4
    #: All columns are taken; results are rounded and written.
    STORE = 5
    #: Hands the end of the GEMM to the network tile.
    DONE = 6


class GemmActivity(data.Struct):
    """What the GEMM engine does in this cycle, and for which slot."""

    phase: GemmPhase
    slot: 4


def _size_check() -> None:
    for layout, size in ((PacketHeader, 32), (Extension, 32), (Command, 64), (Descriptor, 128),
                         (Completion, 32)):
        bits = Shape.cast(layout).width
        if bits != 8 * size:
            raise AssertionError(f"{layout.__name__} has {bits} bits, not {8 * size}")


_size_check()


def field_slices(layout: Any) -> dict[str, tuple[int, int]]:
    """Return ``{dotted field name: (first bit, width)}`` of a layout, nested ones included."""
    fields: dict[str, tuple[int, int]] = {}
    for name, item in data.Layout.cast(layout):
        width = Shape.cast(item.shape).width
        fields[name] = (item.offset, width)
        try:
            inner = data.Layout.cast(item.shape)
        except TypeError:
            continue
        for sub, (offset, sub_width) in field_slices(inner).items():
            fields[f"{name}.{sub}"] = (item.offset + offset, sub_width)
    return fields


def pack(layout: Any, values: Mapping[str, Any]) -> bytes:
    """Pack ``values`` (nested mappings for nested fields; absent ones are 0) into bytes.

    Raises
    ------
    ValueError
        If a field is unknown, or a value does not fit its field.
    """
    return _pack_int(layout, values).to_bytes((Shape.cast(layout).width + 7) // 8, "little")


@cache
def _fields(layout: Any) -> dict[Any, tuple[int, int, Any, Any]]:
    """Offset, width, enumeration (or ``None``) and inner layout (or ``None``) of each field."""
    fields = {}
    for name, item in data.Layout.cast(layout):
        codes = (item.shape if isinstance(item.shape, type)
                 and issubclass(item.shape, py_enum.Enum) else None)
        try:
            inner = None if codes else data.Layout.cast(item.shape)
        except TypeError:
            inner = None
        fields[name] = (item.offset, Shape.cast(item.shape).width, codes, inner)
    return fields


def _pack_int(layout: Any, values: Mapping[str, Any]) -> int:
    known = _fields(layout)
    word = 0
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"unknown field {name!r}: accepted are "
                             f"{', '.join(map(str, known))}")
        offset, width, _, inner = known[name]
        if isinstance(value, Mapping):
            number = _pack_int(inner, value)
        else:
            number = value.value if isinstance(value, py_enum.Enum) else int(value)
        if not 0 <= number < 1 << width:
            raise ValueError(f"field {name!r} must be from 0 to {(1 << width) - 1}, not {number}")
        word |= number << offset
    return word


def unpack(layout: Any, raw: bytes | int) -> dict[str, Any]:
    """Unpack bytes (or the integer they spell) into a dict: enumerations where a code has a
    member, nested dicts for nested layouts, integers elsewhere."""
    word = raw if isinstance(raw, int) else int.from_bytes(raw, "little")
    fields: dict[str, Any] = {}
    for name, (offset, width, codes, inner) in _fields(layout).items():
        number = word >> offset & (1 << width) - 1
        if inner is not None:
            fields[name] = unpack(inner, number)
            continue
        try:
            fields[name] = codes(number) if codes else number
        except ValueError:
            fields[name] = number
    return fields
