"""The file of a checkpoint: whole or not there, and whole or refused.

::

    magic, format version
    section: length of the name, raw size, stored size, digest of what is stored; name; data
    …
    end: a section without name or data, whose digest covers the magic and all section headers

Data are compressed with Zstandard. The digests of the sections are in their headers and the digest
of the end is over all headers, so no bit of the file can change unnoticed, and what is cut off has
no end. The first section is the manifest, JSON that says what the file is.

A file is written beside its place, flushed to the disk and then renamed: whatever happens meanwhile
(a full disk, an interrupt, the end of the process), what was there before stays as it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import zstandard

__all__ = ["FORMAT", "CheckpointError", "CheckpointReader", "CheckpointWriter"]

#: Changes with everything that makes an older file unreadable.
FORMAT = 1
MANIFEST = "manifest"

_MAGIC = b"\x93SNCKPT\n"
_START = struct.Struct("<8sI")
_SECTION = struct.Struct("<HQQ16s")
#: Compression that keeps up with a disk: states of tiles shrink to a few per cent all the same.
_LEVEL = 1


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or a file is not one that can be restored here; the message
    is one line."""


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=16).digest()


class CheckpointWriter:
    """Writes a checkpoint; leaving its ``with`` block without an exception puts it in place.

    Raises
    ------
    CheckpointError
        If the file cannot be written. Nothing is left of it, and what was at ``path`` is unchanged.
    """

    def __init__(self, path: Path, manifest: Mapping[str, Any]) -> None:
        # A link keeps pointing where it points.
        self.path = Path(os.path.realpath(path))
        self._manifest = manifest
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._headers = blake2b(digest_size=16)

    def __enter__(self) -> CheckpointWriter:
        try:
            self._file = self._open()
        except BlockingIOError as error:
            raise CheckpointError(f"cannot write checkpoint {self.path}: another process is "
                                  "writing it") from error
        except OSError as error:
            raise self._failure(error) from error
        try:
            start = _START.pack(_MAGIC, FORMAT)
            self._headers.update(start)
            self._write(start)
            self.add(MANIFEST, json.dumps(self._manifest, allow_nan=False).encode())
        except BaseException:
            self._discard()
            raise
        return self

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Append a section."""
        stored = self._compressor.compress(data)
        self._section(name, len(data), stored)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._write(_SECTION.pack(0, 0, 0, self._headers.digest()))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._partial.replace(self.path)
            self._file.close()
            self._sync_folder()
        except OSError as problem:
            self._discard()
            raise self._failure(problem) from problem
        except BaseException:
            self._discard()
            raise

    def _open(self) -> BinaryIO:
        # One name for all: the next to write takes over what a killed process has left. The lock
        # ends with its process.
        file = self._partial.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(file.fileno()), self._partial.stat()):
                raise BlockingIOError  # it has become somebody's checkpoint in the meantime
            file.truncate(0)
        except BaseException:
            file.close()
            raise
        return file

    def _section(self, name: str, raw: int, stored: bytes) -> None:
        title = name.encode()
        header = _SECTION.pack(len(title), raw, len(stored), _digest(stored)) + title
        self._headers.update(header)
        self._write(header)
        self._write(stored)

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failure(error) from error

    def _sync_folder(self) -> None:
        # Not every file system can; the name is then on the disk a little later.
        with suppress(OSError):
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _discard(self) -> None:
        self._partial.unlink(missing_ok=True)
        with suppress(OSError):  # what it still holds back has no place either
            self._file.close()

    def _failure(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"cannot write checkpoint {self.path}: {error.strerror or error}; "
                               "what was there is unchanged")


class CheckpointReader:
    """A checkpoint that has been read and checked as a whole.

    Attributes
    ----------
    manifest : dict
        What the file says of itself.

    Raises
    ------
    CheckpointError
        If the file cannot be read, is no checkpoint, is of another format version, or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._places: dict[str, tuple[int, int, int]] = {}
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror}") from error
        try:
            self._check()
            self.manifest: dict[str, Any] = json.loads(self.read(MANIFEST))
        except OSError as error:
            self.close()
            raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def read(self, name: str) -> bytes:
        """The data of a section."""
        if name not in self._places:
            raise CheckpointError(f"checkpoint {self.path} has no section {name!r}")
        place, raw, stored = self._places[name]
        self._file.seek(place)
        try:
            data = zstandard.ZstdDecompressor().decompress(self._file.read(stored),
                                                           max_output_size=raw)
        except zstandard.ZstdError as error:
            raise self._damaged(name) from error
        if len(data) != raw:
            raise self._damaged(name)
        return data

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of the sections."""
        return tuple(self._places)

    def stored(self, name: str) -> int:
        """Bytes that a section takes in the file."""
        return self._places[name][2]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _check(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        start = self._file.read(_START.size)
        if start[:len(_MAGIC)] != _MAGIC:
            raise CheckpointError(f"{self.path} is not a checkpoint")
        if len(start) < _START.size:
            raise self._truncated()
        version = _START.unpack(start)[1]
        if version != FORMAT:
            raise CheckpointError(f"checkpoint {self.path} has format version {version}: "
                                  f"accepted is {FORMAT}")
        headers = blake2b(start, digest_size=16)
        while True:
            header = self._file.read(_SECTION.size)
            if len(header) < _SECTION.size:
                raise self._truncated()
            length, raw, stored, digest = _SECTION.unpack(header)
            if not length:
                break
            title = self._file.read(length)
            if size < self._file.tell() + stored or len(title) < length:
                raise self._truncated()
            name = title.decode(errors="replace")
            place = self._file.tell()
            if self._digest(stored) != digest:
                raise self._damaged(name)
            headers.update(header + title)
            self._places[name] = place, raw, stored
        end = _SECTION.pack(0, 0, 0, headers.digest())
        if header != end or self._file.tell() != size:
            raise CheckpointError(f"checkpoint {self.path} is damaged: its checksum does not match")

    def _digest(self, stored: int) -> bytes:
        found = blake2b(digest_size=16)
        while stored:
            part = self._file.read(min(stored, 1 << 20))
            if not part:
                raise self._truncated()
            found.update(part)
            stored -= len(part)
        return found.digest()

    def _truncated(self) -> CheckpointError:
        return CheckpointError(f"checkpoint {self.path} is truncated or damaged")

    def _damaged(self, name: str) -> CheckpointError:
        return CheckpointError(f"checkpoint {self.path} is damaged: the checksum of section "
                               f"{name!r} does not match")
