"""The calls of Linux that power cuts need and Python lacks: private mounts, loop devices, shutdown, partial write-back.

All of it needs root. Nothing is left behind, however it ends: mounts are seen by one thread and its children only
and go with it, a loop device goes with its last user, and a disk's content is memory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

MS_RDONLY = 1
_MS_PRIVATE_BELOW_ALL = 0x44000
_CLONE_NEWNS = 0x20000
_LOOP_CONFIGURE, _LOOP_CTL_GET_FREE = 0x4C0A, 0x4C82
_AUTOCLEAR = 4
_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN."""
_NO_LOG_FLUSH = struct.pack("I", 2)
_WRITE_AND_WAIT = 7
_libc = ctypes.CDLL(None, use_errno=True)

P = ParamSpec("P")
R = TypeVar("R")


def _checked(result: int, place: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)


def in_private_mounts(function: Callable[P, R]) -> Callable[P, R]:
    """Run *function* in a thread whose mounts are visible only to its own threads and processes."""

    def with_mounts_of_its_own(*args: P.args, **kwargs: P.kwargs) -> R:
        _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
        mount("none", "/", None, _MS_PRIVATE_BELOW_ALL)
        return function(*args, **kwargs)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(with_mounts_of_its_own, *args, **kwargs).result()

    return run


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    kind_name = None if kind is None else kind.encode()
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind_name, ctypes.c_ulong(flags), options.encode())
    _checked(result, target)


def unmount(target: str) -> None:
    """Unmount *target*. Raises `OSError` (EBUSY) while any process has a file open there."""
    _checked(_libc.umount2(os.fsencode(target), 0), target)


def attach(fd: int) -> tuple[int, str]:
    """Attach a loop device to the file *fd*; return its path, too. It is removed after its last close or unmount."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            path = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            info = bytes(52) + struct.pack("I", _AUTOCLEAR) + bytes(176)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, struct.pack("II", fd, 0) + info + bytes(64))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # somebody else was quicker
                    raise
            else:
                return device, path
    finally:
        os.close(control)


def shut_down(place: Path) -> None:
    """The file system at *place* stops at once: what it has not written back is lost, each later call fails (EIO)."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EIO:  # its disk failed first, and it has stopped by itself
            return
        raise
    try:
        fcntl.ioctl(fd, _SHUTDOWN, _NO_LOG_FLUSH)
    finally:
        os.close(fd)


def write_back(fd: int, offset: int, size_bytes: int) -> None:
    """Hand the dirty pages of that range of a file to the device, and wait; no metadata, no barrier."""
    _checked(_libc.sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(size_bytes), _WRITE_AND_WAIT), "fd")


def copy_data(source: int, target: int) -> None:
    """Copies the file *source*, without its holes, into the empty file *target* of the same size."""
    end = os.fstat(source).st_size
    at = 0
    while at < end:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        hole = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(target, at, os.SEEK_SET)
        while at < hole:
            at += os.sendfile(target, source, at, hole - at)
