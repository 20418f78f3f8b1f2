"""Credits as monotonic totals: flow control of one direction of a link.

For each virtual channel (VC) two totals exist, both modulo ``2 ** total_bits``, which is above the
buffer depth, and both only ever growing::

    sent    flits that the sender has charged to the VC
    freed   flits that have left the receiver's buffer of the VC

The receiver tells ``freed``; the sender keeps what it heard last and may send while
``sent - freed < vc_depth``. A total on the wire is absolute: hearing it late, twice or not at all
neither leaks nor mints a credit.

Who guarantees what
-------------------
* The user of :class:`CreditSender` charges a VC only while its bit of ``available`` is set. The
  block then guarantees that no receive buffer ever overflows.
* The user of :class:`CreditReceiver` frees a VC once per flit that left its buffer. The block
  guarantees that every change is told, each changed VC within ``vcs`` accepted tells, and that
  nothing is told twice without a change, unless it is asked to.
* Neither guarantees anything about the other end's reset: both ends start together, or the link
  brings them up (see ``up`` of the link endpoint).

Latency law: a total learned in cycle ``t``, and a flit charged in ``t``, show in ``available`` at
``t + 1``. A flit freed in ``t`` can be told from ``t + 1``.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.fabric.arbiter import Arbiter, one_hot_index
from hdl.params import LinkParams
from hdl.ports import ValidSignature

__all__ = ["CreditReceiver", "CreditReceiverModel", "CreditSender", "CreditSenderModel",
           "credit_update"]


def credit_update(params: LinkParams) -> data.StructLayout:
    """Layout of one told total: the control slot of a link word."""
    return data.StructLayout({
        "vc": unsigned(params.vc_bits),
        "freed": unsigned(params.total_bits),
    })


class CreditSender(wiring.Component):
    """The sender's side: which VCs have room at the receiver.

    It keeps per VC ``sent`` and ``limit``, the total at which it must stop, which is the known
    ``freed`` plus the depth. ``limit - sent`` is from 0 to the depth, so a VC has room exactly if
    the two differ.

    Parameters
    ----------
    params : LinkParams
    roomy : bool
        Have the output of that name.

    Members
    -------
    charge : ``In(vcs)``
        Bit ``v`` charges one flit to VC ``v``.
    learn : ``In(ValidSignature(credit_update(params)))``
        A total told by the receiver.
    available : ``Out(vcs)``
        VCs with room, a function of registers.
    roomy : ``Out(vcs)``
        VCs with room for at least half the depth, likewise.
    """

    def __init__(self, params: LinkParams, *, roomy: bool = False) -> None:
        self._params, self._roomy = params, bool(roomy)
        members = {
            "charge": In(params.vcs),
            "learn": In(ValidSignature(credit_update(params))),
            "available": Out(params.vcs),
        }
        if roomy:
            members["roomy"] = Out(params.vcs)
        super().__init__(members)

    @property
    def params(self) -> LinkParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        totals = data.ArrayLayout(unsigned(params.total_bits), params.vcs)
        sent = Signal(totals)
        limit = Signal(totals, init=[params.vc_depth] * params.vcs)
        with m.If(self.charge.any()):
            m.d.sync += [sent[vc].eq(sent[vc] + self.charge[vc]) for vc in range(params.vcs)]
        with m.If(self.learn.valid):
            told = self.learn.payload
            m.d.sync += [limit[vc].eq(Mux(told.vc == vc, told.freed + params.vc_depth, limit[vc]))
                         for vc in range(params.vcs)]
        differences = data.View(totals, sent.as_value() ^ limit.as_value())
        m.d.comb += self.available.eq(Cat(differences[vc].any() for vc in range(params.vcs)))
        if self._roomy:
            m.d.comb += self.roomy.eq(Cat(
                (limit[vc] - sent[vc])[:params.total_bits] >= (params.vc_depth + 1) // 2
                for vc in range(params.vcs)))
        return m


class CreditReceiver(wiring.Component):
    """The receiver's side: totals of freed flits, and which of them the sender must still hear.

    Parameters
    ----------
    params : LinkParams
        A reliable link can lose what was told: its receiver has ``refresh`` and ``retell``.

    Members
    -------
    free : ``In(vcs)``
        Bit ``v``: one flit has left the buffer of VC ``v``.
    tell : ``Out(ValidSignature(credit_update(params)))``
        A total that changed since it was last told; round robin among them. A function of
        registers.
    told : ``In(1)``
        ``tell`` is on its way.
    refresh : ``In(1)``
        The total of one VC, the next at every refresh, must be told again.
    retell : ``In(1)``
        All totals must be told again.
    """

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        members = {
            "free": In(params.vcs),
            "tell": Out(ValidSignature(credit_update(params))),
            "told": In(1),
        }
        if params.reliable:
            members |= {"refresh": In(1), "retell": In(1)}
        super().__init__(members)

    @property
    def params(self) -> LinkParams:
        return self._params

    def elaborate(self, platform: object) -> Module:
        m = Module()
        params = self._params
        freed = Signal(data.ArrayLayout(unsigned(params.total_bits), params.vcs))
        changed = Signal(params.vcs)

        m.submodules.arbiter = arbiter = Arbiter(params.vcs)
        m.d.comb += [
            arbiter.request.eq(changed),
            arbiter.accept.eq(self.told),
            self.tell.valid.eq(changed.any()),
            self.tell.payload.vc.eq(one_hot_index(arbiter.grant)),
            self.tell.payload.freed.eq(freed[self.tell.payload.vc]),
        ]

        # A flit freed while its total is being told is not in what is told: it stays changed.
        again = 0
        if params.reliable:
            turn = Signal(params.vcs, init=1)
            again = Mux(self.retell, (1 << params.vcs) - 1, Mux(self.refresh, turn, 0))
            with m.If(self.refresh):
                m.d.sync += turn.eq(turn.rotate_left(1))
        m.d.sync += changed.eq(changed & ~Mux(self.told, arbiter.grant, 0) | self.free | again)
        with m.If(self.free.any()):
            m.d.sync += [freed[vc].eq(freed[vc] + self.free[vc]) for vc in range(params.vcs)]
        return m


class CreditSenderModel:
    """Reference model of :class:`CreditSender`, in unbounded integers."""

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        self.sent = [0] * params.vcs
        self.freed = [0] * params.vcs

    @property
    def available(self) -> int:
        """Mask of the VCs with room."""
        return sum(1 << vc for vc in range(self._params.vcs)
                   if self.sent[vc] - self.freed[vc] < self._params.vc_depth)

    def charge(self, vc: int) -> None:
        self.sent[vc] += 1

    def learn(self, vc: int, freed: int) -> None:
        """Hear a total: the next true total that it can stand for."""
        self.freed[vc] += (freed - self.freed[vc]) % (1 << self._params.total_bits)


class CreditReceiverModel:
    """Reference model of :class:`CreditReceiver`, in unbounded integers."""

    def __init__(self, params: LinkParams) -> None:
        self._params = params
        self.freed = [0] * params.vcs
        self._changed = [False] * params.vcs
        self._last = params.vcs - 1
        self._turn = 0

    @property
    def tell(self) -> tuple[int, int] | None:
        """(VC, total on the wire) of the total to tell next, if any."""
        for step in range(1, self._params.vcs + 1):
            vc = (self._last + step) % self._params.vcs
            if self._changed[vc]:
                return vc, self.freed[vc] % (1 << self._params.total_bits)
        return None

    def free(self, vc: int) -> None:
        self.freed[vc] += 1
        self._changed[vc] = True

    def retell(self) -> None:
        self._changed = [True] * self._params.vcs

    def refresh(self) -> None:
        self._changed[self._turn] = True
        self._turn = (self._turn + 1) % self._params.vcs

    def told(self) -> None:
        """What :attr:`tell` says is on its way."""
        if (update := self.tell) is not None:
            self._last = update[0]
            self._changed[update[0]] = False
