"""Link tester: a tile that fills one link with flits and checks those that come over it.

It is for campaigns of many flits on the engine. Flits are numbered; the payload of each is a
function of its number, its virtual channel and the seed. A link is one queue whatever the channels,
so each flit that arrives must have the next number: a larger one means that flits are lost, a
smaller one that they are doubled or out of order. Received flits are counted into buffers, checked,
and leave them at a rate of their own, which returns credits. Both ends of a link have equal seeds.

A refused word can still be read, since the payload says the number in several lanes: a flit whose
number was not on the wire before is a *first transmission* that was hit.

Latency law: a flit is sent in the cycle in which it is drawn; registers answer one cycle later.
"""

from dataclasses import dataclass, field

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.connect import connect
from hdl.fabric.arbiter import lowest_bit, one_hot_index
from hdl.layouts import CYCLE_BITS
from hdl.link.link import LinkEndpoint
from hdl.params import LinkParams
from hdl.ports import HostSignature, LinkSignature

__all__ = ["LinkTester", "LinkTesterParams", "LinkTesterSignature", "REGISTERS"]

#: Byte offsets of the registers.
REGISTERS = {name: 8 * index for index, name in enumerate((
    "count",      # rw: flits to send; writing it starts
    "seed",       # rw
    "send_rate",  # rw: of 256; a flit is sent in this share of cycles, if there is a credit
    "free_rate",  # rw: of 256; a flit leaves the buffers in this share of cycles
    "sent",       # flits sent
    "received",   # flits received
    "lost",       # numbers that did not come in their turn
    "doubled",    # flits that came behind their turn
    "corrupted",  # flits whose payload is not that of their number
    "overflow",   # flits that came to a full buffer
    "replays",    # flits sent again
    "refused",    # words refused
    "hit",        # first transmissions refused
    "first",      # cycle in which the first flit arrived
    "last",       # cycle in which the last flit arrived
    "state",      # bit 0: down; from bit 1: fault
))}
_LANE = 32
_GOLDEN = 0x9E3779B9
#: First transmissions in a row of which none can be read.
_MISSED = 256


@dataclass(frozen=True, kw_only=True)
class LinkTesterParams:
    """Parameters of a tester."""

    link: LinkParams = field(default_factory=LinkParams)


class LinkTesterSignature(wiring.Signature):
    """The tile of a link tester. ``host.completions`` is the total of flits received."""

    def __init__(self, params: LinkTesterParams) -> None:
        super().__init__({
            "now": In(CYCLE_BITS),
            "links": Out(LinkSignature(params.link)).array(1),
            "host": Out(HostSignature()),
            "idle": Out(1),
            "wake": Out(CYCLE_BITS),
        })


