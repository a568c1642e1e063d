"""Backup: a copy of a store at one LSN, taken while its broker runs.

The log is held first (`store.directory.Hold`): from then on none of its containers is overwritten or removed. Then the
log is read to its end, X, and its containers are copied; bytes at and after X read as zeros in the copy. The copy is
therefore the log as a crash at X would leave it, with all of it on the disk. Everything that was confirmed before the
backup began is below X and in the copy, and no record is partial.

The wiring is copied after the log, so it includes each queue that the log names; queues that are created meanwhile are
harmless. Queues that are destroyed meanwhile are marked as being deleted in the copy, so that recovery deletes their
content in the log. A wiring on a server is copied row by row, from one snapshot, into an SQLite file.

The copy is made in `DEST.partial`, read back as recovery would read it, and renamed when it is completely on the disk:
a directory with the final name is complete. A hold ends with its process. The next backup removes its remains.
"""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple

from ... import __version__
from ...base.clock import Clock
from ...base.disk.real import RealDirectory
from ...base.disk.seam import Directory
from ...base.errors import CairnError, CorruptJournal, MissingStore
from ...journal.files.file_copies import checksum, copy
from ...journal.format import container
from ...journal.format.log_mark import NAME as MARK_NAME
from ...journal.format.log_mark import Mark, MarkFile
from ...journal.read.scanner import Damage, LogReader
from ...store.contract.layout import ARCHIVE_LEASE_NAME, JOURNAL_NAME, MANIFEST_NAME
from ...store.directory.hold import Hold
from ...store.directory.kind import need_journal
from ...store.wiring.source import WiringSource
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME
from ..inspect.journal_check import Progress, byte_counter, check_journal
from ..repair.partial_directory import PartialDirectory
from . import manifest
from .manifest import MARK_FILE, BackedUpFile, Manifest

_OWN = {JOURNAL_NAME, WIRING_NAME, WIRING_NAME + "-journal", MANIFEST_NAME, ARCHIVE_LEASE_NAME}


class BackupResult(NamedTuple):
    """The result of a completed backup."""

    manifest: Manifest
    messages: int
    """The number of messages on queues in the backup."""


