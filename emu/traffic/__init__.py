"""Synthetic traffic on the engine: patterns, BookSim's method of measurement, load–latency curves.

Every card of a topology is replaced by a traffic node (``hdl/traffic``); switches stay what they
are. docs/traffic.md explains the method and the figures.
"""

from .measure import Outcome, Result, measure
from .network import TrafficNetwork, network_kinds
from .patterns import PATTERNS, Pattern, parse_pattern
from .setup import Load, traffic_params
from .sweep import Curve, sweep

__all__ = ["PATTERNS", "Curve", "Load", "Outcome", "Pattern", "Result", "TrafficNetwork",
           "measure", "network_kinds", "parse_pattern", "sweep", "traffic_params"]
