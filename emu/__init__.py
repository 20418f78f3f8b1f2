"""The emulation engine: from RTL to a running supernode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drivers.supernode import SuperNode

__all__ = ["open"]


def open(  # noqa: A001 (the public name is emu.open)
        spec: str, *, preset: str = "default", progress: Callable[[str], None] | None = None,
        **options: Any) -> SuperNode:
    """Build the machine that ``spec`` describes and return it running.

    Parameters
    ----------
    spec : str
        Topology, such as ``"torus:4x4x4"``.
    preset : str
        Name of the card's parameter set.
    progress : callable, optional
        Hears what is being built, line by line.
    options :
        Of :class:`~emu.emulator.EngineBackend`, such as ``memory_bytes`` and ``seed``.

    Raises
    ------
    ValueError
        If the topology, the preset or an option is not accepted.
    BuildError, ToolchainError
        If the engine cannot be built.
    """
    from drivers.supernode import SuperNode
    from hdl.params import preset as card_params
    from hdl.topology import parse

    from .emulator import EngineBackend

    return SuperNode(EngineBackend(parse(spec), card_params(preset), progress=progress, **options))
