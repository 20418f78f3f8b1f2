"""What goes wrong on the links of a run: options, and what they mean together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from emu.faults import BitErrors, Faults, Outage
from hdl.topology import Topology

from .errors import usage

__all__ = ["FAILURE_DEADLINE", "fault_options", "faults", "link_options", "reliable"]

Function = TypeVar("Function", bound=Callable[..., Any])

#: Cycles that a card waits for a response where links fail and nobody says how long.
FAILURE_DEADLINE = 20_000
_FAILURE = re.compile(r"([^@]+)@([0-9]+)(?:-([0-9]+))?")


def fault_options(function: Function) -> Function:
    """Add ``--link``, ``--ber``, ``--fail`` and ``--deadline``."""
    return link_options(click.option(
        "--deadline", type=click.IntRange(1), metavar="CYCLES",
        help="Cycles after which a card gives up waiting for a response; "
        f"{FAILURE_DEADLINE} with --fail, else none.")(function))


def link_options(function: Function) -> Function:
    """Add ``--link``, ``--ber`` and ``--fail``."""
    for option in (
        click.option("--fail", multiple=True, metavar="NODE:PORT@CYCLE[-CYCLE]",
                     help="A cable that fails in a cycle, and is back in another one, e.g. "
                     "0:+x@5000. May be given several times."),
        click.option("--ber", type=click.FloatRange(0, 1, max_open=True), default=0.0,
                     show_default=True, metavar="P",
                     help="Probability that a bit on a link flips."),
        click.option("--link", type=click.Choice(("plain", "reliable")),
                     help="Links without or with CRC and replay; by default what --ber and --fail "
                     "need, or the preset's."),
    ):
        function = option(function)
    return function


def faults(topology: Topology, ber: float, fail: Sequence[str]) -> Faults:
    """What ``--ber`` and ``--fail`` say.

    Raises
    ------
    click.BadParameter
        If there is no such cable or cycle.
    """
    with usage("--fail"):
        found = Faults(errors=BitErrors(rate=ber),
                       outages=tuple(_outage(topology, text) for text in fail))
        found.outages_of(topology.links)
    return found


def reliable(link: str | None, ber: float, outages: Sequence[Outage]) -> bool | None:
    """Whether links are to be reliable; ``None`` leaves it to the preset.

    Raises
    ------
    click.BadParameter
        If plain ones are asked for and will not do.
    """
    needs = "--ber" if ber else "a --fail that ends" if any(
        outage.end is not None for outage in outages) else None
    if needs and link == "plain":
        raise click.BadParameter(f"'plain' does not go with {needs}: accepted is reliable",
                                 param_hint="--link")
    return True if needs else None if link is None else link == "reliable"


def _outage(topology: Topology, text: str) -> Outage:
    match = _FAILURE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no failure: accepted is NODE:PORT@CYCLE or "
                         "NODE:PORT@CYCLE-CYCLE")
    link = topology.find_link(match[1])
    return Outage(node=link.source, port=link.source_port, start=int(match[2]),
                  end=int(match[3]) if match[3] else None)
