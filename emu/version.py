"""The version of this product."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["product_version"]


def product_version() -> str:
    """As the installed package has it."""
    try:
        return version("supernode-emulator")
    except PackageNotFoundError:
        return "not installed"
