"""Load–latency curves: rates from low up to saturation.

Rates rise by a coarse step while the network settles. Once it does not, the step is halved again
and again between the last rate that it took and the first that it did not, until the two are
``resolution`` apart; the last rate taken is the *saturation* rate. A last point at the highest rate
shows what the network accepts when it is overloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .measure import Outcome, Result

__all__ = ["Curve", "sweep"]


@dataclass(frozen=True)
class Curve:
    """Results by rising rate."""

    points: tuple[Result, ...]

    @property
    def saturation(self) -> float | None:
        """The highest rate at which the network settled, below the first at which it did not."""
        taken = None
        for point in self.points:
            if point.outcome is not Outcome.CONVERGED:
                break
            taken = point.offered
        return taken

    @property
    def peak(self) -> float:
        """The highest accepted rate, in flits per node and cycle."""
        return max(point.accepted for point in self.points)

    @property
    def overload(self) -> Result:
        """What the highest rate gave."""
        return self.points[-1]


def sweep(run: Callable[[float], Result], *, first: float = 0.02, step: float = 0.05,
          resolution: float = 0.01, highest: float = 1.0) -> Curve:
    """Measure a curve. ``run`` measures one rate on a fresh network.

    Raises
    ------
    ValueError
        If the steps make no sense.
    """
    if not 0 < first <= highest or not 0 < resolution <= step:
        raise ValueError(f"a sweep goes from a rate above 0 up to {highest}, in steps of at least "
                         f"its resolution, not from {first} by {step} to within {resolution}")
    found: dict[float, Result] = {}

    def taken(rate: float) -> bool:
        if rate not in found:
            found[rate] = run(rate)
        return found[rate].outcome is Outcome.CONVERGED

    low, high = 0.0, None
    number = 0
    while high is None:
        rate = first if number == 0 else round(min(step * number, highest), 6)
        if rate > low:
            if taken(rate):
                low = rate
            else:
                high = rate
        if rate == highest:
            break
        number += 1
    while high is not None and high - low > resolution * 1.0001:
        # In whole steps of the resolution, so that sweeps of different networks compare.
        middle = round(max(1, round((low + high) / 2 / resolution)) * resolution, 6)
        if not low < middle < high:
            break
        if taken(middle):
            low = middle
        else:
            high = middle
    taken(highest)
    return Curve(tuple(found[rate] for rate in sorted(found)))
