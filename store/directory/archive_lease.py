"""The lease of an archive: of all copies of a store, one archives there.

Copies have one log UUID, and their blocks may be at equal places, so containers alone do not distinguish them.

File                   | content
ARCHIVE/UUID8.lease    | one token in hexadecimal digits, new with each opening; held with flock by the writer
STORE/archive.lease    | the last tokens that this store wrote, in lines, the newest first

The token is written to the store first: after a crash the store knows the archive's, be it the old or the new one. An
archive without a token is claimed by the first store whose log continues its containers.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing, suppress
from functools import partial
from uuid import UUID

from ...base.disk.file_lock import FileLock, lock_file
from ...base.disk.real import RealDirectory, RealFile, disk_errors
from ...base.disk.seam import Directory, ReadableDirectory
from ...base.errors import DiskError, DiskFull, ForeignStore, StoreInUse
from ...journal.files.archive import archived_lsn, lease_name
from ...journal.files.file_copies import NEW, new_file
from ...journal.format.container import BadContainer, file_name, read_head
from ...journal.read.container_chain import ChainedContainer, check_history
from ...journal.read.container_heads import ContainerHeads
from ..contract.layout import ARCHIVE_LEASE_NAME

_TOKEN_BYTES = 16
_MOST_TOKENS = 64
"""A store may alternate between archives, or have an earlier state of one restored, over so many openings."""
_LOOKS = 3


class ArchiveLease:
    """The lease of this process on the archive at *path* for the store at *store*, from `claim` to `close`."""

    def __init__(self, store: str, path: str) -> None:
        self._store = store
        self._path = path
        self._lock: FileLock | None = None

    def claim(self, journal: Directory) -> None:
        """Raises `StoreInUse` or `ForeignStore` if another copy of the store archives there, and `DiskError`."""
        heads = ContainerHeads(journal)
        place = os.path.join(self._path, lease_name(heads.log_uuid))
        try:
            self._lock = lock_file(place)
        except DiskFull:
            return  # nor does the archive have room for containers
        if self._lock is None:
            raise StoreInUse(place, "another copy of this store archives there", "name another --archive-dir")
        token, known = _token(place), _known(self._store)
        if not token:
            self._check_containers(heads, journal)
        elif token not in known:
            raise _foreign(self._store, place)
        new = secrets.token_hex(_TOKEN_BYTES)
        with suppress(DiskFull):  # the token that was there stays the last one
            self._record([new, *known])
            with disk_errors(place, "write"):
                os.pwrite(self._lock.fd, f"{new}\n".encode(), 0)
                os.fsync(self._lock.fd)
            RealDirectory(self._path).sync()

    def is_held(self) -> bool:
        """Return whether the archive is still this process's: its lease was not removed or replaced."""
        return self._lock is not None and self._lock.is_in_place()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _check_containers(self, heads: ContainerHeads, journal: Directory) -> None:
        archive = RealDirectory(self._path)
        own = [ChainedContainer(f"{journal.path}/{name}", head, partial(journal.open, name))
               for head in heads.by_slot.values() if head.slot_lsn >= heads.base_lsn
               for name in [file_name(head.number)]]  # fmt: skip
        check_history([*own, *chained_in(archive, heads.log_uuid)], heads.log_id)

    def _record(self, tokens: list[str]) -> None:
        root = RealDirectory(self._store)
        with suppress(DiskError):
            root.unlink(ARCHIVE_LEASE_NAME + NEW)
        with new_file(root, ARCHIVE_LEASE_NAME) as file:
            file.write_at(0, "".join(f"{token}\n" for token in tokens[:_MOST_TOKENS]).encode())
            file.sync()


def chained_in(archive: ReadableDirectory, log_uuid: UUID) -> list[ChainedContainer]:
    """Return the containers of a log in *archive* that have a whole head."""
    found: list[ChainedContainer] = []
    for name in archive.names():
        if archived_lsn(name) is not None and name.partition("-")[2].startswith(log_uuid.hex[:8]):
            with suppress(BadContainer, DiskError), closing(archive.open(name)) as file:
                head = read_head(file, name)
                if head.log_uuid == log_uuid:
                    found.append(ChainedContainer(name, head, partial(archive.open, name)))
    return found


def refuse_other_copy(journal: str, archive: str, log_uuid: UUID) -> None:
    """Raise `ForeignStore` if a copy of the store of the directory *journal* was the last to archive there."""
    place = os.path.join(archive, lease_name(log_uuid))
    store = os.path.dirname(os.path.abspath(journal))
    for _ in range(_LOOKS):  # a broker may open the store meanwhile
        token = _token(place)
        if not token or token in _known(store):
            return
    raise _foreign(store, place)


def _foreign(store: str, place: str) -> ForeignStore:
    remedy = f"use another --archive-dir; or, if {store} replaces the other copy here, remove "
    return ForeignStore(place, f"not of the history of {store}: another copy of that store archived there last",
                        f"{remedy}{place} and start a broker on it")  # fmt: skip


def _token(place: str) -> str:
    return next(iter(_lines(place)), "")


def _known(store: str) -> list[str]:
    return _lines(os.path.join(store, ARCHIVE_LEASE_NAME))


def _lines(place: str) -> list[str]:
    """Return the complete tokens in a file; none if it does not exist."""
    if not os.path.lexists(place):
        return []
    with closing(RealFile(place, os.O_RDONLY)) as file:
        text = file.read_at(0, _MOST_TOKENS * (2 * _TOKEN_BYTES + 1)).decode("ascii", "replace")
    return [line for line in text.splitlines() if len(line) == 2 * _TOKEN_BYTES]
