"""The disk seam over the operating system: pread, pwrite, fdatasync, fsync of the directory."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import CannotLink, DiskError, DiskFull, NotAFile
from .seam import Buffer, Directory

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNLINKABLE = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
_UNCHECKED_BYTES = 1 << 20
"""A read of more bytes allocates no more than the file has."""
_REMEDIES = {
    errno.ENOENT: "check the path; if it existed, restore it, or the target of its link",
    errno.EACCES: "check the owner and the permissions",
    errno.EPERM: "check the owner and the permissions",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "the disk failed: see the kernel log",
    errno.ENOTDIR: "name a directory",
    errno.ELOOP: "it is a symbolic link: put the file itself there",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def disk_error(place: str, action: str, error: OSError) -> DiskError:
    """Return the `DiskError` that describes *error* at *place*."""
    if error.errno in _FULL:
        return DiskFull(place, f"no space left ({action}: {error.strerror})", "free some space or raise the quota")
    return DiskError(place, f"{action} failed: {error.strerror}", _REMEDIES.get(error.errno or 0, ""))


@contextmanager
def disk_errors(place: str, action: str) -> Iterator[None]:
    """Raise the `DiskError` that describes an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise disk_error(place, action, error) from error


def link_error(place: str, action: str, error: OSError) -> DiskError:
    """Return the `DiskError` of a failed link: `CannotLink` where copying the file may succeed."""
    found = disk_error(place, action, error)
    return CannotLink(place, found.reason, "copy the file") if error.errno in _UNLINKABLE else found


def disk_usage(path: str) -> int:
    """Return the bytes that the file or directory at *path* takes on the disk."""
    total = 0
    with suppress(OSError):
        total = os.lstat(path).st_blocks * 512 if not os.path.isdir(path) else 0
    for root, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


def was_missing(error: DiskError) -> bool:
    """Return whether the file did not exist when it was opened; it may exist by now."""
    return isinstance(error.__cause__, FileNotFoundError)


def not_a_file(place: str) -> NotAFile:
    """Return the error for a directory, a pipe or a socket in the place of a file."""
    return NotAFile(place, "not a regular file", "restore the file that belongs there")


class RealFile:
    """A file descriptor. See `seam.File` for the promises."""

    def __init__(self, path: str, flags: int) -> None:
        self.name = os.path.basename(path)
        self._path = path
        self._fd = -1
        if flags & (os.O_WRONLY | os.O_RDWR):
            flags |= os.O_NOFOLLOW
        try:
            self._fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)  # a pipe would wait for its other end
            found = os.fstat(self._fd)
            mode, self._identity = found.st_mode, (found.st_dev, found.st_ino)
        except OSError as error:
            self.close()  # the disk may fail between the two
            if error.errno in (errno.EISDIR, errno.ENXIO):
                raise not_a_file(path) from error
            raise disk_error(path, "open", error) from error
        if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
            self.close()
            raise not_a_file(path)

    def size_bytes(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise disk_error(self._path, "fstat", error) from error

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        try:
            if size_bytes > _UNCHECKED_BYTES:
                size_bytes = min(size_bytes, max(0, os.fstat(self._fd).st_size - offset))
            data = os.pread(self._fd, size_bytes, offset)
            while len(data) < size_bytes:
                more = os.pread(self._fd, size_bytes - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk_error(self._path, f"read of {size_bytes} bytes at {offset}", error) from error
        return data

    def read_into(self, offset: int, view: memoryview) -> int:
        """Fill *view* with the bytes at *offset*; how many there were, fewer only where the file ends."""
        done = 0
        try:
            while done < len(view) and (got := os.preadv(self._fd, [view[done:]], offset + done)):
                done += got
        except OSError as error:
            raise disk_error(self._path, f"read of {len(view)} bytes at {offset}", error) from error
        return done

    def write_at(self, offset: int, data: Buffer) -> None:
        try:
            done = os.pwrite(self._fd, data, offset)
            if done != len(data):
                view = memoryview(data)
                while done < len(view):
                    done += os.pwrite(self._fd, view[done:], offset + done)
        except OSError as error:
            raise disk_error(self._path, f"write of {len(data)} bytes at {offset}", error) from error

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise disk_error(self._path, "fdatasync", error) from error

    def forget(self) -> None:
        with suppress(OSError):  # an advice: a file system without a page cache has nothing to drop
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def is_in_place(self) -> bool:
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDirectory:
    """A directory on disk; files are made with mode 0600, the directory with 0700, whatever the umask."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        with disk_errors(path, "create" if create else "open"):
            if create:
                _make_durably(os.path.abspath(path))
            os.listdir(path)

    def names(self) -> list[str]:
        with disk_errors(self.path, "list"):
            return sorted(os.listdir(self.path))

    def free_bytes(self) -> int:
        with disk_errors(self.path, "statvfs"):
            room = os.statvfs(self.path)
        return room.f_bavail * room.f_frsize

    def create(self, name: str) -> RealFile:
        return RealFile(os.path.join(self.path, name), os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, name: str, *, writable: bool = False) -> RealFile:
        return RealFile(os.path.join(self.path, name), os.O_RDWR if writable else os.O_RDONLY)

    def rename(self, old: str, new: str) -> None:
        with disk_errors(os.path.join(self.path, old), f"rename to {new}"):
            os.replace(os.path.join(self.path, old), os.path.join(self.path, new))

    def link(self, name: str, target: Directory, new_name: str) -> None:
        place = os.path.join(self.path, name)
        try:
            os.link(place, os.path.join(target.path, new_name))
        except OSError as error:
            raise link_error(place, f"link to {os.path.join(target.path, new_name)}", error) from error

    def link_count(self, name: str) -> int:
        with disk_errors(os.path.join(self.path, name), "stat"):
            return os.stat(os.path.join(self.path, name)).st_nlink

    def unlink(self, name: str) -> None:
        with disk_errors(os.path.join(self.path, name), "unlink"):
            os.unlink(os.path.join(self.path, name))

    def sync(self) -> None:
        with disk_errors(self.path, "fsync"):
            sync_path(self.path)


def _make_durably(path: str) -> None:
    """Create *path* and its missing parents; the names survive a power cut, even if an earlier attempt was killed."""
    parent = os.path.dirname(path)
    if not os.path.isdir(path):
        if not os.path.isdir(parent):
            _make_durably(parent)
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)
    sync_path(parent)


def sync_path(path: str) -> None:
    """Sync the file or directory at *path*. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
