# Like the standard enumerations, with a shape in hardware; members are added by subclasses.
import enum as _enum
from typing import Any

class Enum(_enum.Enum):  # type: ignore[misc]
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class IntEnum(_enum.IntEnum):  # type: ignore[misc]
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class Flag(_enum.Flag):  # type: ignore[misc]
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

class IntFlag(_enum.IntFlag):  # type: ignore[misc]
    def __init_subclass__(cls, *, shape: Any = ..., view_class: Any = ...) -> None: ...

auto = _enum.auto
unique = _enum.unique
