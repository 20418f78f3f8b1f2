"""What holds for every test: the tools' versions are in the report's header."""

from __future__ import annotations

from emu.toolchain import ToolchainError, find_toolchain


def pytest_report_header() -> str:
    """Name the Verilator that tests run on, or say why there is none."""
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        return f"verilator: {error}"
    return f"verilator: {toolchain.version}, {toolchain.verilator}"
