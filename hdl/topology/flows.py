"""What every link above the cards carries, and what each link's packets wait for: all of it, by
sets of destinations instead of pairs of cards.

A switch looks at the destination alone. So one set per link, that of the destinations which any
packet on it may have, says all that a switch does with them; it follows from the sets of the links
that lead to where the link begins. Sets start at the uplinks of cards and are passed on until
nothing is new. As a set is a few boxes (see ``boxes``), a fabric costs about its links times the
entries of a table, whatever the number of pairs.

Nothing is taken for granted of the tables: each is read entry by entry, and any table gives the
result that following all pairs would give.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache, partial

from .boxes import Box, Field, count, intersect, matching, merge, subtract
from .routes import Routes, Table
from .tiered import Tiered

__all__ = ["Flows"]

#: Boxes of destinations per port.
_Ports = dict[int, list[Box]]


class Flows:
    """The sets of destinations on the links above the cards.

    Parameters
    ----------
    topology : Tiered
    routes : Routes

    Raises
    ------
    ValueError
        If a table sends a packet nowhere, or to a card that it is not for.
    """

    def __init__(self, topology: Tiered, routes: Routes) -> None:
        self._topology, self._routes = topology, routes
        self._fields: tuple[Field, ...] = topology.fields
        links = topology.links
        self._matching = cache(partial(matching, self._fields))
        self._entries = cache(partial(Entries, self._fields))
        self._number = {(link.source, link.source_port): i for i, link in enumerate(links)}
        #: Per link, by its place in ``topology.links``: destinations of what it carries.
        self.carried: dict[int, list[Box]] = {}
        #: Per link, links that packets on it may want next.
        self.wanted: dict[int, list[int]] = {}
        pending: dict[int, deque[tuple[int, tuple[Box, ...]]]] = {}
        nodes: deque[int] = deque()

        def carry(link: int, boxes: Sequence[Box]) -> None:
            """Add to what a link carries, and pass on what is new."""
            known = self.carried.setdefault(link, [])
            new = list(boxes)
            for old in known:
                new = [piece for box in new for piece in subtract(box, old)]
            if not new:
                return
            self.carried[link] = merge([*known, *new])
            self.wanted.setdefault(link, [])
            target = links[link].target
            if target < topology.cards:
                self._arrive(target, new, links[link].source)
                return
            if target not in pending:
                pending[target] = deque()
                nodes.append(target)
            pending[target].append((link, tuple(sorted(new))))

        for link, box in self._departures():
            carry(link, [box])
        while nodes:
            node = nodes.popleft()
            together: dict[int, list[Box]] = {}
            for ports, arrivals in self._through(node, pending.pop(node)):
                outs = [self._number[node, port] for port in ports]
                for link in arrivals:
                    self.wanted[link].extend(outs)
                for link, boxes in zip(outs, ports.values(), strict=True):
                    together.setdefault(link, []).extend(boxes)
            for link, boxes in together.items():
                carry(link, merge(boxes))

    def _departures(self) -> Iterator[tuple[int, Box]]:
        """What the uplink of each card carries: all for which its router takes it.

        A router decides by the first dimension in which the destination differs. Its uplink is the
        last one: it is taken if all coordinates before agree and any other does not.
        """
        topology = self._topology
        dims = topology.dims(0, topology.dim_count)
        direct = sum(dim["mask"] for dim in dims[:-1])
        for card in range(topology.cards):
            here = topology.node_id(card)
            # Any card that has the same coordinates in the routers' dimensions and none else.
            other = next((each for each in (card + topology.group, card - topology.group)
                          if 0 <= each < topology.cards), None)
            hop = None if other is None else self._routes.hop(card, other, self._routes.local, 0)
            if hop is None or hop.link.target < topology.cards:
                raise ValueError(f"{topology.spec}: card {card} has no way up")
            box = matching(self._fields, direct, here & direct)
            assert box is not None
            yield self._number[card, hop.link.source_port], box

    def _arrive(self, card: int, boxes: list[Box], switch: int) -> None:
        topology = self._topology
        own = matching(self._fields, (1 << 16) - 1, topology.node_id(card))
        for box in boxes:
            if box != own:
                raise ValueError(
                    f"{topology.spec}: switch {topology.node_name(switch)} sends packets to card "
                    f"{card} that are for other cards")

    def _through(self, node: int, arrivals: deque[tuple[int, tuple[Box, ...]]]
                 ) -> Iterator[tuple[_Ports, list[int]]]:
        """What leaves a switch by each port, with the links by which it came."""
        table = self._routes.table(node)
        choices = self._choices(table)
        together: dict[tuple[Box, ...], list[int]] = {}
        for link, boxes in arrivals:
            together.setdefault(boxes, []).append(link)
        for boxes, links in together.items():
            ports: _Ports = {}
            rest = list(boxes)
            for reach, entries, named in choices:
                hits = [hit for box in rest if (hit := intersect(box, reach))]
                rest = [piece for box in rest for piece in subtract(box, reach)]
                for hit in hits:
                    left = count(hit)
                    for place, found in entries.met(hit):
                        ports.setdefault(named[place], []).append(found)
                        left -= count(found)
                    if left:
                        raise ValueError(f"{table.name} lacks entries in its route table for "
                                         f"{left} of its destinations")
            if rest:
                raise ValueError(f"{table.name} has no level in its route table for "
                                 f"{sum(map(count, rest))} of its destinations")
            for port in ports:
                if (node, port) not in self._number:
                    raise ValueError(f"{table.name} sends packets by port {port}, which is open")
            yield ports, links

    def _choices(self, table: Table) -> list[tuple[Box, Entries, list[int]]]:
        """The levels of a table: whom they match, what their entries are asked for, and the ports
        that these name."""
        indices: list[list[int]] = [[] for _ in table.levels]
        ports: list[list[int]] = [[] for _ in table.levels]
        for (number, index), port in table.entries.items():
            indices[number].append(index)
            ports[number].append(port)
        return [(reach, self._entries(table.bits, level["shift"], tuple(asked)), named)
                for level, asked, named in zip(table.levels, indices, ports, strict=True)
                if (reach := self._matching(level["mask"], level["value"]))]


class Entries:
    """What the entries of a level of a table are asked for: a box of destinations each.

    Many tables have levels that are alike in this; the entries that a box meets are found by its
    coordinates, not one by one.
    """

    def __init__(self, fields: Sequence[Field], bits: int, shift: int,
                 indices: Sequence[int]) -> None:
        ones = (1 << bits) - 1
        self.boxes = [matching(fields, ones << shift, index << shift) for index in indices]
        # Per field and value the entries that allow it, as bits of an integer.
        self._allow = [[sum(1 << i for i, box in enumerate(self.boxes) if box and box[f] >> x & 1)
                        for x in range(size)] for f, (_, size) in enumerate(fields)]
        self._all = (1 << len(self.boxes)) - 1

    def met(self, box: Box) -> Iterator[tuple[int, Box]]:
        """Entries that destinations in a box ask for, by their place, and these destinations."""
        found = self._all
        for values, allow in zip(box, self._allow, strict=True):
            some = 0
            while values:
                low = values & -values
                some |= allow[low.bit_length() - 1]
                values -= low
            found &= some
        while found:
            low = found & -found
            place = low.bit_length() - 1
            asked = self.boxes[place]
            if asked and (common := intersect(box, asked)):
                yield place, common
            found -= low
