"""The GEMM engine: C = A · B in FP8 with exact accumulation, one rounding to FP32.

::

    memory ══► loader ─► panel ─┐
       (one per panel port)     ├─► array ─► store ══► memory
    memory ══► loader ─► panel ─┘     ▲
                            ▲         │
    descriptor ──► sequencer ─────────┘

**Order.** C is done in blocks of ``height`` × ``height``, ``height`` being 32 or twice the array;
blocks row by row, tiles of ``array`` × ``array`` within a block row by row, and the whole of K for
each tile: sums never leave the array before they are final, so there is one rounding and no partial
result in memory.

**Bandwidth.** For K up to the panel's 1024 columns a block takes t² · K cycles, t = height ÷ array,
at least 2. Each panel of B (``flit_bytes`` columns of B wide, its own port for arrays of 16 up)
needs K flits in that time, or 2 · K if B is k×n and not aligned to flits; a panel of A needs K, but
only when the block row changes. So ports are busy a quarter of the time, at most half of it. Below
16, two panels share a port, but t is 4 or 8. Loading runs ahead chunk by chunk as the last tile of
a block frees the ring, so neither changes of panels nor the memory's latency cost cycles. K above
1024 streams both operands once per tile, one flit per cycle and port: full rate if aligned, half if
B is k×n and is not.

C leaves at size² ÷ lanes cycles per tile, lanes = array ÷ 4 up to a flit: hidden behind the next
tile while K ≥ 4 · array (8 · array for an array of 64, where the one write flit per cycle is the
limit of the machine).

**Lost cycles** of a GEMM: the descriptor (two memory latencies with the first columns), the first
chunk, the last tile's rounding and writing. See ``docs/gemm.md`` for the figures.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from ..connect import connect
from ..layouts import ADDRESS_BITS, CYCLE_BITS, Format, GemmActivity, GemmPhase, Status
from ..params import CardParams
from ..ports import GemmDone, GemmRequest, MemoryReadSignature, MemoryWriteSignature
from .array import Array
from .descriptor import DescriptorReader
from .fp8 import E4M3, E5M2
from .loader import Loader
from .merge import ReadMerge
from .panel import COLUMNS, Panel
from .sequencer import Sequencer
from .store import Store

__all__ = ["GemmEngine"]


class GemmEngine(wiring.Component):
    """One GEMM at a time, from its descriptor in memory.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    now : ``In(CYCLE_BITS)``
    memory_bytes : ``In(ADDRESS_BITS + 1)``
    gemm : ``In(stream.Signature(GemmRequest))``
    done : ``Out(stream.Signature(GemmDone))``
        After memory has accepted the last result.
    read : ``Out(MemoryReadSignature).array(read_ports)``
    write : ``Out(MemoryWriteSignature)``
    active : ``Out(1)``
        Something changes even without input.
    activity : ``Out(GemmActivity)``
        A function of registers.
    """

    def __init__(self, params: CardParams) -> None:
        self._params = params
        flit_bytes = params.link.flit_bytes
        super().__init__({
            "now": In(CYCLE_BITS), "memory_bytes": In(ADDRESS_BITS + 1),
            "gemm": In(stream.Signature(GemmRequest)), "done": Out(stream.Signature(GemmDone)),
            "read": Out(MemoryReadSignature(flit_bytes)).array(params.compute.read_ports),
            "write": Out(MemoryWriteSignature(flit_bytes)), "active": Out(1),
            "activity": Out(GemmActivity)})

    @property
    def params(self) -> CardParams:
        return self._params

    def elaborate(self, platform) -> Module:
        m = Module()
        size, ports = self._params.compute.array, self._params.compute.read_ports
        lanes = self._params.link.flit_bytes
        panels = max(1, ports // 2)
        height = panels * lanes
        rows = min(size, lanes)
        in_flight = 1 << (self._params.memory.latency + 31).bit_length()

        m.submodules.descriptor_reader = reader = DescriptorReader(lanes)
        m.submodules.sequencer = sequencer = Sequencer(
            lanes=lanes, array=size, height=height, panels=panels)
        m.submodules.array = array = Array(size)
        m.submodules.store = store = Store(size=size, flit_bytes=lanes)
        given = reader.descriptor
        connect(m, store.write, flipped(self.write))

        # The plan, worked out while the descriptor was checked.
        start = Signal()
        whole = Signal()
        blocks = {}
        for name, count in (("m", given.m), ("n", given.n)):
            blocks[name] = Signal(32, name=f"blocks_{name}")
            m.d.sync += blocks[name].eq(Mux(whole, (count + height - 1) // height,
                                            (count + size - 1) // size))
        plan = sequencer.plan
        lsb = Signal(signed(9))
        a_e5m2, b_e5m2 = given.a_format == Format.E5M2, given.b_format == Format.E5M2
        m.d.sync += [whole.eq(given.k <= COLUMNS), lsb.eq(
            Mux(a_e5m2, E5M2.lsb, E4M3.lsb) + Mux(b_e5m2, E5M2.lsb, E4M3.lsb))]
        m.d.comb += [
            plan.m.eq(given.m), plan.n.eq(given.n), plan.k.eq(given.k), plan.c.eq(given.c),
            plan.pitch.eq(given.ldc), plan.whole.eq(whole), sequencer.start.eq(start),
            array.a_e5m2.eq(a_e5m2), array.b_e5m2.eq(b_e5m2),
            store.pitch.eq(given.ldc), store.lsb.eq(lsb)]

        # Two sides of panels, each with its loader.
        loaders: dict[str, list[Loader]] = {"a": [], "b": []}
        one_panel = whole & (given.n <= height)
        walks = {
            "a": {"base": given.a, "pitch": given.lda, "rows": given.m, "direct": 0,
                  "outer": 1, "inner": Mux(whole, 1, blocks["n"])},
            "b": {"base": given.b, "pitch": given.ldb, "rows": given.n,
                  "direct": ~given.b_transposed,
                  "outer": Mux(one_panel, 1, blocks["m"]), "inner": 1}}
        for side in "ab":
            columns = []
            for number in range(panels):
                loader = Loader(lanes=lanes, array=size, height=height, number=number,
                                in_flight=in_flight)
                panel = Panel(lanes=lanes, rows=rows)
                m.submodules[f"loader_{side}_{number}"] = loader
                m.submodules[f"panel_{side}_{number}"] = panel
                m.d.comb += [loader.start.eq(start & given.k.any()),
                             loader.walk.k.eq(given.k), loader.walk.whole.eq(whole),
                             loader.freed.eq(getattr(sequencer, f"{side}_freed")),
                             getattr(sequencer, f"{side}_available")[number].eq(loader.available),
                             panel.place.eq(loader.place), panel.write.eq(loader.write)]
                for field, value in walks[side].items():
                    m.d.comb += loader.walk[field].eq(value)
                loaders[side].append(loader)
                columns.append(panel)
            self._join(m, side, columns, sequencer, array, rows)

        # Columns are two cycles behind the sequencer.
        step = [Signal.like(sequencer.step, name=f"step_{stage}") for stage in range(2)]
        valid = Signal(2)
        m.d.sync += [step[0].eq(sequencer.step), step[1].eq(step[0]),
                     valid.eq(Cat(sequencer.go, valid))]
        m.d.comb += [array.step.eq(step[1]), array.valid.eq(valid[1])]

        m.d.comb += [
            store.tile.eq(sequencer.tile), store.book.eq(sequencer.book),
            sequencer.free.eq(store.free), store.captured.eq(array.captured),
            store.drained.eq(array.drained), store.nans.eq(array.nans),
            array.shift.eq(store.shift)]

        # Ports: one per panel, or one for both; the descriptor comes through the first.
        everyone = loaders["a"] + loaders["b"]
        first = [reader.read, everyone[0].read] + ([everyone[1].read] if ports == 1 else [])
        m.submodules.merge = merge = ReadMerge(count=len(first), flit_bytes=lanes)
        for index, port in enumerate(first):
            connect(m, port, merge.readers[index])
        connect(m, merge.port, flipped(self.read[0]))
        for index in range(1, ports):
            connect(m, everyone[index].read, flipped(self.read[index]))

        # One request at a time.
        done = self.done.payload
        address, working, phase = Signal(ADDRESS_BITS), Signal(), Signal(GemmPhase)
        m.d.comb += [self.activity.phase.eq(phase), self.activity.slot.eq(done.slot),
                     reader.memory_bytes.eq(self.memory_bytes), reader.address.eq(address)]
        with m.FSM(name="engine"):
            with m.State("REST"):
                m.d.comb += self.gemm.ready.eq(1)
                with m.If(self.gemm.valid):
                    m.d.sync += [address.eq(self.gemm.payload.descriptor),
                                 done.slot.eq(self.gemm.payload.slot), done.started.eq(self.now)]
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += [reader.start.eq(1), working.eq(1), phase.eq(GemmPhase.FETCH)]
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += phase.eq(GemmPhase.FETCH)
                with m.If(reader.done):
                    m.d.sync += done.status.eq(Mux(reader.refused, Status.BAD_DESCRIPTOR,
                                                   Status.OK))
                    m.next = "START"
                    with m.If(reader.refused | ~given.m.any() | ~given.n.any()):
                        m.next = "DONE"
            with m.State("START"):
                m.d.comb += [start.eq(1), working.eq(1), phase.eq(GemmPhase.FETCH)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [working.eq(~sequencer.busy & store.empty), phase.eq(Mux(
                    ~sequencer.busy, GemmPhase.STORE, Mux(
                        sequencer.go, GemmPhase.MULTIPLY, Mux(
                            sequencer.ready, GemmPhase.DRAIN, GemmPhase.LOAD))))]
                with m.If(~sequencer.busy & store.empty):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += [self.done.valid.eq(1), working.eq(1), phase.eq(GemmPhase.DONE)]
                with m.If(self.done.ready):
                    m.next = "REST"
        m.d.comb += self.active.eq(
            working | reader.active | merge.active | sequencer.active | valid.any() | array.active
            | store.active | Cat(loader.active for loader in everyone).any())
        return m

    @staticmethod
    def _join(m: Module, side: str, panels: list[Panel], sequencer: Sequencer, array: Array,
              rows: int) -> None:
        """Read the panels that hold the sequencer's tile, and give their columns to the array."""
        position, tile = (getattr(sequencer, f"{side}_{what}") for what in ("position", "tile"))
        codes = getattr(array, side)
        size = len(codes) // 8
        per_tile = size // rows  # panels that hold one tile
        within = len(panels[0].first_row) if panels[0].lanes > rows else 0
        group = tile[within:]
        groups = len(panels) // per_tile
        chosen = []
        for number, panel in enumerate(panels):
            mine = sequencer.go & ((group == number // per_tile) if groups > 1 else 1)
            m.d.comb += [panel.position.eq(position), panel.read.eq(mine),
                         panel.first_row.eq(tile[:within] if within else 0)]
            chosen.append(panel.column)
        words = [Cat(chosen[index * per_tile:(index + 1) * per_tile]) for index in range(groups)]
        if groups == 1:
            m.d.comb += codes.eq(words[0])
            return
        turn = [Signal(range(groups), name=f"{side}_group_{stage}") for stage in range(2)]
        m.d.sync += [turn[0].eq(group), turn[1].eq(turn[0])]
        for index, word in enumerate(words):
            with m.If(turn[1] == index):
                m.d.comb += codes.eq(word)
