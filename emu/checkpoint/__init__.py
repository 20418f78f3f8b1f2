"""Checkpoints: the whole machine in a file, and back; see docs/checkpoint.md."""

from .fabric import HOST, restore_fabric, save_fabric
from .file import CheckpointError, CheckpointReader, CheckpointWriter

__all__ = ["HOST", "CheckpointError", "CheckpointReader", "CheckpointWriter", "restore_fabric",
           "save_fabric"]
