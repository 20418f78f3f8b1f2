"""``supernode run allreduce`` and its siblings: a collective on random data, verified bit for bit.

Sizes are those of nccl-tests: ``--bytes`` is the whole vector that a card holds at one end, all
blocks together where there are blocks. Blocks are as equal as whole elements allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from drivers.collectives import Buffer, Collective, Region, Task, algorithm_names
from drivers.dtypes import DTYPES, reducible
from drivers.group import OPERATORS

from .checkpoints import checkpoint_options
from .errors import usage
from .machine import Machine, machine_options, timeout
from .options import SIZE, choose, elements
from .plan import Plan, Workload
from .report import Figures, report
from .verdict import Verdict, compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.handle import Result
    from drivers.memory import Array
    from drivers.supernode import SuperNode

__all__ = ["COMMANDS", "Request", "Run", "bus_factor", "collective_named", "run_once"]

_HELP = {
    Collective.ALLREDUCE: "Reduce an array over all cards; every card ends with the result.",
    Collective.REDUCE: "Reduce an array over all cards; the root ends with the result.",
    Collective.BROADCAST: "Give the root's array to every card.",
    Collective.ALLGATHER: "Give every card's block to all cards.",
    Collective.REDUCE_SCATTER: "Reduce an array over all cards; every card ends with its block.",
    Collective.GATHER: "Bring every card's block to the root.",
    Collective.SCATTER: "Give every card its block of the root's array.",
    Collective.ALLTOALL: "Give a block from every card to every card.",
    Collective.BARRIER: "Wait on every card until all cards are there.",
}


def collective_named(name: str) -> Collective:
    """The collective that ``name`` means, in any of the usual spellings: ``reduce-scatter``,
    ``reduce_scatter``, ``all_reduce``.

    Raises
    ------
    click.BadParameter
        If there is none.
    """
    wanted = name.lower().replace("-", "").replace("_", "")
    for kind in Collective:
        if wanted == str(kind).replace("_", ""):
            return kind
    raise click.BadParameter(
        f"{name!r} is not supported here: accepted are "
        f"{', '.join(str(kind).replace('_', '-') for kind in Collective)}",
        param_hint="COLLECTIVE")


@dataclass(frozen=True)
class Request:
    """A collective on all cards, or the first ones, of a machine."""

    kind: Collective
    count: int
    dtype: str
    op: str
    algorithm: str
    root: int
    in_place: bool

    def task(self, members: int) -> Task:
        """What it asks of so many members."""
        if self.kind is Collective.BARRIER:
            return Task(self.kind, members, ())
        counts: tuple[int, ...] = (self.count,)
        if not self.kind.whole:
            counts = tuple(block.count for block in Region(0, self.count).split(members))
        if self.kind is Collective.ALLTOALL:
            # Everyone gives as much as it gets: the block to who is k ahead has the k-th size.
            counts = tuple(counts[(peer - member) % members]
                           for member in range(members) for peer in range(members))
        return Task(self.kind, members, counts, self.root, self.in_place)


class Run(NamedTuple):
    """The machine's figures, what the oracle says, the wall time, and the algorithm."""

    result: Result
    verdict: Verdict
    seconds: float
    algorithm: str


def bus_factor(kind: Collective, cards: int) -> float:
    """``busbw`` ÷ ``algbw`` of nccl-tests: what a card's links must carry, per byte of its size."""
    if kind is Collective.ALLREDUCE:
        return 2 * (cards - 1) / cards
    if kind in (Collective.REDUCE, Collective.BROADCAST):
        return 1.0
    return 0.0 if kind is Collective.BARRIER else (cards - 1) / cards


def run_once(setup: Machine, machine: SuperNode, request: Request, members: int,
             key: str = "") -> Run:
    """Run it on random data on the first ``members`` cards, and compare every output."""
    from emu.oracle import outputs_of

    task = request.task(members)
    rng = np.random.default_rng(setup.seed)
    inputs = [_values(rng, task.input(member).count, request.dtype) for member in range(members)]
    buffers = setup.keep(machine, f"{key}arrays",
                         lambda: _allocate(machine, task, inputs, request.dtype))
    with setup.timed(machine) as watch:
        with usage("--algorithm"):
            handle = setup.keep(machine, f"{key}handle", lambda: machine.group(
                range(members)).start(task, buffers["input"], buffers["output"], op=request.op,
                                      algorithm=request.algorithm))
        watch.expect(handle.bound.cycles)
        result = handle.wait(timeout(task.total * DTYPES[request.dtype].size))
    wanted = outputs_of(machine.topology, machine.params, range(members), task, inputs, handle,
                        request.op)
    found = [_output(task, member, array) for member, array in enumerate(buffers["output"])]
    verdict = compare(found, wanted)
    machine.free(*buffers["input"], *buffers["output"])
    return Run(result, verdict, watch.seconds, handle.algorithm)


