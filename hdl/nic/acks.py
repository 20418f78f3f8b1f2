"""Acknowledgements: which of a rail's transfers are complete, and how the others failed.

Sent packets and answers are totals per slot that are never reset: equal totals mean that nothing is
owed, whatever order sends and answers come in. Only the end of a transfer that is not waited for
any more leaves them apart; they are made equal before its slot is given back.

Latency law: combinational from an event to the completion of its slot; totals follow a cycle later.

Flow-control invariant: events are never refused.
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hdl.layouts import NODE_BITS, Status
from hdl.nic.interfaces import Response, TransferDone
from hdl.nic.totals import Totals
from hdl.ports import ValidSignature

__all__ = ["AckTracker", "Failure"]


class Failure(data.Struct):
    """How a command failed after its dispatch, and where."""

    status: Status
    peer: NODE_BITS
    link: 8


class AckTracker(wiring.Component):
    """One rail's transfers: which are complete, and the first error of each.

    Members
    -------
    transfer_done : ``In(ValidSignature(TransferDone))``
    response : ``In(ValidSignature(Response))``
        Those without ``ack``, or of another generation than their slot's, are not looked at.
    generations : ``In(data.ArrayLayout(3, slots))``
    expired : ``In(slots)``
        Slots whose transfer is not waited for any more.
    settle : ``In(slots)``
        One-hot or 0: make the totals of this slot, number ``settled``, equal. Only in cycles
        without done and response.
    settled : ``In(4)``
    ack : ``In(slots)``
        Slots whose transfer asks for responses.
    failed : ``In(slots)``
        Slots that have failed already.
    completed, fails : ``Out(slots)``
        Slots for which that happens in this cycle.
    index : ``In(4)``
    failure : ``Out(Failure)``
        The first error of slot ``index``, if it failed.
    """

    def __init__(self, *, slots: int) -> None:
        super().__init__({
            "transfer_done": In(ValidSignature(TransferDone)),
            "response": In(ValidSignature(Response)),
            "generations": In(data.ArrayLayout(unsigned(3), slots)),
            "expired": In(slots), "settle": In(slots), "settled": In(4),
            "ack": In(slots), "failed": In(slots),
            "completed": Out(slots), "fails": Out(slots),
            "index": In(4), "failure": Out(Failure),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        slots = len(self.ack)
        done, response = self.transfer_done.payload, self.response.payload

        m.submodules.answers = answers = Totals(depth=slots, reads=1)
        m.submodules.packets = packets = Totals(depth=slots, reads=1)
        m.submodules.failures = failures = Memory(shape=Failure, depth=slots, init=[])
        answered, owed = answers.reads[0], packets.reads[0]
        m.d.comb += [answers.index.eq(response.slot), answers.amount.eq(1),
                     packets.index.eq(done.slot), packets.amount.eq(done.packets),
                     answered.index.eq(done.slot), owed.index.eq(response.slot)]
        with m.If(self.settle.any()):
            m.d.comb += [
                answers.index.eq(self.settled), answers.add.eq(1),
                answers.amount.eq(owed.total - answered.total),
                answered.index.eq(self.settled), owed.index.eq(self.settled)]

        #: Slots whose transfer has been sent and waits for answers.
        sent = Signal(slots)
        by_done, by_response, now_sent = Signal(slots), Signal(slots), Signal(slots)
        last, counts = Signal(), Signal()
        m.d.comb += last.eq(answers.sum == owed.total)
        with m.If(self.response.valid & response.ack
                  & (self.generations[response.slot] == response.generation)):
            m.d.comb += [counts.eq(1), answers.add.eq(1)]
            m.d.comb += by_response.eq(Mux(last, sent & (1 << response.slot), 0))
        with m.If(self.transfer_done.valid):
            current = Signal(32)
            m.d.comb += current.eq(
                answered.total + (counts & (response.slot == done.slot)))
            with m.If(~self.ack.bit_select(done.slot, 1)):
                m.d.comb += by_done.eq(1 << done.slot)
            with m.Else():
                m.d.comb += packets.add.eq(1)
                with m.If(current == packets.sum):
                    m.d.comb += by_done.eq(1 << done.slot)
                with m.Else():
                    m.d.comb += now_sent.eq(1 << done.slot)
        with m.If(self.response.valid | self.transfer_done.valid | self.settle.any()):
            m.d.sync += sent.eq((sent | now_sent) & ~by_response & ~self.settle)
        m.d.comb += self.completed.eq((by_done | by_response) & ~self.expired)

        fail = failures.write_port()
        with m.If(counts & (response.status != Status.OK)):
            m.d.comb += self.fails.eq(~self.failed & (1 << response.slot))
        m.d.comb += [fail.en.eq(self.fails.any()), fail.addr.eq(response.slot),
                     fail.data.status.eq(response.status), fail.data.peer.eq(response.peer),
                     fail.data.link.eq(response.link)]
        look = failures.read_port(domain="comb")
        m.d.comb += [look.addr.eq(self.index), self.failure.eq(look.data)]
        return m
