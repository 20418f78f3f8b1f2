"""A workload's command in two steps: what is asked for is checked, then it is built and run.

The first step makes a :class:`Plan` and touches neither cache nor engine. So ``supernode run`` and
``supernode traffic`` carry their plan out at once, and ``supernode sweep`` checks all of its plans
before the first one is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from emu.kinds import NodeKind

__all__ = ["Plan", "Workload"]


@dataclass(frozen=True)
class Plan:
    """A run that has been found right and has not begun."""

    #: Kinds of the nodes that it runs on; refuses, as a usage error, what they cannot be made for.
    kinds: Callable[[], Sequence[NodeKind]]
    #: Builds, runs, verifies and tells the result.
    run: Callable[[], None]


class Workload(click.Command):
    """A command whose function checks its options and returns a :class:`Plan`."""

    def plan(self, ctx: click.Context) -> Plan:
        """Check the options of ``ctx``.

        Raises
        ------
        click.UsageError
            If one is not accepted.
        """
        plan: Plan = super().invoke(ctx)
        return plan

    def invoke(self, ctx: click.Context) -> None:
        """Check the options, then build and run."""
        self.plan(ctx).run()
