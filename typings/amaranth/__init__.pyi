# Amaranth carries no types. Only its enumerations matter to the type checker: their members are
# used as values outside the RTL.
from typing import Any

def __getattr__(name: str) -> Any: ...
