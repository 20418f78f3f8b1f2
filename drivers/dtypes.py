"""Element types by the names that the command line and the drivers use."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from hdl.compute.elements import ELEMENT_BYTES
from hdl.layouts import DType, Format

__all__ = ["DTYPES", "ElementType", "element_type", "reducible"]


@dataclass(frozen=True)
class ElementType:
    """One element type: its name, its numpy type and its codes in commands and descriptors."""

    name: str
    numpy: np.dtype
    #: Code in commands, or ``None`` if commands cannot name it.
    code: DType | None = None
    #: Code in GEMM descriptors, or ``None`` if no GEMM takes it.
    format: Format | None = None

    @property
    def size(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    def __str__(self) -> str:
        return self.name


DTYPES = {item.name: item for item in (
    ElementType("f32", np.dtype(np.float32), DType.F32, Format.F32),
    ElementType("bf16", np.dtype(ml_dtypes.bfloat16), DType.BF16),
    ElementType("f16", np.dtype(np.float16), DType.F16),
    ElementType("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), DType.E4M3, Format.E4M3),
    ElementType("e5m2", np.dtype(ml_dtypes.float8_e5m2), DType.E5M2, Format.E5M2),
    ElementType("i32", np.dtype(np.int32), DType.I32),
    ElementType("i8", np.dtype(np.int8), DType.I8),
    ElementType("u8", np.dtype(np.uint8)),
)}


def reducible() -> tuple[str, ...]:
    """Names of the types that cards reduce."""
    return tuple(name for name, kind in DTYPES.items() if kind.code in ELEMENT_BYTES)


def element_type(name: str | ElementType) -> ElementType:
    """Return the element type called ``name``.

    Raises
    ------
    ValueError
        If there is none.
    """
    if isinstance(name, ElementType):
        return name
    try:
        return DTYPES[name]
    except KeyError:
        raise ValueError(f"unknown dtype {name!r}: accepted are {', '.join(DTYPES)}") from None
