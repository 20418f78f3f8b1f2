"""Traffic networks of tests, all of one kind of node, so that one model serves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emu.traffic import TrafficNetwork, traffic_params
from hdl.params import preset
from hdl.topology import parse

__all__ = ["traffic_network"]


@contextmanager
def traffic_network(spec: str, *, adaptive: bool | None = None,
                    **options: Any) -> Iterator[TrafficNetwork]:
    """Traffic nodes of preset ``booksim``."""
    shape, card = parse(spec), preset("booksim")
    network = TrafficNetwork(shape, traffic_params(shape, card, adaptive=adaptive), card, **options)
    yield network
    network.close()
