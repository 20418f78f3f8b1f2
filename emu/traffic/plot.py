"""Load–latency curves as a drawing."""

from __future__ import annotations

import io
from collections.abc import Mapping

from .measure import Outcome
from .sweep import Curve

__all__ = ["plot", "require_matplotlib"]


def require_matplotlib() -> None:
    """Do nothing if plots can be made.

    Raises
    ------
    ValueError
        If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("plots need matplotlib: install it with pip install "
                         "'supernode-emulator[plot]'") from None


def plot(curves: Mapping[str, Curve], *, highest_latency: float = 200.0) -> str:
    """Return an SVG: mean latency over the offered rate, and accepted over offered rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    latency, accepted = figure.subplots(1, 2)
    for name, curve in curves.items():
        settled = [point for point in curve.points
                   if point.outcome is Outcome.CONVERGED and point.latency_mean is not None]
        line, = latency.plot([point.offered for point in settled],
                             [point.latency_mean for point in settled], marker="o", label=name)
        if curve.saturation is not None:
            latency.axvline(curve.saturation, linestyle=":", color=line.get_color())
        accepted.plot([point.offered for point in curve.points],
                      [point.accepted for point in curve.points], marker="o", label=name)
    latency.set(xlabel="offered, flits per node and cycle", ylabel="mean latency, cycles",
                ylim=(0, highest_latency))
    accepted.set(xlabel="offered, flits per node and cycle",
                 ylabel="accepted, flits per node and cycle", xlim=(0, None), ylim=(0, None))
    accepted.axline((0, 0), slope=1, linestyle=":", color="gray")
    latency.legend()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
