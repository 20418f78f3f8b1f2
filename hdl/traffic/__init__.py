"""Synthetic traffic in hardware: a tile that makes packets, checks packets and measures them."""

from .tile import TrafficTile

__all__ = ["TrafficTile"]
