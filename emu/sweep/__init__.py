"""Many independent runs: what a file asks for, processes that run them, one table of results.

Nothing here knows what a run is; ``supernode sweep`` (``emu/cli/sweep.py``) does. docs/sweep.md
explains the file and the table.
"""

from .document import Document, read_document
from .pool import LostRun, NoCluster, processes
from .table import KINDS, Table, TableError

__all__ = ["KINDS", "Document", "LostRun", "NoCluster", "Table", "TableError", "processes",
           "read_document"]
