"""What goes wrong on links: bit errors, in bursts or not, and cables that fail.

All of it is a pure function of the fabric's seed, the link and the cycle in which a word leaves: it
does not depend on windows, on skipping, or on what else happens. The strobe of a word is never
struck, and a word without a strobe has nothing to strike.

*Bit errors.* Each of the n bits that ``fields`` names flips with probability ``rate``,
independently of the others. One hash per word decides whether it is struck, with probability
p = 1 − (1 − rate)ⁿ; which bits flip is drawn under the condition that at least one does, so the
number of flipped bits is binomial. With ``burst`` > 1, time is cut into slots of that many cycles,
with a phase of its own for each link; one hash decides for all words that leave in a slot. The
share of struck words stays p.

*Outages.* A cable that is down from ``start`` until ``end`` loses, in both directions, every word
that would be on it in one of these cycles, counted from that of its departure to that of its
arrival. The ``up`` pins of both ends are low in exactly these cycles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, log1p

from hdl.layouts import field_slices, link_word
from hdl.params import LinkParams
from hdl.topology import Link

__all__ = ["FIELDS", "BitErrors", "Faults", "Outage"]

#: Fields of a link word by what errors are confined to.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "all": tuple(name for name in field_slices(link_word(LinkParams())) if name != "strobe"),
    "flit": ("payload", "valid", "head", "tail", "poison", "vc", "seq", "turn"),
    "credits": ("credit", "credit_vc", "freed"),
    "acks": ("acks", "ack", "asked"),
}


@dataclass(frozen=True, kw_only=True)
class BitErrors:
    """Bit errors of a directed link.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    #: Probability that a bit flips.
    rate: float
    #: Which bits may: a key of :data:`FIELDS`.
    fields: str = "all"
    #: Cycles whose words are struck together.
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise ValueError(f"a bit error rate must be at least 0 and below 1, not {self.rate}")
        if self.fields not in FIELDS:
            raise ValueError(f"errors cannot be confined to {self.fields!r}: accepted are "
                             f"{', '.join(FIELDS)}")
        if self.burst < 1:
            raise ValueError(f"a burst must last at least 1 cycle, not {self.burst}")

    def bits(self, params: LinkParams) -> list[tuple[int, int]]:
        """The bits that may flip, as (first bit, width) within a link word."""
        slices = field_slices(link_word(params))
        return [slices[name] for name in FIELDS[self.fields]]

    def word_rate(self, params: LinkParams) -> float:
        """Probability that a word is struck."""
        return -expm1(sum(width for _, width in self.bits(params)) * log1p(-self.rate))


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A cable, named by one of its ends, that is down from cycle ``start`` until ``end``, or for
    good.

    Raises
    ------
    ValueError
        If it does not start before it ends.
    """

    node: int
    port: int
    start: int
    end: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.end is not None and self.end <= self.start):
            raise ValueError(f"an outage must start at cycle 0 or later and end after that, not "
                             f"from {self.start} to {self.end}")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Everything that goes wrong in a fabric."""

    #: Of every link.
    errors: BitErrors | None = None
    #: Of the link that leaves (node, port), in place of those of every link.
    links: Mapping[tuple[int, int], BitErrors] = field(default_factory=dict)
    outages: Sequence[Outage] = ()

    def errors_of(self, link: Link) -> BitErrors | None:
        """The bit errors of a link."""
        errors = self.links.get((link.source, link.source_port), self.errors)
        return errors if errors is not None and errors.rate else None

    def outages_of(self, links: Sequence[Link]) -> dict[Link, list[tuple[int, int | None]]]:
        """When each directed link is down, in rising order.

        Raises
        ------
        ValueError
            If there is no such cable, or it fails while it is down.
        """
        leaving = {(link.source, link.source_port): link for link in links}
        for place in [*self.links, *((each.node, each.port) for each in self.outages)]:
            if place not in leaving:
                raise ValueError(f"no link leaves port {place[1]} of node {place[0]}")
        times: dict[Link, list[tuple[int, int | None]]] = {}
        for outage in sorted(self.outages, key=lambda each: each.start):
            there = leaving[outage.node, outage.port]
            back = leaving.get((there.target, there.target_port))
            for link in (there, back):
                if link is None:
                    continue
                known = times.setdefault(link, [])
                if known and (known[-1][1] is None or known[-1][1] >= outage.start):
                    raise ValueError(f"the cable at port {outage.port} of node {outage.node} "
                                     f"fails in cycle {outage.start}, but is down already")
                known.append((outage.start, outage.end))
        return times
