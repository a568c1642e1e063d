"""Restore: a store made from a backup, in a new place.

Every file of the backup is checked against the manifest before anything is written: a damaged backup restores nothing.
The store is made in `TARGET.restoring`, read as recovery would read it, and renamed when it is complete; what a killed
restore leaves, the next one removes. A target that exists already, such as a mount point, is filled in place: its mark
is written last, so that brokers refuse what an interrupted restore leaves there. A restore that fails removes what it
wrote.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NamedTuple
from uuid import UUID

from ...analytics.scan.journal_directory import need_directory
from ...base.disk.real import RealDirectory
from ...base.errors import CairnError, CorruptJournal, ForeignStore, StoreInUse
from ...journal.files.file_copies import checksum, copy
from ...journal.format import log_mark as mark
from ...store.contract.layout import ARCHIVE_LEASE_NAME, JOURNAL_NAME
from ...store.directory.lock import is_in_use
from ...store.directory.refusals import RESTORING
from ...store.journaled.directory import OWN_NAMES, StoreDirectory
from ...store.wiring.copy import read_queue_names
from ...store.wiring.database import DatabaseAddress, parse_address
from ...store.wiring.location import tell_place
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME
from ...store.wiring.wiring import Wiring
from ..inspect.journal_check import Progress, byte_counter, check_journal
from ..repair.partial_directory import PartialDirectory
from . import manifest
from .manifest import MARK_FILE, BackedUpFile, Manifest

_MAY_BE_THERE = {"lost+found"}


class RestoreResult(NamedTuple):
    """The result of a completed restore."""

    manifest: Manifest
    messages: int
    queues: int


def restore(
    backup: str, target: str, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> RestoreResult:
    """Make a store at *target*, which does not exist or is empty, from *backup*.

    *connect* and *catalog*: put the wiring there, where none may be yet. Raises `CairnError`, and then leaves
    *target* as it was.
    """
    need_directory(backup, "name what `cairnmq backup` made")
    found = manifest.read(RealDirectory(backup))
    _refuse_target(target)
    if connect is None and catalog is not None:
        raise CairnError(f"--catalog {catalog!r}", "SQLite has no catalogs", "name a server with --connect")
    address = None if connect is None else parse_address(connect, catalog)
    if address is not None:
        with closing(Wiring.connect(address)) as wiring:
            if wiring.is_identified():
                raise ForeignStore(wiring.place, "a store's wiring already exists there", "name another --catalog")
    _check(backup, found, progress)
    if os.path.isdir(target):
        return _fill(backup, found, target, address, progress)
    with PartialDirectory(target, RESTORING, OWN_NAMES, "restored store") as partial:
        restored = _fill(backup, found, partial.path, address, progress, is_locked=True)
        partial.finish()
    return restored


def _fill(
    backup: str, found: Manifest, target: str, address: DatabaseAddress | None, progress: Progress, *,
    is_locked: bool = False,
) -> RestoreResult:  # fmt: skip
    """Make the store in the empty directory *target*; nothing is left there if that fails."""
    place = StoreDirectory(target, is_locked=is_locked)
    try:
        if set(place.journal.names()):
            raise CairnError(target, "the directory is not empty", "name one that does not exist")
        messages = _write(backup, found, place, progress)
        queues = len(read_queue_names(place.wiring_path))
        if address is not None:
            _move_wiring(place, UUID(found.store_uuid), address)
    except BaseException:
        _remove(target)
        raise
    finally:
        place.close()
    return RestoreResult(found, messages, queues)


def _refuse_target(target: str) -> None:
    if os.path.lexists(target) and not os.path.isdir(target):
        raise CairnError(target, "there is a file of that name", "name a directory that does not exist")
    names = set(RealDirectory(target).names()) - _MAY_BE_THERE if os.path.isdir(target) else set()
    if names and is_in_use(target):
        raise StoreInUse(target, "a broker runs on this store", "restore into another directory")
    if names:
        raise CairnError(target, "the directory is not empty", "name one that does not exist; nothing is ever replaced")


def _move_wiring(place: StoreDirectory, uuid: UUID, address: DatabaseAddress) -> None:
    """Move the wiring from the restored file to the server, in one transaction; the store is complete before and after.
    """
    old, new = Wiring.open(place.wiring_path), Wiring.connect(address)
    with closing(old), closing(new):
        old.migrate()
        new.restore(uuid, old.rows(), formatted=True)
    tell_place(place.path, address)
    root = RealDirectory(place.path)
    root.unlink(WIRING_NAME)
    root.sync()


def _check(backup: str, found: Manifest, progress: Progress) -> None:
    """Compare the files with the manifest. Raises `ForeignStore` for the first file that differs."""
    add = byte_counter("checking the backup", found.total_bytes, progress)
    for file in found.files:
        path = os.path.join(backup, file.name)
        if not os.path.isfile(path):
            raise ForeignStore(path, "missing, but listed in the manifest", "use another backup")
        size, crc = checksum(RealDirectory(os.path.dirname(path)), os.path.basename(path), add)
        _compare(path, file, size, crc)


def _compare(path: str, file: BackedUpFile, size_bytes: int, crc: str) -> None:
    if size_bytes != file.size_bytes:
        reason = f"damaged: it has {size_bytes} bytes; the manifest has {file.size_bytes}"
    elif crc != file.crc32c:
        reason = f"damaged: its CRC32C is {crc}; the manifest has {file.crc32c}"
    else:
        return
    raise ForeignStore(path, reason, "nothing was restored; use another backup")


def _write(backup: str, found: Manifest, place: StoreDirectory, progress: Progress) -> int:
    """Copy all of it, the mark last; how many messages are on queues then."""
    add = byte_counter("copying", found.total_bytes, progress)
    source = RealDirectory(os.path.join(backup, JOURNAL_NAME))
    files = {file.name: file for file in found.files}
    wiring, last = files.pop(WIRING_NAME), files.pop(MARK_FILE)
    lease = files.pop(ARCHIVE_LEASE_NAME, None)
    for file in files.values():
        name = os.path.basename(file.name)
        _copy(source, place.journal, file, name, name, add)
    place.journal.sync()
    root = RealDirectory(place.path)
    _copy(RealDirectory(backup), root, wiring, WIRING_NAME, WIRING_NAME, add)
    if lease is not None:
        _copy(RealDirectory(backup), root, lease, lease.name, lease.name, add)
    root.sync()
    _copy(source, place.journal, last, mark.NAME, mark.NAME + ".new", add)
    place.journal.rename(mark.NAME + ".new", mark.NAME)
    place.journal.sync()
    checked = check_journal(place.journal, "checking the store", progress)
    if checked.end_lsn != found.end_lsn:
        raise CorruptJournal(place.journal.path, f"it ends at LSN {checked.end_lsn}, the backup at {found.end_lsn}",
                             "use another backup", checked.end_lsn, found.end_lsn)  # fmt: skip
    return checked.messages


def _copy(
    source: RealDirectory, target: RealDirectory, file: BackedUpFile, name: str, new_name: str,
    tell: Callable[[int], None],
) -> None:
    old, new = source.open(name), target.create(new_name)
    with closing(old), closing(new):
        _compare(os.path.join(source.path, name), file, *copy(old, new, tell))


def _remove(target: str) -> None:
    """Take away what was written; what can't be is refused by every broker, for it has no mark."""
    with suppress(OSError):
        os.unlink(os.path.join(target, JOURNAL_NAME, mark.NAME))
    with suppress(OSError):
        for name in set(os.listdir(target)) - _MAY_BE_THERE:
            path = os.path.join(target, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
