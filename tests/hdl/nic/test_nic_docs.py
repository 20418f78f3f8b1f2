"""``docs/nic.md`` shows the register map as it is. Run as a module to bring it up to date."""

from __future__ import annotations

from pathlib import Path

from hdl.params import CardParams
from hdl.registers import RegisterMap

PAGE = Path(__file__).resolve().parents[3] / "docs" / "nic.md"
BEGIN, END = "<!-- registers -->\n", "<!-- end -->\n"


def table() -> str:
    """The register map of the default card as Markdown."""
    lines = ["| offset | name | access | |", "|---|---|---|---|"]
    params = CardParams()
    for register in RegisterMap(params.nic, params.router.links):
        offset = f"`0x{register.offset:04X}`"
        if register.count > 1:
            offset += f" + `0x{register.stride:X}` × 0…{register.count - 1}"
        lines.append(f"| {offset} | `{register.name}` | {register.access} | {register.doc} |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """``page`` with the current table between its marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def test_the_page_shows_the_register_map_as_it_is() -> None:
    page = PAGE.read_text()
    assert page == updated(page), "run: python -m tests.hdl.nic.test_nic_docs"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
