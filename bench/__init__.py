"""Measurements behind the tables of docs/performance.md: ``python -m bench``."""
