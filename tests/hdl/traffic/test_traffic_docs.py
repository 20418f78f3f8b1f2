"""``docs/traffic.md`` shows the registers as they are. Run as a module to update it."""

from __future__ import annotations

from pathlib import Path

from hdl.params import TrafficParams
from hdl.traffic.registers import TrafficRegisters

PAGE = Path(__file__).resolve().parents[3] / "docs" / "traffic.md"
BEGIN, END = "<!-- registers -->\n", "<!-- end -->\n"


def table() -> str:
    """The register map as Markdown."""
    lines = ["| offset | name | access | |", "|---|---|---|---|"]
    for register in TrafficRegisters(TrafficParams()):
        offset = f"`0x{register.offset:04X}`"
        if register.count > 1:
            offset += f" + `0x{register.stride:X}` × 0…{register.count - 1}"
        lines.append(f"| {offset} | `{register.name}` | {register.access} | {register.doc} |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """``page`` with the current table between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END, 1)[1]


def test_the_page_shows_the_register_map_as_it_is() -> None:
    page = PAGE.read_text()
    assert page == updated(page), "run: python -m tests.hdl.traffic.test_traffic_docs"


def test_no_two_registers_share_an_address() -> None:
    places = [register.at(index) for register in TrafficRegisters(TrafficParams(targets=64))
              for index in range(register.count)]
    assert len(set(places)) == len(places) and not any(place % 8 for place in places)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