def back_up(
    store: str, target: str, clock: Clock, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> BackupResult:
    """Make a backup of *store* at *target*, which does not exist or is empty.

    *connect* and *catalog* name the server that the wiring is on. Raises `CairnError`, and then leaves nothing.
    """
    source = os.path.join(store, JOURNAL_NAME)
    need_journal(store)
    if not os.path.isdir(source):
        raise MissingStore(store, "not a store: it has no journal", "name the --store-dir of a broker")
    if MANIFEST_NAME in RealDirectory(store).names():
        raise MissingStore(store, "a backup, not a store", "copy its files as they are")
    _refuse_target(store, target)
    wiring = WiringSource(store, connect, catalog)
    begun = datetime.fromtimestamp(clock.wall_us() / 1e6, UTC)
    with PartialDirectory(target, ".partial", _OWN, "backup") as partial:
        journal = RealDirectory(os.path.join(partial.path, JOURNAL_NAME), create=True)
        before = wiring.queue_names()
        with Hold(store) as hold:

            def go_on(what: str, done: int, total: int) -> None:
                hold.check()
                progress(what, done, total)

            copied = copy_log(RealDirectory(source), journal, clock, go_on)
        uuid = LogReader(journal).log_uuid
        wiring.copy(os.path.join(partial.path, WIRING_NAME), uuid, before)
        checked = check_journal(journal, "checking", progress)
        if checked.end_lsn != copied.end_lsn:
            raise CorruptJournal(journal.path, f"the copy ends at LSN {checked.end_lsn}, the log at {copied.end_lsn}",
                                 "try again", checked.end_lsn, copied.end_lsn)  # fmt: skip
        files = [*copied.files, BackedUpFile(WIRING_NAME, *checksum(partial.directory, WIRING_NAME))]
        if os.path.exists(os.path.join(store, ARCHIVE_LEASE_NAME)):
            with closing(RealDirectory(store).open(ARCHIVE_LEASE_NAME)) as old, \
                 closing(partial.directory.create(ARCHIVE_LEASE_NAME)) as new:  # fmt: skip
                files.append(BackedUpFile(ARCHIVE_LEASE_NAME, *copy(old, new)))
        made = Manifest(
            __version__, str(uuid), begun.isoformat(timespec="microseconds"), copied.container_bytes,
            checked.base_lsn, checked.end_lsn, files,
        )  # fmt: skip
        manifest.write(partial.directory, made)
        partial.finish()
    return BackupResult(made, checked.messages)


class CopiedLog(NamedTuple):
    """The copied files of a log."""

    files: list[BackedUpFile]
    end_lsn: int
    container_bytes: int


def copy_log(source: Directory, target: Directory, clock: Clock, progress: Progress) -> CopiedLog:
    """Copy the log in *source*, which is held and may be written, into the empty *target*, up to where it ends now."""
    reader = LogReader(source)
    size, base_lsn = reader.container_bytes, reader.heads.base_lsn
    heads = {slot: reader.heads.by_slot[slot] for slot in reader.slots}
    end_lsn = _end_of(reader, len(heads) * size, progress)
    heads = {**{slot: reader.heads.by_slot[slot] for slot in reader.slots}, **heads}  # also what was begun since
    files: list[BackedUpFile] = []
    wanted = [(slot, head) for slot, head in sorted(heads.items()) if slot * size < end_lsn]
    add = byte_counter("copying", len(wanted) * size, progress)
    for slot, head in wanted:
        name = container.file_name(head.number)
        with closing(source.open(name)) as old, closing(target.create(name)) as new:
            copied = copy(old, new, add, keep_bytes=min(size, end_lsn - slot * size))
        files.append(BackedUpFile(f"{JOURNAL_NAME}/{name}", *copied))
    mark = Mark(True, reader.heads.incarnation, reader.log_uuid, size, 1, end_lsn, base_lsn, clock.wall_us())
    MarkFile.format(target, mark).close()
    return CopiedLog([*files, BackedUpFile(MARK_FILE, *checksum(target, MARK_NAME))], end_lsn, size)


def _end_of(reader: LogReader, total_bytes: int, progress: Progress) -> int:
    """The end of the log now. Raises `CorruptJournal` if something that was durable can't be read."""
    end_lsn = reader.heads.mark.durable_lsn
    add = byte_counter("reading", total_bytes, progress)
    for found in reader.scan():
        if isinstance(found, Damage):
            if reader.heads.read_error is None and not found.torn:
                raise CorruptJournal(
                    reader.directory.path, f"LSN {found.first_lsn} to {found.end_lsn} was durable and can't be read "
                    f"({found.reason})", "no backup was made; `cairnmq dump` shows the readable part",
                    found.first_lsn, found.end_lsn,
                )  # fmt: skip
            break
        end_lsn = found.end_lsn
        add(found.end_lsn - found.lsn)
    if reader.heads.read_error is not None:
        raise reader.heads.read_error
    return end_lsn


def _refuse_target(store: str, target: str) -> None:
    inside = os.path.realpath(store)
    if os.path.commonpath([inside, os.path.realpath(target)]) == inside:
        raise CairnError(target, "it lies within the store itself", "name a directory elsewhere")
    if os.path.lexists(target) and not os.path.isdir(target):
        raise CairnError(target, "there is a file of that name", "name a directory that does not exist")
    if os.path.isdir(target) and os.listdir(target):
        raise CairnError(target, "the directory is not empty", "name one that does not exist; nothing is ever replaced")
    if os.path.ismount(target):
        raise CairnError(target, "a mount point can't be replaced by the backup", "name a directory in it")

