from typing import Any

from . import enum as enum

def __getattr__(name: str) -> Any: ...
