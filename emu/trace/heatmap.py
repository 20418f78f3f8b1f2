"""A heat map of links over time: the share of cycles with a flit, and that without a credit."""

from __future__ import annotations

import io

from .links import LinkMeter

__all__ = ["heatmap"]


def heatmap(meter: LinkMeter, title: str) -> str:
    """The SVG of what ``meter`` measured: a row per directed link, a column per period."""
    from matplotlib.figure import Figure

    columns = max(1, -(-meter.cycles // meter.period))
    figure = Figure(figsize=(12, max(3.0, min(12.0, 1.5 + 0.12 * len(meter.links)))),
                    layout="constrained")
    figure.suptitle(title)
    names = [f"{each.source} port {each.port} to {each.target}" for each in meter.figures()]
    for axes, what, counts in zip(figure.subplots(1, 2, sharey=True),
                                  ("utilisation", "credit stall"),
                                  (meter.flits_by_period, meter.stalls_by_period), strict=True):
        image = axes.imshow(
            counts[:, :columns] / meter.period, aspect="auto", interpolation="nearest",
            cmap="viridis", vmin=0, vmax=1,
            extent=(0, columns * meter.period, len(names) - 0.5, -0.5))
        axes.set_xlabel("cycle")
        axes.set_title(what)
        figure.colorbar(image, ax=axes, label="share of cycles")
        if len(names) <= 64:
            axes.set_yticks(range(len(names)), names, fontsize=5)
        else:
            axes.set_ylabel("link")
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()
