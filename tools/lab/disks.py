"""Disks in memory with real file systems on them, and two ways to cut their power.

On a `Disk`, the file system is shut down without a flush of its log: the disk keeps the data that was written back
until then. An ext4 that was shut down still writes metadata of uncommitted transactions when it is unmounted, unlike a
power cut, and btrfs does not support a shutdown. For them the disk stops first: its memory is sealed.

A `CachedDisk` accepts writes into a cache of its own. A power cut loses the writes that were not flushed, in any order.
The cache is the page cache of another ext4, on which the disk is a file: shutting that one down loses it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from . import kernel

MIB = 1 << 20
_PAGE_BYTES = 4096


class FileSystemKind(NamedTuple):
    """A kind of file system: how to make it, and its mount options."""

    size_bytes: int
    make: tuple[str, ...]
    options: tuple[str, ...] = ("",)
    has_shutdown: bool = True
    shutdown_is_final: bool = False
    """True if no data reaches the disk after it, including a later unmount."""


_MAKE_EXT4 = "mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"
KINDS = {
    "ext4": FileSystemKind(96 * MIB, _MAKE_EXT4, ("", "data=writeback", "data=journal", "nodelalloc")),
    "ext4 without a journal": FileSystemKind(0, (*_MAKE_EXT4, "-O", "^has_journal")),
    "xfs": FileSystemKind(300 * MIB, ("mkfs.xfs", "-q", "-f"), shutdown_is_final=True),
    "btrfs": FileSystemKind(128 * MIB, ("mkfs.btrfs", "-q", "-f", "--mixed"), has_shutdown=False),
}


class Disk:
    """A block device over a file in memory."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._fd = self._memory()
        self._device, self.path = kernel.attach(self._fd)

    def cut(self, random: Random) -> None:
        """Cut the power: no more data is written."""
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)

    def restart(self) -> None:
        """Turn the power on again; no process uses the device."""
        if not fcntl.fcntl(self._fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE:
            return
        os.close(self._device)
        sealed, self._fd = self._fd, self._memory()
        kernel.copy_data(sealed, self._fd)
        os.close(sealed)
        self._device, self.path = kernel.attach(self._fd)

    def close(self) -> None:
        os.close(self._device)
        os.close(self._fd)

    def _memory(self) -> int:
        fd = os.memfd_create("disk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, self._size_bytes)
        return fd


class CachedDisk(Disk):
    """A disk with a cache that a power cut takes, except for what was flushed."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._below = FileSystem("ext4 without a journal", Disk(size_bytes + size_bytes // 8 + 32 * MIB))
        self._below.mount()
        self._name = self._below.place / "disk"
        self._fd = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        for offset in range(0, size_bytes, MIB):  # written once, so that a flush has no metadata to write
            os.pwrite(self._fd, bytes(min(MIB, size_bytes - offset)), offset)
        os.fsync(self._fd)
        self._device, self.path = kernel.attach(self._fd)

    def cut(self, random: Random) -> None:
        """A random part of the cache has reached the platter."""
        if random.random() < 0.7:
            step = random.choice((4, 16, 64)) * _PAGE_BYTES
            for offset in range(0, self._size_bytes, 256 * step):
                at = offset + random.randrange(256) * step
                kernel.write_back(self._fd, at, random.choice((1, 16, 256)) * step)
        kernel.shut_down(self._below.place)

    def restart(self) -> None:
        super().close()
        self._below.unmount()
        self._below.mount()
        self._fd = os.open(self._name, os.O_RDWR | os.O_CLOEXEC)
        self._device, self.path = kernel.attach(self._fd)

    def close(self) -> None:
        super().close()
        self._below.close()


class FileSystem:
    """A file system on a disk of its own, mounted at `place` or not at all."""

    def __init__(self, kind: str, disk: Disk | None = None) -> None:
        self.kind = kind
        self.disk = disk or Disk(KINDS[kind].size_bytes)
        self._directory = TemporaryDirectory(prefix="cairnmq-powercut-")
        self.place = Path(self._directory.name)
        self._mounted = False
        subprocess.run([*KINDS[kind].make, self.disk.path], check=True, capture_output=True)

    def mount(self, options: str = "", *, read_only: bool = False) -> None:
        kind, flags = self.kind.split()[0], kernel.MS_RDONLY if read_only else 0
        kernel.mount(self.disk.path, str(self.place), kind, flags, options)
        self._mounted = True

    def unmount(self) -> None:
        """Unmount. Raises `OSError` (EBUSY) while any process has a file open on it."""
        kernel.unmount(str(self.place))
        self._mounted = False

    def cut(self, random: Random) -> None:
        """The power goes; to be unmounted and mounted again. *random* decides what a disk with a cache keeps."""
        if isinstance(self.disk, CachedDisk) or not KINDS[self.kind].shutdown_is_final:
            self.disk.cut(random)
        if KINDS[self.kind].has_shutdown:
            kernel.shut_down(self.place)

    def power_on(self, options: str = "") -> None:
        """Discard the data in the caches of the kernel, and mount the content of the disk."""
        self.unmount()
        self.disk.restart()
        self.mount(options)

    def close(self) -> None:
        if self._mounted:
            self.unmount()
        self.disk.close()
        self._directory.cleanup()


@cache
def unavailable_reason(kind: str, *, cached: bool = False) -> str:
    """The reason why the power of such a file system can't be cut on this machine; empty if it can."""
    if os.geteuid() != 0:
        return "cutting the power of a file system needs root"
    program = KINDS[kind].make[0]
    if shutil.which(program) is None:
        return f"{program} is not installed"
    try:
        return _try_out(kind, cached)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"loop mounts of {kind} do not work here: {error}"


@kernel.in_private_mounts
def _try_out(kind: str, cached: bool) -> str:
    with closing(FileSystem(kind, CachedDisk(KINDS[kind].size_bytes) if cached else None)) as system:
        system.mount()
        system.cut(Random(1))
        system.power_on()
    return ""
