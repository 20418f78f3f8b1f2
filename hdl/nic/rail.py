"""A rail: one tx/rx DMA pair with a local router port and its own reducer.

::

    transfer ──► ┌────┐ ──► tx_read
    done     ◄── │ tx │ ──────► send ┌──────────────┐
                 └────┘              │ LinkEndpoint │ ◄─► local (router)
                   ▲ replies         └──────────────┘
    response ◄── ┌────┐ ◄── receive ─────┘
    increment◄── │ rx │ ──► rx_read, write
                 └────┘

Latency law: those of ``tx`` and ``rx``; a flit sent by tx is on the local pins one cycle later.

Flow control: tx and rx meet in one place only, the replies, which are promised a place before the
request is taken and leave on a class that always sinks. So tx blocked by the fabric never blocks
rx for good, and rx never waits for requests to be sent.
"""

from amaranth.hdl import Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.layouts import ADDRESS_BITS, NODE_BITS, RailActivity
from hdl.link.link import LinkEndpoint
from hdl.nic.interfaces import Response, Transfer, TransferDone
from hdl.nic.rx import Receiver
from hdl.nic.tx import Transmitter
from hdl.params import CardParams
from hdl.ports import LinkSignature, MemoryReadSignature, MemoryWriteSignature, ValidSignature

__all__ = ["Rail"]


class Rail(wiring.Component):
    """One rail of a card's NIC.

    Parameters
    ----------
    params : CardParams
    index : int
        Which of the card's rails.

    Members
    -------
    node, memory_bytes : inputs
        Straight from registers.
    transfer : ``In(stream.Signature(Transfer))``
    done : ``Out(ValidSignature(TransferDone))``
    response : ``Out(ValidSignature(Response))``
    increment : ``Out(ValidSignature(8))``
        A counter to add 1 to.
    sent, received : outputs
        The tail of a packet left, arrived; responses included.
    local : ``Out(LinkSignature(link))``
        To the router's local port.
    tx_read, rx_read, write : memory ports
    idle : ``Out(1)``
        With empty inputs nothing would change. Waiting for memory responses and for credits is
        idle; a transfer that is being offered is the offerer's to report.
    activity : ``Out(RailActivity)``

    All outputs are functions of registers.
    """

    def __init__(self, params: CardParams, index: int = 0) -> None:
        if not 0 <= index < params.rails:
            raise ValueError(f"index must be from 0 to {params.rails - 1}, not {index!r}")
        if params.link.classes < 2:
            raise ValueError("classes must be at least 2 (requests and responses), not "
                             f"{params.link.classes!r}")
        self.params = params
        self.index = index
        flit_bytes = params.link.flit_bytes
        super().__init__({
            "node": In(NODE_BITS),
            "memory_bytes": In(ADDRESS_BITS + 1),
            "transfer": In(stream.Signature(Transfer)),
            "done": Out(ValidSignature(TransferDone)),
            "response": Out(ValidSignature(Response)),
            "increment": Out(ValidSignature(unsigned(8))),
            "sent": Out(1),
            "received": Out(1),
            "local": Out(LinkSignature(params.link)),
            "tx_read": Out(MemoryReadSignature(flit_bytes)),
            "rx_read": Out(MemoryReadSignature(flit_bytes)),
            "write": Out(MemoryWriteSignature(flit_bytes)),
            "idle": Out(1),
            "activity": Out(RailActivity),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = LinkEndpoint(self.params.link, local=True)
        m.submodules.tx = tx = Transmitter(self.params, self.index)
        m.submodules.rx = rx = Receiver(self.params)
        m.d.comb += [
            tx.node.eq(self.node),
            tx.available.eq(link.available),
            rx.memory_bytes.eq(self.memory_bytes),
            self.sent.eq(tx.sent),
            self.received.eq(rx.received),
            self.idle.eq(tx.idle & rx.idle & link.idle),
            self.activity.tx.eq(tx.state), self.activity.slot.eq(tx.slot),
            self.activity.reply.eq(tx.reply_state), self.activity.rx.eq(rx.state),
        ]
        connect(m, link.link, wiring.flipped(self.local))
        connect(m, tx.send, link.send)
        connect(m, rx.reply, tx.reply)
        connect(m, rx.free, link.free)
        connect(m, link.receive, rx.receive)
        connect(m, wiring.flipped(self.transfer), tx.transfer)
        connect(m, tx.done, wiring.flipped(self.done))
        connect(m, tx.read, wiring.flipped(self.tx_read))
        connect(m, rx.read, wiring.flipped(self.rx_read))
        connect(m, rx.write, wiring.flipped(self.write))
        connect(m, rx.response, wiring.flipped(self.response))
        connect(m, rx.increment, wiring.flipped(self.increment))
        return m
