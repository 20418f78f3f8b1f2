"""Small tiles with the signatures of the real ones: enough traffic of every kind to test an engine.

The network tile sends flits read from memory to a link port, passes on those that have hops left,
writes the others to memory, sets timers, notes when a link goes up or down, and asks the compute
tile for copies. The switch tile passes flits on from one port to another. Links have no credits: a
test sends no more than the queues hold.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered

from hdl.layouts import CYCLE_BITS, link_word
from hdl.params import CardParams, SwitchParams
from hdl.ports import ComputeSignature, NetworkSignature, SwitchSignature

__all__ = ["BASE", "COMPLETIONS", "COPY", "FETCH", "FETCHED", "NODE", "PASSED", "RECEIVED", "SEND",
           "SIGNAL", "STAMP", "STARTED", "TIMER", "TURN", "ToyComputeTile", "ToyNetworkTile",
           "ToySwitchTile", "send_word"]

(NODE, BASE, RECEIVED, SEND, TIMER, STAMP, COPY, STARTED, FETCH, FETCHED, COMPLETIONS,
 SIGNAL) = range(0x00, 0x60, 8)
#: Of the switch: the port to which a flit turns is the one it came by, exclusive-or this; and how
#: many flits have passed.
TURN, PASSED = 0x08, 0x10
_NEVER = (1 << CYCLE_BITS) - 1
_DEPTH = 64


def send_word(*, index: int, count: int, port: int, hops: int = 0) -> int:
    """Value for the SEND register: ``count`` flits from flit ``index`` on through ``port``."""
    return count | port << 16 | hops << 20 | index << 32


class ToyNetworkTile(wiring.Component):
    """Sender, forwarder, receiver, timer."""

    def __init__(self, params: CardParams) -> None:
        self.params = params
        super().__init__(NetworkSignature(params))

    def elaborate(self, platform):
        m = Module()
        params, host = self.params, self.host
        word = link_word(params.link)
        bits = params.link.flit_bits
        links = params.router.links
        tx_read, rx_read, write = (getattr(self.memory[0], name)
                                   for name in ("tx_read", "rx_read", "write"))
        base, received, stamp = Signal(32), Signal(32), Signal(CYCLE_BITS)
        started, fetched = Signal(CYCLE_BITS), Signal(64)
        completions = Signal(32)
        m.d.comb += host.completions.eq(completions)
        # Links that are up, and the cycle in which that changed last.
        ups, signal = Signal(links), Signal(CYCLE_BITS)
        pins = Cat(link.up for link in self.links)
        m.d.sync += ups.eq(pins)
        with m.If(ups != pins):
            m.d.sync += signal.eq(self.now)

        # Host registers.
        posted = host.valid & host.write
        m.d.sync += host.read_valid.eq(host.valid & ~host.write)
        with m.Switch(host.address):
            for address, value in ((NODE, self.config.node), (BASE, base), (RECEIVED, received),
                                   (STAMP, stamp), (STARTED, started), (FETCHED, fetched),
                                   (COMPLETIONS, completions), (SIGNAL, Cat(signal, ups))):
                with m.Case(address):
                    m.d.sync += host.read_data.eq(value)
            with m.Default():
                m.d.sync += host.read_data.eq(0)
        with m.If(posted & (host.address == BASE)):
            m.d.sync += base.eq(host.data)

        # Sends wait in a queue; their flits are read one by one into another.
        m.submodules.sends = sends = SyncFIFOBuffered(width=64, depth=8)
        m.submodules.flits = flits = SyncFIFOBuffered(width=bits + 1, depth=_DEPTH)
        m.d.comb += [sends.w_data.eq(host.data), sends.w_en.eq(posted & (host.address == SEND))]
        count, port, hops, index = (sends.r_data[:16], sends.r_data[16:20], sends.r_data[20:24],
                                    sends.r_data[32:64])
        asked, taken, sent = Signal(16), Signal(16), Signal(16)
        request = tx_read.request
        m.d.comb += [flits.w_data.eq(tx_read.response.payload.data),
                     flits.w_en.eq(tx_read.response.valid)]
        room = (asked - sent)[:16] < _DEPTH - 2
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(sends.r_rdy & (asked != count) & room & (~request.valid | request.ready)):
            m.d.sync += [request.valid.eq(1), request.payload.index.eq(index + asked),
                         request.payload.tag.eq(asked), asked.eq(asked + 1)]
        last = Signal()
        m.d.comb += last.eq(sends.r_rdy & (taken == count))
        with m.If(last):
            m.d.comb += sends.r_en.eq(1)
            m.d.sync += [asked.eq(0), taken.eq(0), sent.eq(0)]

        # Arrivals: one queue per link. A flit with hops left goes straight on.
        busy = sends.r_rdy | flits.r_rdy | request.valid & request.ready
        arrivals = []
        for link in range(links):
            m.submodules[f"arrivals{link}"] = queue = SyncFIFOBuffered(
                width=word.size, depth=_DEPTH)
            rx = self.links[link].rx
            m.d.comb += [queue.w_data.eq(rx.as_value()), queue.w_en.eq(rx.strobe & rx.valid)]
            arrivals.append(queue)
        heads = [word(queue.r_data) for queue in arrivals]
        for link in range(links):
            tx, straight = self.links[link].tx, arrivals[link ^ 1]
            m.d.sync += [tx.strobe.eq(0), tx.valid.eq(0)]
            with m.If(straight.r_rdy & (heads[link ^ 1].seq != 0)):
                m.d.comb += straight.r_en.eq(1)
                m.d.sync += [tx.eq(heads[link ^ 1]), tx.seq.eq(heads[link ^ 1].seq - 1)]
            with m.Elif(flits.r_rdy & sends.r_rdy & (port == link) & ~last):
                m.d.comb += flits.r_en.eq(1)
                m.d.sync += [tx.eq(0), tx.payload.eq(flits.r_data), tx.strobe.eq(1),
                             tx.valid.eq(1), tx.seq.eq(hops), tx.head.eq(taken == 0),
                             tx.tail.eq(taken == count - 1), taken.eq(taken + 1), sent.eq(sent + 1)]
            busy |= tx.strobe

        # The others go to memory, lowest link first; a tail completes.
        place = Signal(2)
        with m.If(write.request.ready):
            m.d.sync += write.request.valid.eq(0)
        free = ~write.request.valid | write.request.ready
        earlier = Const(0)
        finish = Signal()
        for link in range(links):
            wants = arrivals[link].r_rdy & (heads[link].seq == 0)
            with m.If(wants & free & ~earlier):
                m.d.comb += [arrivals[link].r_en.eq(1), finish.eq(heads[link].tail)]
                m.d.sync += [write.request.valid.eq(1),
                             write.request.payload.data.eq(heads[link].payload),
                             write.request.payload.mask.eq(Mux(place == 3, 0x0f0f, -1)),
                             write.request.payload.index.eq(base + received),
                             received.eq(received + 1), place.eq(place + 1)]
            earlier = earlier | wants
        for queue in arrivals:
            busy |= queue.level != 0

        # A fetch reads one flit through the other read port.
        m.d.comb += rx_read.request.payload.tag.eq(5)
        with m.If(rx_read.request.ready):
            m.d.sync += rx_read.request.valid.eq(0)
        with m.If(posted & (host.address == FETCH)):
            m.d.sync += [rx_read.request.valid.eq(1), rx_read.request.payload.index.eq(host.data)]
        answered = rx_read.response.valid & (rx_read.response.payload.tag == 5)
        with m.If(answered):
            m.d.sync += fetched.eq(rx_read.response.payload.data)

        # Timer and copies.
        armed, deadline = Signal(), Signal(CYCLE_BITS)
        expired = armed & (self.now >= deadline)
        with m.If(expired):
            m.d.sync += [armed.eq(0), stamp.eq(self.now)]
        with m.If(posted & (host.address == TIMER)):
            m.d.sync += [armed.eq(1), deadline.eq(host.data)]
        with m.If(self.gemm.ready):
            m.d.sync += self.gemm.valid.eq(0)
        with m.If(posted & (host.address == COPY)):
            m.d.sync += [self.gemm.valid.eq(1), self.gemm.payload.descriptor.eq(host.data),
                         self.gemm.payload.slot.eq(host.data[:4])]
        m.d.sync += self.done.ready.eq(1)
        done = self.done.valid & self.done.ready
        with m.If(done):
            m.d.sync += started.eq(self.done.payload.started)
        m.d.sync += completions.eq(completions + finish + expired + done + answered)
        busy |= (sends.level != 0) & ((asked != count) & room | last) | (flits.level != 0)
        busy |= host.read_valid | write.request.valid | rx_read.request.valid | self.gemm.valid
        busy |= request.valid | ~self.done.ready
        m.d.comb += [self.idle.eq(~busy), self.wake.eq(Mux(armed, deadline, _NEVER)),
                     self.activity.commands.started.tag.eq(received),
                     self.activity.queues.counter.eq(armed),
                     self.activity.rails[0].rx.eq(place),
                     self.activity.starved.eq(Cat(link.tx.valid for link in self.links))]
        return m


class ToyComputeTile(wiring.Component):
    """Copies the flit at a descriptor's address to the next flit."""

    def __init__(self, params: CardParams) -> None:
        self.params = params
        super().__init__(ComputeSignature(params))

    def elaborate(self, platform):
        m = Module()
        shift = (self.params.link.flit_bytes - 1).bit_length()
        read, write, done = self.read[0], self.write.request, self.done
        index = Signal(32)
        with m.FSM(name="copy") as fsm:
            with m.State("Take"):
                m.d.comb += self.gemm.ready.eq(1)
                with m.If(self.gemm.valid):
                    m.d.sync += [index.eq(self.gemm.payload.descriptor >> shift),
                                 done.payload.slot.eq(self.gemm.payload.slot),
                                 done.payload.started.eq(self.now)]
                    m.next = "Read"
            with m.State("Read"):
                m.d.comb += [read.request.valid.eq(1), read.request.payload.index.eq(index)]
                with m.If(read.request.ready):
                    m.next = "Wait"
            with m.State("Wait"):
                with m.If(read.response.valid):
                    m.d.sync += [write.payload.data.eq(read.response.payload.data),
                                 write.payload.mask.eq(-1), write.payload.index.eq(index + 1)]
                    m.next = "Write"
            with m.State("Write"):
                m.d.comb += write.valid.eq(1)
                with m.If(write.ready):
                    m.next = "Done"
            with m.State("Done"):
                m.d.comb += done.valid.eq(1)
                with m.If(done.ready):
                    m.next = "Take"
            take, wait = fsm.ongoing("Take"), fsm.ongoing("Wait")
        m.d.comb += self.activity.gemm.phase.eq(Mux(take, 0, Mux(wait, 1, 2)))
        m.d.comb += [self.idle.eq(take | wait), self.wake.eq(_NEVER)]
        return m


