"""Recordings of the changes that a program makes to the files below a directory.

The program runs with `recorder.c` preloaded, which records changes by Python, SQLite, LMDB and Arrow. Changes are
recorded in the order in which the kernel made them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_HEAD = struct.Struct("<IIQQQ")
_DEADLINE_S = 300


class Kind(IntEnum):
    """The kinds of changes; the numbers are those of `recorder.c`."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    RENAME = 5
    UNLINK = 6
    MKDIR = 7
    RMDIR = 8
    LINK = 9
    SYNC_DIRECTORY = 10
    MARK = 11


class Change(NamedTuple):
    """One recorded system call."""

    kind: Kind
    inode: int
    offset: int
    """The offset of a write; the new size for a truncation."""
    path: str
    """The changed path; the old one for a rename or a link; the text of a mark."""
    data: bytes
    """The written bytes; the new path for a rename or a link."""


def missing_reason() -> str | None:
    """Return why programs cannot be recorded here, or None."""
    if sys.platform != "linux":
        return "calls are recorded on Linux only"
    return None if shutil.which("gcc") else "gcc is not installed: as root, apt-get install gcc"


@cache
def library() -> Path:
    """Build the library to preload, once per process, and return its path."""
    target = ROOT / "build" / f"recorder-{os.getpid()}.so"
    target.parent.mkdir(exist_ok=True)
    source = Path(__file__).with_name("recorder.c")
    flags = ("-O1", "-Wall", "-shared", "-fPIC", "-D_LARGEFILE64_SOURCE", "-U_FILE_OFFSET_BITS")
    subprocess.run(["gcc", *flags, "-o", str(target), str(source), "-ldl", "-lpthread"], check=True, cwd=ROOT)
    return target


def environment(root: Path, log: Path | None) -> dict[str, str]:
    """Return the environment in which a program's changes below *root* are recorded in *log*."""
    added = {"LD_PRELOAD": str(library()), "CRASH_ROOT": os.path.realpath(root)}
    return {**os.environ, **added, **({"CRASH_LOG": str(log)} if log else {})}


def record(root: Path, log: Path, *command: str, statuses: tuple[int, ...] = (0,), said: str = "") -> list[Change]:
    """Run *command* to its end with *said* as its standard input, and return its changes below *root*.

    Raises `AssertionError` with the output of a command that ends with another status than *statuses*.
    """
    log.unlink(missing_ok=True)
    done = subprocess.run(
        command, env=environment(root, log), cwd=ROOT, input=said.encode(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=_DEADLINE_S,
    )  # fmt: skip
    assert done.returncode in statuses, f"{command}: status {done.returncode}: {done.stdout.decode(errors='replace')}"
    return read(log)


def read(log: Path) -> list[Change]:
    """Return the changes in the file *log*."""
    data, at, found = log.read_bytes(), 0, []
    while at < len(data):
        kind, first, inode, offset, second = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        path = data[at : at + first].decode()
        found.append(Change(Kind(kind), inode, offset, path, data[at + first : at + first + second]))
        at += first + second
    return found


def mark(text: str) -> None:
    """Record *text* as a mark at this point of the program, if the program is recorded."""
    function = getattr(ctypes.CDLL(None), "crash_mark", None)
    if function is not None:
        function(text.encode())


def arm(changes: int) -> None:
    """Arrange that this process is killed before its change number *changes* from now on, counted from 1."""
    ctypes.CDLL(None).crash_arm(changes)
