"""Files created and copied durably."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from crc32c import crc32c

from ...base.disk.seam import Directory, File, ReadableDirectory, ReadableFile
from ...base.errors import DiskError

NEW = ".new"
"""The suffix of the name of an incomplete file."""
_PIECE_BYTES = 1 << 20


@contextmanager
def new_file(directory: Directory, name: str) -> Iterator[File]:
    """Create a file durably: the caller writes and syncs it, then it gets *name*. After a disk error it is removed."""
    file = directory.create(name + NEW)
    try:
        yield file
        directory.rename(name + NEW, name)
        directory.sync()
    except DiskError:
        for left in (name + NEW, name):
            with suppress(DiskError):  # the error that led here is the one to report
                directory.unlink(left)
        raise
    finally:
        file.close()


def checksum(
    directory: ReadableDirectory, name: str, report: Callable[[int], object] = lambda size_bytes: None
) -> tuple[int, str]:
    """Size and CRC32C of a file; *report* gets the bytes of each piece."""
    with closing(directory.open(name)) as file:
        size, crc = file.size_bytes(), 0
        for offset in range(0, size, _PIECE_BYTES):
            piece = file.read_at(offset, min(_PIECE_BYTES, size - offset))
            crc = crc32c(piece, crc)
            report(len(piece))
    return size, f"{crc:08x}"


def copy(
    source: ReadableFile, target: File, report: Callable[[int], object] = lambda size_bytes: None, *,
    keep_bytes: int | None = None,
) -> tuple[int, str]:  # fmt: skip
    """Copy all of *source* and sync it, zeros from *keep_bytes* on; its size and its CRC32C."""
    size, crc = source.size_bytes(), 0
    keep = size if keep_bytes is None else keep_bytes
    for offset in range(0, size, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, size - offset)
        kept = max(0, min(wanted, keep - offset))
        piece = (source.read_at(offset, kept) if kept else b"").ljust(wanted, b"\0")
        target.write_at(offset, piece)
        crc = crc32c(piece, crc)
        report(wanted)
    target.sync()
    return size, f"{crc:08x}"
