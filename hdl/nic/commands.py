"""Command queues: rings in card memory, fetched ahead, and the direct queue behind the doorbell
window.

::

    doorbells ──> fetch ──> memory ──> ring store (16 commands a ring) ─┐
                                                                        ├──> head of the selected
    window words ─────────────────────> direct store ───────────────────┘    queue

A ring's doorbell is the total of commands posted; the card fetches while that total is ahead of
the total fetched and its store has room. The words of a direct command go straight into the row
behind the last one posted; writing the last word posts it, or drops it if the window is full. Every
post needs all eight words: a row is not what the last post left.

Latency law: with the doorbell total in its register in cycle t, the fetch's first request is
offered in t + 1, one per cycle follows, and a command is ``present`` in the cycle after its last
flit's response. A direct command is ``present`` in the cycle after its last word. A selected
queue's head is out in the cycle after the selection and stays.

Flow-control invariant: a fetch is asked for only when the store has room, so responses are never
refused. Per ring, fetched ≤ asked ≤ posted and asked − taken ≤ :data:`PREFETCH`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter
from hdl.layouts import CYCLE_BITS, Command
from hdl.nic.doorbell import WindowWord
from hdl.params import CardParams
from hdl.ports import MemoryReadSignature, ValidSignature, memory_index_bits

__all__ = ["COMMAND_BYTES", "PREFETCH", "CommandQueues"]

COMMAND_BYTES = 64
#: Commands per ring that are held or on their way. With a fetch of about 70 cycles, 3 keep a rail
#: busy with 1 KiB WRITEs (33 cycles of link time) and 16 give one command every 4 to 5 cycles.
PREFETCH = 16
_ROW_BITS = (PREFETCH - 1).bit_length()


def _pick(onehot, values):
    """The one of ``values`` that ``onehot`` names; 0 if it names none."""
    result = Const(0)
    for index, value in enumerate(values):
        result = result | Mux(onehot[index], value, 0)
    return result


class CommandQueues(wiring.Component):
    """The commands of ``params.nic.queues`` rings and, last, of the direct queue.

    Members
    -------
    base, size, tail : ``In(64).array(queues)``
        Registers of the rings.
    rung : ``In(48).array(queues)``
        Cycle of each ring's latest doorbell.
    head : ``Out(32).array(queues)``
        Totals of commands fetched.
    window : ``In(ValidSignature(WindowWord))``
    direct_taken, direct_lost : ``Out(32)``
    fetch : ``Out(MemoryReadSignature)``
        The tag is the ring's number.
    present : ``Out(queues + 1)``
        Queues with a command.
    select : ``In(queues + 1)``
        One-hot, or 0: the queue whose head is wanted.
    command, posted : ``Out(Command)``, ``Out(48)``
        The head of the queue last selected and the stamp of its doorbell.
    take : ``In(queues + 1)``
        One-hot, or 0: drop this queue's head.
    active : ``Out(1)``
        A fetch is to be issued.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        queues = params.nic.queues
        super().__init__({
            "base": In(64).array(queues),
            "size": In(64).array(queues),
            "tail": In(64).array(queues),
            "rung": In(CYCLE_BITS).array(queues),
            "head": Out(32).array(queues),
            "window": In(ValidSignature(WindowWord)),
            "direct_taken": Out(32),
            "direct_lost": Out(32),
            "fetch": Out(MemoryReadSignature(params.link.flit_bytes)),
            "present": Out(queues + 1),
            "select": In(queues + 1),
            "command": Out(Command),
            "posted": Out(CYCLE_BITS),
            "take": In(queues + 1),
            "active": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        queues = self._params.nic.queues
        command_bits = 8 * COMMAND_BYTES
        rows = queues * PREFETCH

        m.submodules.rings = rings = Memory(shape=unsigned(command_bits), depth=rows, init=[])
        m.submodules.ring_stamps = ring_stamps = Memory(
            shape=unsigned(CYCLE_BITS), depth=rows, init=[])
        ring, ring_stamp = rings.read_port(), ring_stamps.read_port()
        issued = [Signal(32, name=f"issued_{queue}") for queue in range(queues)]
        taken = [Signal(_ROW_BITS + 1, name=f"taken_{queue}") for queue in range(queues)]
        row_bits = len(ring.addr)

        def row(queue, total):
            """Row of the command that ``total`` points to in ``queue`` (a number or a value)."""
            return Cat(total[:_ROW_BITS], queue)[:row_bits]

        for queue in range(queues):
            m.d.comb += self.present[queue].eq(self.head[queue][:_ROW_BITS + 1] != taken[queue])
            with m.If(self.take[queue]):
                m.d.sync += taken[queue].eq(taken[queue] + 1)

        self._fetch(m, issued, taken, row, ring_stamps.write_port())
        self._arrive(m, row, rings.write_port(granularity=8 * self._params.link.flit_bytes)
                     if self._params.link.flit_bytes < COMMAND_BYTES else rings.write_port())
        direct, direct_stamp = self._direct(m)

        from_direct = Signal()
        m.d.comb += [ring.en.eq(self.select[:queues].any()), ring_stamp.en.eq(ring.en),
                     direct.en.eq(self.select[queues]), direct_stamp.en.eq(direct.en)]
        with m.If(ring.en):
            m.d.comb += ring.addr.eq(_pick(self.select, [
                row(Const(queue, 3), taken[queue]) for queue in range(queues)]))
        m.d.comb += ring_stamp.addr.eq(ring.addr)
        with m.If(self.select.any()):
            m.d.sync += from_direct.eq(self.select[queues])
        with m.If(from_direct):
            m.d.comb += [self.command.eq(direct.data), self.posted.eq(direct_stamp.data)]
        with m.Else():
            m.d.comb += [self.command.eq(ring.data), self.posted.eq(ring_stamp.data)]
        return m

    def _fetch(self, m: Module, issued, taken, row, stamps) -> None:
        """Ask for commands: one ring after the other, a command's flits in a row."""
        queues, flit_bytes = self._params.nic.queues, self._params.link.flit_bytes
        flits = COMMAND_BYTES // flit_bytes
        request = self.fetch.request

        wanted = Signal(queues)
        for queue in range(queues):
            level = Signal(_ROW_BITS + 1, name=f"level_{queue}")
            m.d.comb += level.eq(issued[queue] - taken[queue])
            m.d.comb += wanted[queue].eq((issued[queue] != self.tail[queue][:32])
                                         & self.size[queue].any() & (level != PREFETCH))

        m.submodules.turn = turn = Arbiter(queues)
        part = Signal(range(max(2, flits)))
        moved, last, load = Signal(), Signal(), Signal()
        m.d.comb += [moved.eq(request.valid & request.ready), last.eq(part == flits - 1),
                     load.eq(wanted.any() & (~request.valid | (moved & last))),
                     turn.request.eq(wanted), turn.accept.eq(load)]
        with m.If(moved):
            m.d.sync += [part.eq(part + 1),
                         request.payload.index.eq(request.payload.index + 1)]
            with m.If(last):
                m.d.sync += request.valid.eq(0)
        entry = Signal(memory_index_bits(flit_bytes))
        with m.If(load):
            ring_index = [(issued[queue] & (self.size[queue][:32] - 1)) for queue in range(queues)]
            m.d.comb += entry.eq(
                _pick(turn.grant, [base[flit_bytes.bit_length() - 1:] for base in self.base])
                + _pick(turn.grant, ring_index) * flits)
            m.d.sync += [part.eq(0), request.valid.eq(1), request.payload.index.eq(entry),
                         request.payload.tag.eq(
                             _pick(turn.grant, [Const(queue, 3) for queue in range(queues)]))]
            m.d.comb += [stamps.en.eq(1), stamps.data.eq(_pick(turn.grant, self.rung)),
                         stamps.addr.eq(_pick(turn.grant, [
                             row(Const(queue, 3), issued[queue]) for queue in range(queues)]))]
            for queue in range(queues):
                with m.If(turn.grant[queue]):
                    m.d.sync += issued[queue].eq(issued[queue] + 1)
        m.d.comb += self.active.eq(request.valid | wanted.any())

    def _arrive(self, m: Module, row, store) -> None:
        """Store what memory gives; a command counts as fetched with its last flit."""
        queues, flit_bytes = self._params.nic.queues, self._params.link.flit_bytes
        flits = COMMAND_BYTES // flit_bytes
        response = self.fetch.response
        part = Signal(range(max(2, flits)))
        with m.If(response.valid):
            m.d.sync += part.eq(Mux(part == flits - 1, 0, part + 1))
            m.d.comb += [store.en.eq(1 << part if flits > 1 else 1),
                         store.data.eq(Cat(*[response.payload.data] * flits))]
            for queue in range(queues):
                with m.If(response.payload.tag == queue):
                    m.d.comb += store.addr.eq(row(Const(queue, 3), self.head[queue]))
                    with m.If(part == flits - 1):
                        m.d.sync += self.head[queue].eq(self.head[queue] + 1)

    def _direct(self, m: Module):
        """The doorbell window and its queue; returns the read ports of commands and stamps."""
        depth, direct = self._params.nic.direct_depth, self._params.nic.queues
        # One row more than the window holds at least: the words to come always have a row.
        rows = 1 << depth.bit_length()
        m.submodules.direct = commands = Memory(
            shape=unsigned(8 * COMMAND_BYTES), depth=rows, init=[])
        m.submodules.direct_stamps = stamps = Memory(
            shape=unsigned(CYCLE_BITS), depth=rows, init=[])
        head, head_stamp = commands.read_port(), stamps.read_port()
        store, stamp = commands.write_port(granularity=64), stamps.write_port()
        posted, level = Signal(32), Signal(range(depth + 1))
        word = self.window.payload
        m.d.comb += level.eq(posted - self.direct_taken)
        with m.If(self.window.valid):
            m.d.comb += [store.en.eq(1 << word.index), stamp.en.eq(1)]
            with m.If(word.index == COMMAND_BYTES // 8 - 1):
                with m.If(level == depth):
                    m.d.sync += self.direct_lost.eq(self.direct_lost + 1)
                with m.Else():
                    m.d.sync += posted.eq(posted + 1)
        m.d.comb += [store.addr.eq(posted), stamp.addr.eq(posted), stamp.data.eq(word.stamp),
                     store.data.eq(Cat(*[word.data] * (COMMAND_BYTES // 8))),
                     head.addr.eq(self.direct_taken), head_stamp.addr.eq(self.direct_taken),
                     self.present[direct].eq(level.any())]
        with m.If(self.take[direct]):
            m.d.sync += self.direct_taken.eq(self.direct_taken + 1)
        return head, head_stamp