class LinkTester(wiring.Component):
    """A link tester.

    Parameters
    ----------
    params : LinkTesterParams
        Numbers count modulo 2^32 divided by the virtual channels, rounded up to a power of two.
    """

    def __init__(self, params: LinkTesterParams) -> None:
        self._params = params
        super().__init__(LinkTesterSignature(params))

    @property
    def params(self) -> LinkTesterParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        link = self._params.link
        m.submodules.endpoint = endpoint = LinkEndpoint(link)
        connect(m, endpoint.link, wiring.flipped(self.links[0]))
        registers = Signal(data.StructLayout(dict.fromkeys(REGISTERS, unsigned(48))))
        number_bits = _LANE - link.vc_bits
        occupied = Signal(link.vcs)
        sending = Signal()
        #: Draws, a xorshift generator; it stands still while there is nothing to draw for.
        draw = Signal(32, init=1)
        stirred = Signal(32)
        stirs = [Signal(32, name=f"stir{step}") for step in range(2)]
        m.d.comb += [
            stirs[0].eq(draw ^ draw << 13),
            stirs[1].eq(stirs[0] ^ stirs[0] >> 17),
            stirred.eq(stirs[1] ^ stirs[1] << 5),
            sending.eq(registers.sent != registers.count),
            endpoint.now.eq(self.now),
            endpoint.drained.eq(~occupied.any()),
        ]
        with m.If(sending | occupied.any()):
            m.d.sync += draw.eq(stirred)
        self._generate(m, endpoint, registers, sending, draw, number_bits)
        self._check(m, endpoint, registers, number_bits)
        self._free(m, endpoint, registers, occupied, draw)
        hears = Signal()
        self._watch(m, endpoint, registers, number_bits, hears)
        self._serve(m, endpoint, registers)
        m.d.comb += [
            self.idle.eq(endpoint.idle & ~sending & ~occupied.any() & ~hears
                         & ~self.host.read_valid),
            self.wake.eq(endpoint.wake),
        ]
        return m

    def _keys(self, seed: Value) -> list[Value]:
        """What is added to each lane of a payload."""
        return [seed[:_LANE].rotate_left(5 * lane) ^ ((lane + 1) * _GOLDEN & 0xFFFF_FFFF)
                for lane in range(self._params.link.flit_bits // _LANE)]

    def _generate(self, m: Module, endpoint: LinkEndpoint, registers: data.View, sending: Signal,
                  draw: Signal, number_bits: int) -> None:
        vcs = self._params.link.vcs
        above, chosen = Signal(vcs), Signal(vcs)
        out = endpoint.send.payload
        token = Signal(_LANE)
        m.d.comb += [
            above.eq(endpoint.available & ((1 << vcs) - 1 << draw[:3])),
            endpoint.send.valid.eq(sending & endpoint.available.any()
                                   & (draw[8:16] < registers.send_rate)),
        ]
        with m.If(endpoint.send.valid):
            m.d.comb += [
                chosen.eq(lowest_bit(Mux(above.any(), above, endpoint.available))),
                out.vc.eq(one_hot_index(chosen)),
                token.eq(Cat(registers.sent[:number_bits], out.vc)),
                out.payload.eq(Cat(token ^ key for key in self._keys(registers.seed))),
                out.head.eq(token[0]),
                out.tail.eq(token[1]),
                out.poison.eq(token[2]),
            ]
            m.d.sync += registers.sent.eq(registers.sent + 1)

    def _check(self, m: Module, endpoint: LinkEndpoint, registers: data.View,
               number_bits: int) -> None:
        arrived = endpoint.receive.payload
        keys = self._keys(registers.seed)
        token, number, awaited = Signal(_LANE), Signal(number_bits), Signal(number_bits)
        with m.If(endpoint.receive.valid):
            m.d.comb += [
                token.eq(arrived.payload[:_LANE] ^ keys[0]),
                number.eq(token[:number_bits]),
            ]
            m.d.sync += [
                awaited.eq(number + 1),
                registers.received.eq(registers.received + 1),
                registers.last.eq(self.now),
            ]
            with m.If(registers.received == 0):
                m.d.sync += registers.first.eq(self.now)
            with m.If(number != awaited):
                ahead = Signal(number_bits)
                m.d.comb += ahead.eq(number - awaited)
                with m.If(ahead[-1]):
                    m.d.sync += registers.doubled.eq(registers.doubled + 1)
                with m.Else():
                    m.d.sync += registers.lost.eq(registers.lost + ahead)
            with m.If((arrived.payload != Cat(token ^ key for key in keys))
                      | (arrived.vc != token[number_bits:])
                      | (Cat(arrived.head, arrived.tail, arrived.poison) != token[:3])):
                m.d.sync += registers.corrupted.eq(registers.corrupted + 1)

    def _free(self, m: Module, endpoint: LinkEndpoint, registers: data.View, occupied: Signal,
              draw: Signal) -> None:
        link = self._params.link
        held = [Signal(range(link.vc_depth + 1), name=f"held{vc}") for vc in range(link.vcs)]
        above, chosen = Signal(link.vcs), Signal(link.vcs)
        m.d.comb += [
            occupied.eq(Cat(level != 0 for level in held)),
            above.eq(occupied & ((1 << link.vcs) - 1 << draw[3:6])),
        ]
        with m.If(occupied.any() & (draw[16:24] < registers.free_rate)):
            m.d.comb += [
                chosen.eq(lowest_bit(Mux(above.any(), above, occupied))),
                endpoint.free.valid.eq(1),
                endpoint.free.payload.eq(one_hot_index(chosen)),
            ]
        arrives = endpoint.receive.valid
        with m.If(arrives | endpoint.free.valid):
            for vc, level in enumerate(held):
                comes = arrives & (endpoint.receive.payload.vc == vc)
                with m.If(comes & (level == link.vc_depth)):
                    m.d.sync += registers.overflow.eq(registers.overflow + 1)
                with m.Elif(comes ^ chosen[vc]):
                    m.d.sync += level.eq(Mux(comes, level + 1, level - 1))

    def _watch(self, m: Module, endpoint: LinkEndpoint, registers: data.View, number_bits: int,
               hears: Signal) -> None:
        """Look at all words, one cycle later: at what was on the wire, refused or not."""
        rx = endpoint.link.rx
        lanes = [Signal(_LANE, name=f"lane{lane}") for lane in range(3)]
        refused = Signal(32)
        m.d.sync += hears.eq(rx.strobe)
        with m.If(rx.strobe):
            m.d.sync += [lane.eq(rx.payload.word_select(index, _LANE) ^ key)
                         for index, (lane, key) in enumerate(
                             zip(lanes, self._keys(registers.seed), strict=False))]
        fresh, number, unseen = Signal(), Signal(number_bits), Signal(number_bits)
        # Two lanes may err alike: a number is fresh only if few others can have been missed.
        ahead = Signal(number_bits)
        with m.If(hears):
            agree = [lanes[a] == lanes[b] for a, b in ((0, 1), (0, 2), (1, 2))]
            m.d.comb += [
                number.eq(Mux(agree[0] | agree[1], lanes[0], lanes[1])),
                ahead.eq(number - unseen),
                fresh.eq((agree[0] | agree[1] | agree[2]) & (ahead < _MISSED)),
            ]
            m.d.sync += refused.eq(endpoint.refused)
            with m.If(fresh):
                m.d.sync += unseen.eq(number + 1)
                with m.If(refused != endpoint.refused):
                    m.d.sync += registers.hit.eq(registers.hit + 1)

    def _serve(self, m: Module, endpoint: LinkEndpoint, registers: data.View) -> None:
        host = self.host
        m.d.comb += [
            host.completions.eq(registers.received),
            registers.replays.eq(endpoint.replays),
            registers.refused.eq(endpoint.refused),
            registers.state.eq(Cat(endpoint.down, endpoint.fault)),
        ]
        m.d.sync += [host.read_valid.eq(host.valid & ~host.write), host.read_data.eq(0)]
        with m.If(host.valid):
            with m.If(host.write):
                for name in ("count", "seed", "send_rate", "free_rate"):
                    with m.If(host.address == REGISTERS[name]):
                        m.d.sync += registers[name].eq(host.data)
            with m.Else():
                with m.Switch(host.address):
                    for name, address in REGISTERS.items():
                        with m.Case(address):
                            m.d.sync += host.read_data.eq(registers[name])
