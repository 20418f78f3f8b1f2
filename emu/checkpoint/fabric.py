"""A fabric's state as sections of a checkpoint.

``part N`` are the engine's parts (``engine/checkpoint.hpp``), ``memory N`` is what node N's memory
holds. The manifest has the fabric's *shape*: all that it was built from. A state goes back only
into a fabric of equal shape; what may differ is how a fabric is run (its window).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .file import CheckpointError, CheckpointReader, CheckpointWriter
from .pages import pack_memory, unpack_memory

if TYPE_CHECKING:
    from emu.fabric import Fabric

__all__ = ["HOST", "restore_fabric", "save_fabric"]

PRODUCT = "supernode-emulator"
#: Section of what belongs to the host, JSON.
HOST = "host"


def save_fabric(fabric: Fabric, path: Path, about: Mapping[str, Any],
                host: Mapping[str, Any]) -> None:
    """Write a checkpoint.

    ``about`` goes into the manifest, ``host`` is kept for whoever restores; both are JSON.

    Raises
    ------
    CheckpointError
        If the file cannot be written; what was there is unchanged, and the fabric can go on.
    """
    manifest = {"product": PRODUCT, "version": _version(), "cycle": fabric.cycle,
                "wall_s": fabric.statistics().wall_s, "threads": fabric.threads,
                "shape": fabric.shape(), **about}
    with CheckpointWriter(path, manifest) as file:
        file.add(HOST, json.dumps(host, allow_nan=False).encode())
        for part in range(fabric.parts):
            file.add(f"part {part}", fabric.save_part(part))
        for node in range(len(fabric.kinds)):
            if fabric.has_memory(node):
                file.add(f"memory {node}", pack_memory(fabric.memory_view(node)))


def restore_fabric(fabric: Fabric, file: CheckpointReader) -> dict[str, Any]:
    """Put a checkpoint's state into a fabric that has not been started; return what was kept for
    the host.

    Raises
    ------
    CheckpointError
        If the fabric is not of the shape of that which was saved. It cannot be used then.
    """
    difference = _difference(file.manifest["shape"], fabric.shape())
    if difference:
        raise CheckpointError(f"checkpoint {file.path} is of another machine: {difference}")
    try:
        for part in range(fabric.parts):
            fabric.restore_part(part, file.read(f"part {part}"))
        for node in range(len(fabric.kinds)):
            if fabric.has_memory(node):
                unpack_memory(file.read(f"memory {node}"), fabric.memory_view(node))
        fabric.resume()
    except (RuntimeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"checkpoint {file.path} cannot be restored: {error}") from error
    return json.loads(file.read(HOST))


def _difference(saved: Mapping[str, Any], present: Mapping[str, Any]) -> str | None:
    """What differs between two shapes, in words."""
    names = [kind["name"] for kind in present["kinds"]]
    for place, kind in enumerate(saved["kinds"]):
        if kind["name"] not in names:
            return f"it has nodes of kind {kind['name']}, and here are {', '.join(names)}"
        alike = place if names[place:place + 1] == [kind["name"]] else names.index(kind["name"])
        here = present["kinds"][alike]
        for then, now in zip(kind["tiles"], here["tiles"], strict=False):
            if then["model"] != now["model"]:
                return (f"tile {then['name']} of {kind['name']} has other RTL, {then['model']} "
                        f"there and {now['model']} here")
            if then["layout"] != now["layout"]:
                return (f"tile {then['name']} of {kind['name']} was built otherwise, with state "
                        f"layout {then['layout']} there and {now['layout']} here")
    for key, there in saved.items():
        if there != present.get(key):
            texts = [text if len(text := json.dumps(value)) < 60 else "another"
                     for value in (there, present.get(key))]
            return f"{key} is {texts[0]} there and {texts[1]} here"
    return None


def _version() -> str:
    try:
        return version(PRODUCT)
    except PackageNotFoundError:
        return "not installed"
