"""The ``supernode`` command: one module per command, one dataclass of results per workload."""

from .main import main

__all__ = ["main"]
