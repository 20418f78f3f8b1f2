"""Takes finished tiles out of the array, rounds them, and writes them to memory.

    drain registers ─row─► row register ─group─► exact sum ─► rounding ─► packer ─► write port

A row leaves the array at once and is rounded in groups of ``lanes`` results per cycle. The packer
joins groups to whole flits: C is aligned to 4 bytes only, so a row may begin and end within a flit.

Everything from the row register on moves as one pipeline, which stands still while the write port
has not taken a flit.

Flow control: the sequencer books the drain registers (``book``) with the last column of a tile, and
only while ``free``; they are free again as soon as the tile's last row has left them, which is
size² ÷ lanes cycles after the capture: as long as K is above that, the array never waits.

Timing: captured in cycle t, the first row's first flit is offered in t + 9 at the earliest.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..layouts import ADDRESS_BITS
from ..ports import MemoryWriteSignature
from .fp32 import FixedToFp32
from .pe import HIGH_BITS, Sum

__all__ = ["Store", "store_lanes", "tile_layout"]


def store_lanes(size: int, flit_bytes: int) -> int:
    """Results rounded per cycle: a flit at most, and one tile in about 4 × size cycles."""
    return min(size // 4, flit_bytes // 4)


def tile_layout(size: int) -> data.StructLayout:
    """A tile of C: where it goes, and how much of it is C."""
    count = unsigned(size.bit_length())
    return data.StructLayout({"address": unsigned(ADDRESS_BITS), "rows": count, "columns": count})


class Store(wiring.Component):
    """From drain registers to memory.

    Parameters
    ----------
    size : int
        Rows and columns of the array.
    flit_bytes : int

    Members
    -------
    pitch : ``In(32)``
        Bytes between rows of C.
    lsb : ``In(signed(9))``
        Exponent of the unit of the sums.
    tile : ``In(tile_layout(size))``
    book : ``In(1)``
        This tile's last column is on its way; only while ``free``.
    free : ``Out(1)``
    captured, drained, nans, shift : to the array
    write : ``Out(MemoryWriteSignature)``
    empty : ``Out(1)``
        Nothing booked, nothing on its way: memory has taken every result.
    active : ``Out(1)``
    """

    def __init__(self, *, size: int, flit_bytes: int) -> None:
        self._size, self._flit_bytes = size, flit_bytes
        super().__init__({
            "pitch": In(32), "lsb": In(signed(9)), "tile": In(tile_layout(size)), "book": In(1),
            "free": Out(1, init=1), "captured": In(1),
            "drained": In(data.ArrayLayout(Sum, size)), "nans": In(size), "shift": Out(1),
            "write": Out(MemoryWriteSignature(flit_bytes)), "empty": Out(1), "active": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        size, request = self._size, self.write.request
        lanes = store_lanes(size, self._flit_bytes)
        words = self._flit_bytes // 4
        place_bits = (words - 1).bit_length()
        advance, flush = Signal(), Signal()
        port_free = Signal()
        m.d.comb += [port_free.eq(~request.valid | request.ready), advance.eq(port_free & ~flush)]

        # Tile in the drain registers.
        tile, there = Signal(tile_layout(size)), Signal()
        with m.If(self.book):
            m.d.sync += [tile.eq(self.tile), self.free.eq(0)]
        with m.If(self.captured):
            m.d.sync += there.eq(1)

        # Row in the row register.
        row = Signal(data.ArrayLayout(Sum, size), reset_less=True)
        nans = Signal(size, reset_less=True)
        left, word = Signal(size.bit_length()), Signal(ADDRESS_BITS - 2)
        row_last, take, shifting = Signal(), Signal(), Signal()
        m.d.comb += [row_last.eq(left <= lanes), self.shift.eq(take),
                     take.eq(there & ~shifting & advance & row_last)]
        m.d.sync += shifting.eq(take)
        with m.If(advance & left.any()):
            width = Sum.as_shape().size
            m.d.sync += [row.as_value().eq(row.as_value() >> width * lanes), nans.eq(nans >> lanes),
                         left.eq(Mux(row_last, 0, left - lanes)), word.eq(word + lanes)]
        with m.If(take):
            m.d.sync += [
                row.eq(self.drained), nans.eq(self.nans), left.eq(tile.columns),
                word.eq(tile.address[2:]), tile.rows.eq(tile.rows - 1),
                tile.address.eq(tile.address + self.pitch)]
            with m.If(tile.rows == 1):
                m.d.sync += [there.eq(0), self.free.eq(1)]

        # Exact sums, then rounding; place, mask and end of row go along.
        travel = data.StructLayout({"word": unsigned(ADDRESS_BITS - 2), "mask": unsigned(lanes),
                                    "last": unsigned(1)})
        stages = FixedToFp32.LATENCY + 1
        along = [Signal(travel, name=f"along_{stage}") for stage in range(stages)]
        valid = Signal(stages)
        with m.If(advance):
            m.d.sync += valid.eq(Cat(left.any(), valid))
            for stage in range(1, stages):
                with m.If(valid[stage - 1]):
                    m.d.sync += along[stage].eq(along[stage - 1])
        with m.If(advance & left.any()):
            m.d.sync += [along[0].word.eq(word), along[0].last.eq(row_last),
                         along[0].mask.eq(Cat(left > lane for lane in range(lanes)))]
        results = []
        for lane in range(lanes):
            m.submodules[f"round_{lane}"] = unit = FixedToFp32(
                width=HIGH_BITS + 32, lsb=range(-32, -17))
            number = Signal.like(unit.number, name=f"number_{lane}", reset_less=True)
            with m.If(advance & left.any()):
                m.d.sync += [
                    number.value.eq(Cat(row[lane].low[:32], (
                        row[lane].high + row[lane].low[32:].as_signed())[:HIGH_BITS])),
                    number.nan.eq(nans[lane]), number.plus_inf.eq(row[lane].plus_inf),
                    number.minus_inf.eq(row[lane].minus_inf)]
            m.d.comb += [unit.advance.eq(advance), unit.lsb.eq(self.lsb), unit.number.eq(number),
                         unit.valid.eq(valid[0])]
            results.append(unit.result)

        # Packer: `kept` holds the words of the flit that is not complete yet.
        group, ready = along[-1], valid[-1]
        place = group.word[:place_bits]
        index = group.word[place_bits:]
        kept, kept_mask = Signal(32 * words, reset_less=True), Signal(words)
        spread, spread_mask = Signal(32 * words), Signal(2 * words)
        m.d.comb += [
            spread.eq(_rotate(m, Cat(results, 0), place, 32 * words)),
            spread_mask.eq(group.mask << place)]
        now_mask, later_mask = spread_mask[:words], spread_mask[words:]
        lane_mask = now_mask | later_mask
        merged = Signal(32 * words)
        for position in range(words):
            m.d.comb += merged.word_select(position, 32).eq(
                Mux(now_mask[position], spread.word_select(position, 32),
                    kept.word_select(position, 32)))
        complete = group.last | spread_mask[words - 1:].any()
        with m.If(port_free):
            m.d.sync += request.valid.eq(0)
            with m.If(flush):
                m.d.sync += [
                    flush.eq(0), kept_mask.eq(0), request.valid.eq(1),
                    request.payload.data.eq(kept), request.payload.mask.eq(_bytes(kept_mask)),
                    request.payload.index.eq(request.payload.index + 1)]
            with m.Elif(ready):
                for position in range(words):
                    with m.If(lane_mask[position]):
                        m.d.sync += kept.word_select(position, 32).eq(
                            spread.word_select(position, 32))
                m.d.sync += kept_mask.eq(Mux(complete, later_mask, kept_mask | now_mask))
                with m.If(complete):
                    m.d.sync += [
                        request.valid.eq(1), request.payload.data.eq(merged),
                        request.payload.mask.eq(_bytes(kept_mask | now_mask)),
                        request.payload.index.eq(index),
                        flush.eq(group.last & later_mask.any())]

        moving = Signal()
        m.d.comb += [
            moving.eq(left.any() | valid.any() | flush | request.valid | shifting),
            self.empty.eq(self.free & ~moving), self.active.eq(there | moving)]
        return m


def _rotate(m: Module, value, places, width: int):
    """``value`` rotated left by ``places`` words of 32 bits."""
    word = Signal(width, name="turned_0")
    m.d.comb += word.eq(value)
    for level in range(len(places)):
        turned = Signal(width, name=f"turned_{1 << level}")
        m.d.comb += turned.eq(Mux(places[level], word.rotate_left(32 << level), word))
        word = turned
    return word


def _bytes(mask):
    """A mask of words as a mask of bytes."""
    return Cat(bit.replicate(4) for bit in mask)