def _values(rng: np.random.Generator, count: int, dtype: str) -> np.ndarray:
    kind = DTYPES[dtype].numpy
    if kind.kind in "iu":
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, count, kind, endpoint=True)
    return rng.standard_normal(count, np.float32).astype(kind)


def _allocate(machine: SuperNode, task: Task, inputs: Sequence[np.ndarray],
              dtype: str) -> dict[str, list[Array]]:
    """Buffers of all members, with their inputs where the task wants them."""
    arrays: dict[str, list[Array]] = {"input": [], "output": []}
    for member, values in enumerate(inputs):
        entry = task.input(member)
        for buffer in (Buffer.INPUT, Buffer.OUTPUT):
            array = machine.malloc((task.size(member, buffer),), dtype, member)
            arrays[str(buffer)].append(array)
            if entry.buffer is buffer and entry.count:
                image = np.zeros(array.shape, values.dtype)
                image[entry.start:entry.end] = values
                array.write(image)
    return arrays


def _output(task: Task, member: int, array: Array) -> np.ndarray:
    region = task.output(member)
    return array.read()[region.start:region.end]


def _command(kind: Collective) -> click.Command:
    def command(size: int, dtype: str, op: str, algorithm: str, root: int, in_place: bool,
                **options: Any) -> Plan:
        accepted = reducible() if kind.reduces else tuple(DTYPES)
        choose("--dtype", dtype, accepted)
        choose("--op", op, tuple(OPERATORS))
        choose("--algorithm", algorithm, algorithm_names())
        setup = Machine(**options)
        if root >= setup.shape.cards:
            raise click.BadParameter(f"{root} is no card of {setup.topology}: accepted are 0 to "
                                     f"{setup.shape.cards - 1}", param_hint="--root")
        request = Request(kind, elements(size, dtype), dtype, op, algorithm, root, in_place)

        @setup.plan(2 * size)
        def plan(machine: SuperNode) -> None:
            done = run_once(setup, machine, request, machine.cards)
            figures = Figures(workload=str(kind), size=size, dtype=dtype,
                              algorithm=done.algorithm,
                              bus_factor=bus_factor(kind, machine.cards), extra={})
            report(setup, machine, figures, done.result, done.verdict, done.seconds)
        return plan

    command = checkpoint_options(machine_options()(command))
    given: list[tuple[str, Any]] = [
        ("algorithm", click.option("--algorithm", default="auto", show_default=True,
                                   metavar=f"{{{','.join(algorithm_names())}}}",
                                   help="How it is done.")),
        ("in_place", click.option("--in-place/--out-of-place", default=kind.name != "ALLTOALL",
                                  show_default=True,
                                  help="Whether outputs lie over inputs.")),
        ("root", click.option("--root", type=click.IntRange(0), default=0, show_default=True,
                              metavar="CARD", help="The card with a part of its own.")),
        ("op", click.option("--op", default="sum", show_default=True,
                            metavar=f"{{{','.join(OPERATORS)}}}", help="How elements are joined.")),
        ("dtype", click.option("--dtype", default="f32", show_default=True,
                               metavar=f"{{{','.join(reducible() if kind.reduces else DTYPES)}}}",
                               help="Type of the elements.")),
        ("size", click.option("--bytes", "size", type=SIZE, default="1M", show_default=True,
                              metavar="SIZE", help="Bytes per card, all blocks together."))]
    fixed: dict[str, Any] = {}
    if not kind.reduces:
        fixed["op"] = "sum"
    if not kind.rooted:
        fixed["root"] = 0
    if kind is Collective.BARRIER:
        fixed |= {"dtype": "u8", "size": 0, "in_place": False}
    for name, option in given:
        if name not in fixed:
            command = option(command)

    def bound(**options: Any) -> Plan:
        return command(**fixed, **options)
    bound.__click_params__ = command.__click_params__  # type: ignore[attr-defined]
    return click.command(name=str(kind).replace("_", "-"), cls=Workload, help=_HELP[kind])(bound)


#: The commands, one for each collective.
COMMANDS = tuple(_command(kind) for kind in Collective)
