"""Files and directories for their owner only, whatever the umask, and never through a symbolic link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def open_private(path: str, flags: int) -> int:
    """A descriptor of the file at *path*; an `opener` for `open`. A new file has mode 0600."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def make_private_directories(path: str) -> None:
    """Create the directory *path* and those above it that are missing, all with mode 0700."""
    if not path or os.path.isdir(path):
        return
    make_private_directories(os.path.dirname(path))
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def tighten_umask() -> int:
    """Have everything private that this process and its children create from now on; the umask that was."""
    before = os.umask(0o077)
    if before & ~0o077:
        os.umask(before | 0o077)
    return before


@contextmanager
def private_umask() -> Iterator[None]:
    """Make files that libraries create in this context private. The umask of the process is only tightened."""
    before = tighten_umask()
    try:
        yield
    finally:
        os.umask(before)


def shared_mode(path: str) -> int:
    """The permissions of the directory *path* if others than its owner can write to it, else 0."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return mode if mode & _OTHERS_WRITE else 0
