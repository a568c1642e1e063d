"""Backup: a copy of a store at one LSN, taken while its broker runs.

The log is held first (`store.directory.Hold`): from then on no container that is in it is overwritten or removed.
Then the log is read to its end, X, and its containers are copied; what stands at X and behind it reads as zeros in
the copy. So the copy is the log as a crash at X would leave it, with all of it on the disk: everything that was
confirmed before the backup began is in it, since it stands below X, and nothing is in it by half. The wiring is
copied after the log, so it knows each queue that the log knows; queues made meanwhile do no harm. Those destroyed
meanwhile are noted as going in the copy, so that recovery deletes what the log still has on them. A wiring on a
server is copied row by row, as of one moment, into an SQLite file.

The copy is made in `DEST.partial`, read back as recovery would read it, and renamed when all of it is on the disk: what
has the final name is whole. A hold ends with the process, and what a killed one leaves the next one clears away.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple

from ..base.clock import Clock
from ..base.errors import CairnError, CorruptJournal, ForeignStore
from ..disk.real import RealDirectory
from ..disk.seam import Directory
from ..journal import container
from ..journal.container import ContainerHead
from ..journal.mark import Mark, MarkFile
from ..journal.reader import Damage, LogReader
from ..store.directory import Hold
from ..store.kind import need_journal
from ..store.names import JOURNAL_NAME, MANIFEST_NAME
from ..store.wiring import FILE_NAME as WIRING_NAME
from ..store.wiring_source import WiringSource
from . import manifest
from .checking import Progress, check_journal
from .file_copies import checksum, copy
from .manifest import MARK_FILE, BackedUp, Manifest

PARTIAL = ".partial"
_OWN = {JOURNAL_NAME, WIRING_NAME, WIRING_NAME + "-journal", MANIFEST_NAME}


class Made(NamedTuple):
    """A backup that is there."""

    manifest: Manifest
    messages: int
    """On queues, in the backup."""


def back_up(
    store: str, target: str, clock: Clock, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> Made:
    """Make a backup of *store* at *target*, which does not exist or is empty.

    *connect* and *catalog* name the server that the wiring is on. Raises `CairnError`, and then leaves nothing.
    """
    source = os.path.join(store, JOURNAL_NAME)
    need_journal(store)
    if not os.path.isdir(source):
        raise ForeignStore(store, "not a store: it has no journal", "name the --store-dir of a broker")
    if MANIFEST_NAME in RealDirectory(store).names():
        raise ForeignStore(store, "a backup, not a store", "copy its files as they are")
    _refuse_target(store, target)
    wiring = WiringSource(store, connect, catalog)
    begun = datetime.fromtimestamp(clock.wall_us() / 1e6, UTC)
    with _Partial(target) as partial:
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
        files = [*copied.files, BackedUp(WIRING_NAME, *checksum(partial.directory, WIRING_NAME, lambda _: None))]
        made = Manifest(
            version("cairnmq"), str(uuid), begun.isoformat(timespec="microseconds"), copied.container_bytes,
            checked.base_lsn, checked.end_lsn, files,
        )  # fmt: skip
        manifest.write(partial.directory, made)
        partial.finish()
    return Made(made, checked.messages)


class Copied(NamedTuple):
    """What was copied of a log."""

    files: list[BackedUp]
    end_lsn: int
    container_bytes: int


def copy_log(source: Directory, target: Directory, clock: Clock, progress: Progress) -> Copied:
    """Copy the log in *source*, which is held and may be written, into the empty *target*, up to where it ends now."""
    reader = LogReader(source)
    size, base_lsn = reader.container_bytes, reader.base_lsn
    heads = {slot: reader.heads[slot] for slot in reader.slots}
    end_lsn = _end_of(reader, len(heads) * size, progress)
    heads = {**{slot: reader.heads[slot] for slot in reader.slots}, **heads}  # also what was begun since
    files: list[BackedUp] = []
    wanted = [(slot, head) for slot, head in sorted(heads.items()) if slot * size < end_lsn]
    done = 0

    def tell(some_bytes: int) -> None:
        nonlocal done
        done += some_bytes
        progress("copying", done, len(wanted) * size)

    for slot, head in wanted:
        files.append(_copy_container(source, target, head, min(size, end_lsn - slot * size), tell))
    mark = Mark(True, reader.incarnation, reader.log_uuid, size, 1, end_lsn, base_lsn, clock.wall_us())
    MarkFile.format(target, mark).close()
    name = MARK_FILE.rpartition("/")[2]
    return Copied([*files, BackedUp(MARK_FILE, *checksum(target, name, lambda _: None))], end_lsn, size)


def _copy_container(
    source: Directory, target: Directory, head: ContainerHead, keep_bytes: int, tell: Callable[[int], None]
) -> BackedUp:
    name = container.file_name(head.number)
    old, new = source.open(name), target.create(name)
    try:
        return BackedUp(f"{JOURNAL_NAME}/{name}", *copy(old, new, tell, keep_bytes=keep_bytes))
    finally:
        old.close()
        new.close()


def _end_of(reader: LogReader, total_bytes: int, progress: Progress) -> int:
    """Where the log ends now. `CorruptJournal` if something that was durable can't be read."""
    end_lsn = reader.mark.durable_lsn
    done = 0
    for found in reader.scan():
        if isinstance(found, Damage):
            if reader.read_error is None and not found.torn:
                raise CorruptJournal(
                    reader.directory.path, f"LSN {found.first_lsn} to {found.end_lsn} was durable and can't be read "
                    f"({found.why})", "no backup was made; `cairnmq dump` shows what is whole",
                    found.first_lsn, found.end_lsn,
                )  # fmt: skip
            break
        end_lsn = found.end_lsn
        done += found.end_lsn - found.lsn
        progress("reading", min(done, total_bytes), total_bytes)
    if reader.read_error is not None:
        raise reader.read_error
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


class _Partial:
    """A backup in the making, under a name of its own; gone at the end unless it is finished."""

    def __init__(self, target: str) -> None:
        self._target = os.path.realpath(target)
        self.path = self._target + PARTIAL
        self._finished = False

    def __enter__(self) -> _Partial:
        self.directory = RealDirectory(self.path, create=True)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise CairnError(self.path, "another backup is being made there", "name another directory") from error
        strangers = set(self.directory.names()) - _OWN
        if strangers:
            os.close(self._lock)
            raise CairnError(self.path, f"in the way, and not a backup (it holds {min(strangers)!r})", "move it away")
        for name in self.directory.names():  # an earlier one was killed
            place = os.path.join(self.path, name)
            shutil.rmtree(place) if os.path.isdir(place) else os.unlink(place)
        return self

    def finish(self) -> None:
        """All files are synced: give the backup its name."""
        self.directory.sync()
        parent = RealDirectory(os.path.dirname(self._target))
        parent.rename(os.path.basename(self.path), os.path.basename(self._target))
        self._finished = True
        parent.sync()

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
