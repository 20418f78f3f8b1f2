"""A checkpoint file is whole or not there, and what is not whole is refused."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from emu.checkpoint import CheckpointError, CheckpointReader, CheckpointWriter
from emu.checkpoint.file import FORMAT

SECTIONS = {"first": b"some text " * 40, "none": b"", "noise": bytes(range(256))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ckpt"


def write(path: Path, sections: dict[str, bytes] = SECTIONS, **manifest: object) -> None:
    with CheckpointWriter(path, manifest) as file:
        for name, data in sections.items():
            file.add(name, data)


def refused(path: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        CheckpointReader(path)
    assert "\n" not in str(error.value) and path.name in str(error.value)


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file can be longer than ``size`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_everything_comes_back_and_nothing_else_is_there(path):
    write(path, cycle=7)
    with CheckpointReader(path) as file:
        assert file.manifest == {"cycle": 7}
        assert {name: file.read(name) for name in SECTIONS} == SECTIONS
        with pytest.raises(CheckpointError, match="no section 'second'"):
            file.read("second")
    assert list(path.parent.iterdir()) == [path]


def test_a_file_cut_off_anywhere_is_refused(path):
    write(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path, "is truncated or damaged|is not a checkpoint")
    path.write_bytes(whole + b"x")
    refused(path, "is damaged")


def test_a_flip_in_any_byte_is_noticed(path, seed):
    write(path)
    whole, random = path.read_bytes(), Random(seed)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        refused(path, "damaged|is not a checkpoint|has format version")


def test_sections_that_changed_places_are_refused(path):
    write(path, {"a": b"1" * 50, "b": b"2" * 50})
    with CheckpointReader(path) as file:
        (a, _, length), (b, _, other) = file._places["a"], file._places["b"]
    assert length == other
    whole, header = bytearray(path.read_bytes()), 35
    first, second = slice(a - header, a + length), slice(b - header, b + length)
    whole[first], whole[second] = whole[second], whole[first]
    path.write_bytes(whole)
    refused(path, "is damaged: its checksum")


def test_other_files_and_other_versions_are_refused(path):
    for foreign in (b"", b"\x93", b"hello world, this is text", b"PK\x03\x04" + bytes(100)):
        path.write_bytes(foreign)
        refused(path, "is not a checkpoint")
    write(path)
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + struct.pack("<I", FORMAT - 1) + raw[12:])
    refused(path, f"has format version {FORMAT - 1}: accepted is {FORMAT}")
    refused(path.with_name("absent"), "cannot read checkpoint .*No such file")
    refused(path.parent, "cannot read checkpoint .*Is a directory")


def test_a_full_disk_leaves_what_was_there(path):
    write(path, generation=1)
    noise = {f"noise {index}": os.urandom(10_000) for index in range(4)}
    # Full before the first byte, in each section, and between the last byte and the end.
    for size in (0, 5, 12, 9_000, 25_000, 40_100):
        with disk_of(size), pytest.raises(CheckpointError, match=r"cannot write checkpoint .*: "
                                          r"File too large; what was there is unchanged"):
            write(path, noise, generation=2)
        assert list(path.parent.iterdir()) == [path]
    with CheckpointReader(path) as file:
        assert file.manifest == {"generation": 1}
    write(path, noise, generation=2)
    with CheckpointReader(path) as file:
        assert file.manifest == {"generation": 2}


class _Interrupted(dict[str, bytes]):
    """Sections after which somebody presses Ctrl-C."""

    def items(self):
        yield from super().items()
        raise KeyboardInterrupt


def test_an_interrupt_leaves_what_was_there(path):
    write(path, generation=1)
    with pytest.raises(KeyboardInterrupt):
        write(path, _Interrupted(half=b"x" * 1000), generation=2)
    assert list(path.parent.iterdir()) == [path]
    with CheckpointReader(path) as file:
        assert file.manifest == {"generation": 1}


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"absent/a\.ckpt: No such file or directory"):
        write(tmp_path / "absent" / "a.ckpt")


KILLED = """
import os, sys
from pathlib import Path
from emu.checkpoint import CheckpointWriter
with CheckpointWriter(Path(sys.argv[1]), {"generation": 2}) as file:
    file.add("half", os.urandom(1 << 20))
    file._file.flush()
    print("half", flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_what_was_there_and_does_not_stand_in_the_way(path):
    write(path, generation=1)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"half\n"
        with pytest.raises(CheckpointError, match="another process is writing it"):
            write(path, generation=3)
        process.send_signal(signal.SIGKILL)
    with CheckpointReader(path) as file:
        assert file.manifest == {"generation": 1}
    write(path, generation=4)
    with CheckpointReader(path) as file:
        assert file.manifest == {"generation": 4}
    assert list(path.parent.iterdir()) == [path]
