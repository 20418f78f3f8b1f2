"""The emulation engine: from RTL to a running supernode."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drivers.supernode import SuperNode
    from hdl.params import CardParams

__all__ = ["card_params", "open", "restore"]


def open(  # noqa: A001 (the public name is emu.open)
        spec: str, *, preset: str = "default", rails: int | None = None,
        reliable: bool | None = None, deadline: int = 0,
        progress: Callable[[str], None] | None = None, **options: Any) -> SuperNode:
    """Build the machine that ``spec`` describes and return it running.

    Parameters
    ----------
    spec : str
        Topology, such as ``"torus:4x4x4"``.
    preset : str
        Name of the card's parameter set; its routers get the ports that the topology needs.
    rails : int, optional
        Rails of every card, from 1 to 6; as the preset says if absent.
    reliable : bool, optional
        Links survive bit errors, or do not; as the preset says if absent.
    deadline : int
        Cycles after which a card gives up waiting for a response; 0 for never, see
        :class:`~drivers.supernode.SuperNode`.
    progress : callable, optional
        Hears what is being built, line by line.
    options :
        Of :class:`~emu.emulator.EngineBackend`, such as ``memory_bytes``, ``seed`` and ``faults``.

    Raises
    ------
    ValueError
        If the topology, the preset or an option is not accepted.
    BuildError, ToolchainError
        If the engine cannot be built.
    """
    from drivers.supernode import SuperNode
    from hdl.topology import parse

    from .emulator import EngineBackend

    return SuperNode(EngineBackend(parse(spec), card_params(preset, reliable, rails),
                                   progress=progress, **options), deadline=deadline)


def restore(path: str | os.PathLike[str], *, progress: Callable[[str], None] | None = None,
            **options: Any) -> SuperNode:
    """Return the machine that :meth:`~drivers.supernode.SuperNode.save` saved, going on from there
    with the same events at the same cycles, in this process or another.

    What it was asked to keep is in its ``kept``. A wait that a checkpoint interrupted goes on when
    the same handle is waited for.

    Parameters
    ----------
    path : str
        The file.
    progress : callable, optional
        Hears what is being built, line by line.
    options :
        How the machine is run: ``window`` and ``threads``.

    Raises
    ------
    CheckpointError
        If the file is damaged or no checkpoint, or of another machine than this version makes of
        the same parameters.
    BuildError, ToolchainError
        If the engine cannot be built.
    """
    from drivers.supernode import SuperNode

    from .checkpoint import CheckpointReader
    from .emulator import EngineBackend

    with CheckpointReader(path) as file:
        backend = EngineBackend.restored(file, progress=progress, **options)
    return SuperNode.restored(backend, backend.host)


def card_params(preset: str, reliable: bool | None = None, rails: int | None = None) -> CardParams:
    """Parameters of cards as :func:`open` takes them, without the ports of a topology."""
    from hdl.params import preset as find_preset

    params = find_preset(preset)
    router = params.router
    if reliable is not None:
        router = replace(router, link=replace(router.link, reliable=reliable))
    if rails is not None:
        router = replace(router, rails=rails)
    return replace(params, router=router)
