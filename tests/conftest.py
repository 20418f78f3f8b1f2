"""What holds for every test: one seed for all that is random, and a report that names it.

The seed is fixed, so that a change is judged by what it changes; ``--seed random`` draws a new one,
which is how ``make test-seeds`` looks for what the fixed one does not show.
"""

from __future__ import annotations

import os
import random
import signal

import pytest
from hypothesis import settings

from emu.toolchain import ToolchainError, find_toolchain

settings.register_profile("repeatable", derandomize=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", default=os.environ.get("SUPERNODE_SEED", "1"), metavar="N|random",
                     help="of everything random in the tests (default: SUPERNODE_SEED, or 1)")


def pytest_configure(config: pytest.Config) -> None:
    seed = config.getoption("seed")
    if seed == "random":
        seed = str(random.SystemRandom().getrandbits(32))
    else:
        settings.load_profile("repeatable")
    if not seed.isdecimal() or int(seed) >= 1 << 32:
        raise pytest.UsageError(f"--seed must be 'random' or from 0 to 2**32 - 1, not {seed!r}")
    # Inherited by test processes and simulators.
    config.option.seed = os.environ["SUPERNODE_SEED"] = seed
    # Test processes run side by side and share the processors.
    os.environ.setdefault("SUPERNODE_THREADS", "1")
    # What a shell starts in the background ignores interrupts, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the seed, and the Verilator that tests run on or why there is none."""
    seed = config.getoption("seed")
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        return [f"seed: {seed}", f"verilator: {error}"]
    return [f"seed: {seed} (repeat with --seed {seed})",
            f"verilator: {toolchain.version}, {toolchain.verilator}"]


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run."""
    return int(os.environ["SUPERNODE_SEED"])
