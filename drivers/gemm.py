"""GEMM descriptors from arrays."""

from __future__ import annotations

from hdl.layouts import Format

from .commands import Gemm
from .memory import Array

__all__ = ["describe_gemm"]


def describe_gemm(a: Array, b: Array, c: Array, *, b_transposed: bool = False) -> Gemm:
    """Return the descriptor of C[m×n] = A[m×k] · B[k×n], or of A · Bᵀ with B[n×k].

    Raises
    ------
    ValueError
        If the arrays are not matrices of matching shapes on one card, or of types that the array
        does not multiply: A and B e4m3 or e5m2 in any mix, C f32.
    """
    for name, array in (("A", a), ("B", b), ("C", c)):
        if len(array.shape) != 2:
            raise ValueError(f"{name} must be a matrix, not of shape {list(array.shape)}")
        if array.card != a.card:
            raise ValueError(f"{name} is on card {array.card} and A on card {a.card}: a GEMM works "
                             f"in one card's memory")
    formats = [_operand_format(name, array) for name, array in (("A", a), ("B", b))]
    if c.dtype.format is not Format.F32:
        raise ValueError(f"C must be f32, not {c.dtype}")
    (m, k), (rows, columns) = a.shape, b.shape
    inner, n = (columns, rows) if b_transposed else (rows, columns)
    if inner != k or c.shape != (m, n):
        orientation = "n×k" if b_transposed else "k×n"
        raise ValueError(f"shapes A {m}×{k}, B {rows}×{columns} ({orientation}) and C "
                         f"{c.shape[0]}×{c.shape[1]} do not match")
    return Gemm(m=m, n=n, k=k, a=a.offset, b=b.offset, c=c.offset, lda=k, ldb=columns, ldc=4 * n,
                a_format=formats[0], b_format=formats[1], b_transposed=b_transposed)


def _operand_format(name: str, array: Array) -> Format:
    if array.dtype.format not in (Format.E4M3, Format.E5M2):
        raise ValueError(f"{name} must be e4m3 or e5m2, not {array.dtype}")
    return array.dtype.format
