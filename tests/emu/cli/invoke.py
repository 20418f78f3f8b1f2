"""Run the command line in this process, as a shell would see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from emu.cli import main


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of the error."""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("supernode: error: ")
        assert "Traceback" not in self.err
        return self.err


def invoke(capsys: Any, line: str) -> Outcome:
    """Run ``supernode`` with the words of ``line``."""
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    captured = capsys.readouterr()
    return Outcome(int(stop.value.code or 0), captured.out, captured.err)
