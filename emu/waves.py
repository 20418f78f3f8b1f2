"""Waves: every signal of some nodes in some cycles, a file per tile, for GTKWave or Surfer.

A node with waves runs another model of the same tiles, with the same behaviour; the others stay as
they are. A file has its name once it is whole: until then it is called ``….partial``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hdl.topology import Topology

__all__ = ["Waves", "is_whole"]

_SPEC = re.compile(r"(?P<nodes>[^@]+)@(?P<first>[0-9]+)-(?P<last>[0-9]+)", re.ASCII)
_NODE = re.compile(r"(?P<switch>s?)(?P<number>[0-9]+)", re.ASCII)
#: Longest run of cycles, so that a mistyped one does not fill a disk.
_MOST_CYCLES = 10_000_000


@dataclass(frozen=True)
class Waves:
    """Which nodes, in which cycles, and where to.

    Raises
    ------
    ValueError
        If there are no such cycles.
    """

    nodes: tuple[int, ...]
    #: The first cycle shown, and the last.
    first: int
    last: int
    folder: Path = Path("waves")

    def __post_init__(self) -> None:
        if not self.first <= self.last < self.first + _MOST_CYCLES:
            raise ValueError(f"waves of cycles {self.first} to {self.last}: accepted are 1 to "
                             f"{_MOST_CYCLES:,} cycles, the first one before the last")

    @classmethod
    def parse(cls, text: str, topology: Topology, folder: Path = Path("waves")) -> Waves:
        """``CARD[,CARD…]@FROM-TO``, both cycles included; a switch is ``s`` and its number.

        Raises
        ------
        ValueError
            If ``text`` is not of this form, or names what the topology does not have.
        """
        match = _SPEC.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} names no waves: accepted is CARD[,CARD…]@FROM-TO, as in "
                             "0,3@1000-1200")
        nodes = tuple(dict.fromkeys(_node(name, topology) for name in match["nodes"].split(",")))
        return cls(nodes, int(match["first"]), int(match["last"]), folder)

    def path(self, node: str, tile: str) -> Path:
        """The file of a tile of the node that messages call ``node``."""
        return self.folder / f"{node.replace(' ', '-')}-{tile}.fst"

    def prepare(self) -> None:
        """Make the folder.

        Raises
        ------
        ValueError
            If it cannot be written.
        """
        probe = self.folder / ".partial"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ValueError(f"{str(self.folder)!r} cannot take waves ({error.strerror}): accepted "
                             "is a folder that can be written") from error

    @staticmethod
    def partial(path: Path) -> Path:
        """What a file is called while it is written."""
        return path.with_name(f"{path.name}.partial")

    def keep(self, paths: Sequence[Path]) -> list[Path]:
        """Give those of the files that were begun their names; return these.

        Raises
        ------
        OSError
            If one is not whole, such as on a full disk.
        """
        kept = []
        for path in paths:
            partial = self.partial(path)
            if not partial.exists():
                continue
            if not is_whole(partial):
                raise OSError(f"{path} could not be written whole: is the disk full?")
            kept.append(partial.replace(path))
        return kept


def _node(name: str, topology: Topology) -> int:
    match = _NODE.fullmatch(name)
    base, count = (topology.cards, topology.switches) if name[:1] == "s" else (0, topology.cards)
    if match is None or int(match["number"]) >= count:
        switches = f", and switches s0 to s{topology.switches - 1}" if topology.switches else ""
        raise ValueError(f"{name!r} is no card of {topology.spec}: accepted are 0 to "
                         f"{topology.cards - 1}{switches}")
    return base + int(match["number"])


def is_whole(path: Path) -> bool:
    """Whether an FST file ends where its last block does: a block is its kind, in a byte, and the
    length of the rest."""
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while at + 9 <= size:
            file.seek(at + 1)
            length, = struct.unpack(">Q", file.read(8))
            if length < 8:
                return False
            at += 1 + length
    return at == size > 0