class ToySwitchTile(wiring.Component):
    """Passes flits on, a cycle after their arrival; it has no memory and one tile."""

    def __init__(self, params: SwitchParams) -> None:
        self.params = params
        super().__init__(SwitchSignature(params))

    def elaborate(self, platform):
        m = Module()
        host = self.host
        turn, passed = Signal(range(self.params.radix), init=1), Signal(32)
        m.d.sync += [host.read_valid.eq(host.valid & ~host.write),
                     host.read_data.eq(Mux(host.address == NODE, self.node, passed))]
        with m.If(host.valid & host.write & (host.address == TURN)):
            m.d.sync += turn.eq(host.data)
        words = [link.rx for link in self.links]
        m.d.sync += passed.eq(passed + sum(word.strobe & word.valid for word in words))
        for port, link in enumerate(self.links):
            m.d.sync += [link.tx.strobe.eq(0), link.tx.valid.eq(0)]
            for came, word in enumerate(words):
                with m.If((turn == came ^ port) & word.strobe & word.valid):
                    m.d.sync += link.tx.eq(word)
        m.d.comb += [self.idle.eq(~(Cat(link.tx.strobe for link in self.links).any()
                                    | host.read_valid)),
                     self.wake.eq(_NEVER), self.activity.starved.eq(passed)]
        return m
