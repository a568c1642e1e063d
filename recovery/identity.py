"""Whose log a damaged directory holds, when its mark may be gone, rotten, or another log's.

The containers say it too: each head names its log, and where no head is whole the blocks do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from ..base.errors import DiskError, ForeignStore
from ..disk.seam import Directory, File
from ..journal import container, mark
from ..journal.container import BadContainer
from ..journal.mark import Mark
from .remains import Finding, told_by_blocks


class NoLog(ForeignStore):
    """Nothing in the directory tells of a log."""


class Identity(NamedTuple):
    """The mark to read a log by."""

    mark: Mark
    finding: Finding | None
    """Why it is not the one that is there; then it was made up, claims nothing, and is to be shown in its place."""
    doubt: Finding | None = None
    """Why there may have been a newer one."""


def identify(directory: Directory, store_uuid: UUID | None = None) -> Identity:
    """The log in *directory*; *store_uuid* is what SQL calls it. `NoLog` if nothing tells."""
    found, why = _mark(directory)
    heads = _heads(directory)
    if found is not None:
        if not heads or any(uuid == found.log_uuid for uuid, _ in heads):
            return Identity(found, None, _doubt(directory))
        why = f"it is of log {found.log_uuid}, of which there is no container"
    if not heads:
        heads = _told(directory)
    if not heads:
        raise NoLog(directory.path, f"no journal: {mark.NAME}: {why}; and no container tells whose it is")
    (uuid, size), _ = max(heads.items(), key=lambda item: (item[0][0] == store_uuid, item[1]))
    finding = Finding("corrupt", 0, 0, mark.NAME, why)
    return Identity(Mark(False, 0, uuid, size, 1, 0, 0, 0), finding)


def _mark(directory: Directory) -> tuple[Mark | None, str]:
    if mark.NAME not in directory.names():
        return None, "it is missing"
    try:
        found = mark.read(directory)
    except DiskError as error:
        return None, error.reason
    return found, "" if found else "it holds no whole mark"


def _doubt(directory: Directory) -> Finding | None:
    if all(mark.read_places(directory)):
        return None
    why = "one of its two places holds no whole mark; if that was the newer one, nothing tells how far the log went"
    return Finding("corrupt", 0, 0, mark.NAME, why)


def _containers(directory: Directory) -> Iterator[tuple[str, File]]:
    """The containers that can be opened, open for as long as they are looked at."""
    for name in directory.names():
        if container.file_number(name) is None:
            continue
        try:
            file = directory.open(name)
        except DiskError:
            continue
        try:
            yield name, file
        finally:
            file.close()


def _heads(directory: Directory) -> Counter[tuple[UUID, int]]:
    """How many containers say that they are of a log with containers of a size."""
    counts: Counter[tuple[UUID, int]] = Counter()
    for name, file in _containers(directory):
        with suppress(BadContainer, DiskError):
            head = container.read_head(file, f"{directory.path}/{name}")
            counts[head.log_uuid, head.container_bytes] += 1
    return counts


def _told(directory: Directory) -> Counter[tuple[UUID, int]]:
    """The same where no head is whole: blocks know the first half of the log's UUID, files their size."""
    counts: Counter[tuple[UUID, int]] = Counter()
    for _, file in _containers(directory):
        with suppress(DiskError):
            size = file.size_bytes()
            told = told_by_blocks(file, size, None) if size else None
            if told is not None:
                counts[UUID(bytes=told.log_id.to_bytes(8, "little") + bytes(8)), size] += 1
    return counts
