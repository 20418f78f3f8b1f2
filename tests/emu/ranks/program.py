"""What the tests run on several ranks: ``program.py FOLDER TASK [ARGUMENTS]``."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from emu.fabric import EngineError
from emu.ranks import own_rank
from emu.ranks.exchange import Exchange
from emu.ranks.fabric import RankedFabric
from emu.ranks.server import run_shared

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.emu import toys
from tests.emu.machines import MACHINES, MEMORY, flat_machine, mixed_fabric
from tests.emu.test_exactness import run

#: Windows before something happens.
LATER = 20
#: A register that all cards have.
LINK_STATUS = 0x400


def compare(folder: Path, cards: str, *names: str) -> None:
    """Run machines of so many cards in several ways; leave what they did for the test."""
    for name in names:
        _, fabric = MACHINES[name].open(int(cards))
        assert isinstance(fabric, RankedFabric), "each rank is to have a share"
        fabric.close()
    results = {(name, tuple(options.items())): run(MACHINES[name], int(cards), **options)
               for name in names for options in ({"seed": 3, "stall_rate": 0.2},
                                                 {"window": 2, "threads": 2})}
    (folder / "results").write_bytes(pickle.dumps(results))


def windows(folder: Path, cards: str, name: str) -> None:
    """Run a machine in every window and with some numbers of threads."""
    machine = flat_machine(name, int(cards))
    results = {(window, threads): run(machine, int(cards), window=window, threads=threads)
               for window in range(1, machine.latency + 1) for threads in (1, 2)}
    (folder / "results").write_bytes(pickle.dumps(results))


def endless() -> None:
    """Run until somebody ends it."""
    _, fabric = MACHINES["card"].open(3, skip_idle=False)
    fabric.advance(1 << 40)


def interrupted() -> None:
    """Run until an interrupt comes, and go on."""
    _, fabric = MACHINES["card"].open(3, skip_idle=False)
    try:
        fabric.advance(1 << 40)
    except KeyboardInterrupt:
        cycle = fabric.cycle
        fabric.advance(64)
        states = fabric.host_read_many([(node, LINK_STATUS) for node in range(3)])
        print(f"went on, {fabric.cycle >= cycle + 64}, {len(set(states))}")
        fabric.close()


def broken() -> None:
    """Cards read beyond their memories, on another rank than 0 first."""
    fabric = mixed_fabric()
    for node, delay in ((0, 9), (2, 0)):
        for _ in range(delay):
            fabric.host_write(node, toys.RECEIVED, 0)
        fabric.host_write(node, toys.FETCH, MEMORY)
    try:
        fabric.advance(100)
    except EngineError as error:
        print(error)
    fabric.close()
    # What a node of another rank refuses: at once, or when it hears of it.
    fabric = mixed_fabric()
    for ask in (lambda: fabric.memory_view(2), lambda: fabric.set_value(2, "network", "no", b"0"),
                lambda: fabric.status(2)):
        try:
            print(type(ask()).__name__)
        except (ValueError, EngineError) as error:
            print(error)
    fabric.close()


def later(action: Callable[[], None]) -> None:
    """Do something when this rank has run some windows."""
    plain, windows = Exchange._send, 0

    def send(self: Exchange) -> None:
        nonlocal windows
        windows += 1
        if windows == LATER:
            action()
        plain(self)

    Exchange._send = send  # type: ignore[method-assign]


def ask_mpiexec_to_end() -> None:
    """What a terminal does: rank, proxy, mpiexec."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGINT)


def fail() -> None:
    raise RuntimeError("out of luck")


def main() -> int:
    folder, task, *arguments = sys.argv[1:]
    (Path(folder) / f"{os.getpid()}.pid").touch()
    if own_rank() == 1 and task in ACTIONS:
        later(ACTIONS[task])
    return run_shared(lambda: TASKS[task](Path(folder), *arguments) or 0)


ACTIONS = {"killed": lambda: os.kill(os.getpid(), signal.SIGKILL), "failing": fail,
           "interrupted": ask_mpiexec_to_end}
TASKS = {"compare": compare, "windows": windows, "killed": lambda _: endless(),
         "failing": lambda _: endless(), "interrupted": lambda _: interrupted(),
         "broken": lambda _: broken()}

if __name__ == "__main__":
    sys.exit(main())
