"""The example of the README runs and prints what it should."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_python_example_runs(capsys):
    code, = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(README), "exec"), {})
    gemm, allreduce, allgather = capsys.readouterr().out.splitlines()
    assert gemm.split()[1] == "128.0"
    assert allreduce.split()[-1] == "28.0"
    assert "cycles by the model" in allgather
