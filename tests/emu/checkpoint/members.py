"""Data members of the engine's classes, as their headers declare them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["members"]

ENGINE = Path(__file__).parents[3] / "emu" / "engine"


def members(name: str) -> tuple[set[str], set[str]]:
    """The data members of a class, and the names that its ``archive`` mentions."""
    text = "\n".join(path.read_text() for path in sorted(ENGINE.glob("*.hpp")))
    text = re.sub(r"//[^\n]*", "", text)
    head = re.search(rf"^(?:class|struct) {name} (?:final )?{{", text, re.MULTILINE)
    assert head, f"the engine has no class {name}"
    body = _block(text, head.end() - 1)
    archive = re.search(r"void archive\(A& a\) {", body)
    mentioned = set(re.findall(r"\w+", _block(body, archive.end() - 1))) if archive else set()
    return set(_declared(body)), mentioned


def _block(text: str, start: int) -> str:
    """What is between the brace at ``start`` and the one that closes it."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start + 1:place]
    raise AssertionError("a brace is not closed")


def _declared(body: str) -> list[str]:
    # What constructors initialise.
    body = re.sub(r"\)\s*:\s*(?:\w+{[^{}]*},?\s*)+{", ") {", body)
    # Nested classes, bodies of functions and braced initial values go, innermost first.
    body = re.sub(r"(?:struct|class) \w+ {", "struct {", body)
    kinds = ((r"struct {[^{}]*};", ""), (r"\)(?:[^;{}()]|\([^()]*\))*{[^{}]*}", ");"),
             (r"{[^{}]*}", ""))
    while "{" in body:
        body = next(shorter for pattern, left in kinds
                    if (shorter := re.sub(pattern, left, body)) != body)
    body = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", body))
    body = re.sub(r"(?:public|private|protected):|template\b", "", body)
    names = []
    for statement in body.split(";"):
        if "(" in statement or not statement.strip() or re.match(r"\s*(?:static|using)", statement):
            continue
        for declared in statement.split(","):
            names.append(re.findall(r"\w+", declared.split("=")[0])[-1])
    return names
