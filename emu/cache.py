"""The build cache: folders named by the content they were made from.

An entry is built in a folder of its own and renamed into place when it is whole, under a lock that
other processes asking for the same entry wait on. So an entry that exists is complete and was made
from exactly the content its key covers; nothing is ever updated in place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["BuildError", "Cache", "content_key", "default_root"]

_CHECKOUT = Path(__file__).resolve().parent.parent


class BuildError(RuntimeError):
    """A model could not be built; the message is one line."""


def default_root() -> Path:
    """Where the cache is: ``SUPERNODE_CACHE``, ``sim_build/cache`` of a checkout, or the user's
    cache folder when installed."""
    explicit = os.environ.get("SUPERNODE_CACHE")
    if explicit:
        return Path(explicit).expanduser().absolute()
    if (_CHECKOUT / "sim_build" / ".gitignore").exists():
        return _CHECKOUT / "sim_build" / "cache"
    return Path(platformdirs.user_cache_dir("supernode-emulator"))


def content_key(*parts: str | bytes) -> str:
    """Digest of ``parts``; where one part ends and the next begins matters."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()[:24]


class Cache:
    """Entries below one folder.

    Parameters
    ----------
    root : Path, optional
        The folder; :func:`default_root` if absent.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    def entry(self, name: str, key: str, build: Callable[[Path], None]) -> Path:
        """Return the folder of entry ``name`` with content ``key``; ``build(folder)`` fills it if
        it is not there.

        Raises
        ------
        BuildError
            If the cache cannot be written, or ``build`` raises it.
        """
        folder = self.root / f"{name}-{key}"
        if folder.is_dir():
            return folder
        with self._one_line():
            self.root.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.root / f"{folder.name}.lock")
            with lock:
                if not folder.is_dir():
                    self._build(folder, build)
        return folder

    def _build(self, folder: Path, build: Callable[[Path], None]) -> None:
        partial = folder.with_name(f"{folder.name}.partial")
        # Whoever left this behind was interrupted: the lock is ours.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            build(partial)
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise BuildError(f"no space left for the build cache {self.root}: free some, or "
                                 "set SUPERNODE_CACHE to another folder") from error
            raise BuildError(f"cannot write the build cache {self.root} "
                             f"({error.strerror or error}): set SUPERNODE_CACHE to a folder that "
                             "can be written") from error

    def clear(self) -> None:
        """Remove every entry.

        Raises
        ------
        BuildError
            If something cannot be removed.
        """
        if self.root.is_dir():
            with self._one_line():
                shutil.rmtree(self.root)
