"""Identification of the log in a damaged directory, whose mark may be missing, corrupt, or of another log.

The containers identify it too: each head names its log, and where no head is whole the blocks do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import NamedTuple
from uuid import UUID

from ..base.disk.seam import ReadableDirectory, ReadableFile
from ..base.errors import DiskError, ForeignStore
from ..journal.format import container
from ..journal.format import log_mark as mark
from ..journal.format.container import BadContainer
from ..journal.format.log_mark import Mark
from .salvageable import Finding, position_by_blocks


class NoLog(ForeignStore):
    """An error for a directory in which nothing identifies a log."""


class Identity(NamedTuple):
    """The mark to read a log by."""

    mark: Mark
    finding: Finding | None
    """The reason why `mark` is a substitute for the stored one, which claims nothing; None for the stored mark."""
    doubt: Finding | None = None
    """The reason why a newer mark may have existed."""


def identify(directory: ReadableDirectory, store_uuid: UUID | None = None) -> Identity:
    """Identify the log in *directory*; *store_uuid* is its UUID in SQL. Raises `NoLog` if nothing identifies it."""
    found, fault = _mark(directory)
    heads = _heads(directory)
    if found is not None:
        if not heads or any(uuid == found.log_uuid for uuid, _ in heads):
            return Identity(found, None, _doubt(directory))
        fault = f"it is of log {found.log_uuid}, of which there is no container"
    if not heads:
        heads = _by_blocks(directory)
    if not heads:
        reason = f"no journal: {mark.NAME}: {fault}; and no container has a readable header"
        raise NoLog(directory.path, reason, "name another directory, or restore a backup")
    (uuid, size), _ = max(heads.items(), key=lambda item: (item[0][0] == store_uuid, item[1]))
    finding = Finding("corrupt", 0, 0, mark.NAME, fault)
    return Identity(Mark(False, 0, uuid, size, 1, 0, 0, 0), finding)


def _mark(directory: ReadableDirectory) -> tuple[Mark | None, str]:
    if mark.NAME not in directory.names():
        return None, "it is missing"
    try:
        found = mark.read(directory)
    except DiskError as error:
        return None, error.reason
    return found, "" if found else "it has no intact copy"


def _doubt(directory: ReadableDirectory) -> Finding | None:
    if all(mark.read_places(directory)):
        return None
    fault = "one of its two copies is damaged; if it was the newer one, the end of the log is unknown"
    return Finding("corrupt", 0, 0, mark.NAME, fault)


def _containers(directory: ReadableDirectory) -> Iterator[tuple[str, ReadableFile]]:
    """Yield the containers that can be opened; each is closed when the iteration continues."""
    for name in directory.names():
        if container.file_number(name) is None:
            continue
        try:
            file = directory.open(name)
        except DiskError:
            continue
        with closing(file):
            yield name, file


def _heads(directory: ReadableDirectory) -> Counter[tuple[UUID, int]]:
    """Count the container heads that name each log UUID and container size."""
    counts: Counter[tuple[UUID, int]] = Counter()
    for name, file in _containers(directory):
        with suppress(BadContainer, DiskError):
            head = container.read_head(file, f"{directory.path}/{name}")
            counts[head.log_uuid, head.container_bytes] += 1
    return counts


def _by_blocks(directory: ReadableDirectory) -> Counter[tuple[UUID, int]]:
    """Count containers by log and size, without valid heads, from the half UUID in blocks and the file sizes."""
    counts: Counter[tuple[UUID, int]] = Counter()
    for _, file in _containers(directory):
        with suppress(DiskError):
            size = file.size_bytes()
            reported = position_by_blocks(file, size, None) if size else None
            if reported is not None:
                counts[UUID(bytes=reported.log_id.to_bytes(8, "little") + bytes(8)), size] += 1
    return counts
