"""``supernode bench --plot``: time and bus bandwidth against size."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["draw"]


def draw(title: str, rows: Sequence[Mapping[str, Any]], places: Mapping[str, str]) -> str:
    """Return an SVG of the rows of ``supernode bench``; ``places`` names each place."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    time, bandwidth = figure.subplots(1, 2)
    sizes = [row["size"] for row in rows]
    for place, name in places.items():
        line, = time.plot(sizes, [row[place]["time_us"] for row in rows], marker="o", label=name)
        bandwidth.plot(sizes, [row[place]["busbw_GBps"] for row in rows], marker="o", label=name)
        # Every row has one clock: the bound in its unit.
        time.plot(sizes, [row[place]["time_us"] * (row[place]["bound_cycles"]
                          / row[place]["cycles"] if row[place]["cycles"] else 0) for row in rows],
                  linestyle=":", color=line.get_color(), label=f"bound, {name}")
    time.set(xlabel="size, bytes", ylabel="time, µs", xscale="log", yscale="log")
    bandwidth.set(xlabel="size, bytes", ylabel="bus bandwidth, GB/s", xscale="log", ylim=(0, None))
    time.legend()
    figure.suptitle(title)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
