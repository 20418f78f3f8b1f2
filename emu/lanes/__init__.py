"""Lane-parallel models: a tile as straight-line C++ that advances many copies of it at once.

``netlist`` takes Amaranth's own netlist of a tile, ``lower`` turns its cells into gates and blocks
on planes (``graph``), ``plan`` orders them and finds what can be left out of a cycle, ``emit``
writes the C++ and ``pins`` joins it to the engine.
"""

from .build import SOURCES, LaneTile, model_sources

__all__ = ["SOURCES", "LaneTile", "model_sources"]
