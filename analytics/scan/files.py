"""Files of a log at a point in time: those to be read for a range of LSNs, and the missing ranges.

A log is read while its broker writes, recycles and compacts it. The view therefore ends at the *durable end*: every
byte below it was on the disk, and no crash makes the log reuse these LSNs (`log_end`).

From the newest container on, each head names the last block before it. This determines the valid containers, up to
which block each is to be read, and the missing ranges: *reclaimed* by the log, or *lost*.

In addition to the log a view can include history: containers of an archive, and those that left the log but still have
their content (`history`). Reuse of one is detected when it is read (`scanner`).

Some of these are on their way into the archive, or were when the broker was killed. A view with an archive includes
them, except those older than the whole archive: the limits of the archive have removed their neighbors.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from ...base.disk.real import RealDirectory, RealFile, was_missing
from ...base.errors import CairnError, CorruptJournal, DiskError, ForeignStore
from ...journal.files.archive import archived_lsn
from ...journal.format import container
from ...journal.format import log_mark as mark
from ...journal.format.container import BadContainer
from ...journal.format.holes import hole_with
from ...journal.read.container_chain import ChainedContainer, check_history
from ...journal.read.scanner import LogReader
from ...recovery.lenient_directory import LenientDirectory
from ...recovery.log_identity import Identity
from ...recovery.salvageable import log_id_of
from ...store.directory.archive_lease import refuse_other_copy
from ...store.journaled.truncation import truncation_words
from .journal_directory import directory_of_containers
from .known_containers import Before, KnownContainer, recorded_durable_lsn
from .log_end import end_of

T = TypeVar("T")
_WHAT_TO_NAME = "name a store directory, its journal directory, or an archive"
_LOOKS = 10
"""The maximum number of attempts to read the structure of the log while containers leave it."""


@dataclass(frozen=True)
class LogPiece:
    """A journal container, and its valid part."""

    path: str
    slot_lsn: int
    """The LSN of the file's first byte."""
    head: bytes
    """The first bytes of the file as long as it holds this slot."""
    prev_lsn: int
    """The last block before the container; 0 if it has no predecessor."""
    last_lsn: int
    """The LSN of its last valid block; 0 if unknown."""
    end_lsn: int
    """No block that ends behind this counts."""
    reach_lsn: int
    """The upper bound of the end of its valid blocks; 0 if unknown."""
    begun_us: int
    incarnation: int
    is_archived: bool
    """The log has given it back: it is in the archive, or waits for it or to be used again where it was."""


@dataclass(frozen=True)
class Gap:
    """LSNs that no file holds any more."""

    first_lsn: int
    end_lsn: int
    is_reclaimed: bool
    """The log gave them back; else they were lost."""


@dataclass(frozen=True)
class Log:
    """A view of a log. It can be pickled, and read by any process that has the same files."""

    place: str
    """The store, for messages to people."""
    uuid: UUID
    container_bytes: int
    base_lsn: int
    """The base LSN of the log when it was read; 0 for an archive alone."""
    durable_lsn: int
    """The end of the durable log when it was read."""
    pieces: tuple[LogPiece, ...]
    """The containers in the order of LSNs."""
    gaps: tuple[Gap, ...]
    """The missing ranges in the order of LSNs."""
    openings: tuple[tuple[int, int], ...] = ()
    """Ranges that no file holds, and that held nothing but openings of the log: nothing is missing with them."""
    journal: str = ""
    archive: str = ""

    @property
    def store(self) -> str:
        """The directory of the store, or that of the archive alone."""
        return os.path.dirname(os.path.abspath(self.journal)) if self.journal else self.place

    @property
    def log_id(self) -> int:
        """The ID of the log in its blocks."""
        return log_id_of(self.uuid)

    @property
    def first_lsn(self) -> int:
        """The first available LSN."""
        return self.pieces[0].slot_lsn if self.pieces else self.durable_lsn

    def between(self, first_lsn: int, end_lsn: int) -> tuple[LogPiece, ...]:
        """The pieces that hold something of the range."""
        size = self.container_bytes
        begin = bisect_left(self.pieces, first_lsn - size + 1, key=lambda piece: piece.slot_lsn)
        end = bisect_left(self.pieces, end_lsn, key=lambda piece: piece.slot_lsn)
        return self.pieces[begin:end]

    def runs(self, first_lsn: int) -> tuple[tuple[int, int], ...]:
        """The ranges of LSNs from *first_lsn* on that are there."""
        there = [(piece.slot_lsn, piece.slot_lsn + self.container_bytes) for piece in self.pieces]
        found: list[tuple[int, int]] = []
        for begin, end in sorted([*there, *self.openings]):
            begin = max(begin, first_lsn)
            if begin >= min(end, self.durable_lsn):
                continue
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
        return tuple(found)

    def start_of_openings(self, lsn: int) -> int | None:
        """The start of the range in `openings` that holds *lsn*; None without one."""
        return next((first for first, end in self.openings if first <= lsn < end), None)

    def missing(self, first_lsn: int, end_lsn: int) -> list[Gap]:
        """The missing parts of the range."""
        found = []
        for gap in self.gaps:
            if gap.end_lsn > first_lsn and gap.first_lsn < end_lsn:
                found.append(replace(gap, first_lsn=max(gap.first_lsn, first_lsn), end_lsn=min(gap.end_lsn, end_lsn)))
        return found

    def truncation(self) -> str:
        """The reclaimed ranges that are in no archive, as a sentence; empty if nothing is missing."""
        gaps = [(gap.first_lsn, gap.end_lsn) for gap in self.missing(self.first_lsn, self.durable_lsn)
                if gap.is_reclaimed]  # fmt: skip
        return truncation_words(self.first_lsn, self.pieces[0].begun_us if self.pieces else 0, gaps)

    def check_lost(self, first_lsn: int, end_lsn: int, remedy: str) -> None:
        """Raise `CorruptJournal` if a container of the range is missing that the log has not reclaimed."""
        lost = next((gap for gap in self.missing(first_lsn, end_lsn) if not gap.is_reclaimed), None)
        if lost is not None:
            reason = f"LSN {lost.first_lsn} to {lost.end_lsn} is missing: no container holds it"
            raise CorruptJournal(self.place, reason, remedy, lost.first_lsn, lost.end_lsn)


def open_log(path: str, archive: str | None = None, *, history: bool = False) -> Log:
    """The log at *path*: a store, a journal directory, or an archive; with what the directory *archive* has of it.

    *history*: also what left the log and was not written over yet. Raises `CairnError` for what is no log.
    """
    return looked_at(lambda: _look_at(path, archive, history=history))


def looked_at(look: Callable[[], T]) -> T:
    """Return the result of *look*, which is repeated while containers leave the log during it."""
    for _ in range(_LOOKS):
        try:
            return look()
        except DiskError as error:
            if not was_missing(error):
                raise
    return look()


def _look_at(path: str, archive: str | None, *, history: bool) -> Log:
    marked = _marked(path)
    if marked is None:
        return _look_at_archive(path)
    journal, found = marked
    for _ in range(_LOOKS):
        reader = LogReader(LenientDirectory(RealDirectory(journal), Identity(found, None)))
        known = _containers(journal, reader, history or archive is not None)
        if all(slot in known for slot in reader.slots):
            break  # else one of them left the log meanwhile
    if archive is not None:
        refuse_other_copy(journal, archive, reader.log_uuid)
        archived = _archived(archive, reader.log_uuid)
        own = [one for slot, one in known.items() if reader.holds(slot)]
        check_history(map(_chained, [*own, *archived.values()]), reader.log_id)
        if not history:
            oldest = min(archived, default=0)
            while oldest - 1 in known:  # it waits: slots leave the log in any order
                oldest -= 1
            known = {slot: one for slot, one in known.items() if slot >= oldest or reader.holds(slot)}
        known = archived | known
    recorded_lsn = recorded_durable_lsn(known, reader.container_bytes, reader.log_id)
    durable_lsn = end_of(journal, reader, max(reader.heads.mark.durable_lsn, recorded_lsn))
    log = Log(
        path, reader.log_uuid, reader.container_bytes, reader.heads.base_lsn, durable_lsn, (), (),
        journal=journal, archive=archive or "",
    )  # fmt: skip
    return log_of_containers(log, known, reader)


def check_place(path: str) -> None:
    """Raises what `open_log` would for a path that is no log. Looks at no container, but at those of an archive."""
    if _marked(path) is None:
        _look_at_archive(path)


def store_of(path: str) -> str:
    """The store whose log is at *path*; an archive itself. Raises what `open_log` does for a path that is no log."""
    marked = _marked(path)
    return path if marked is None else os.path.dirname(os.path.abspath(marked[0]))


def _marked(path: str) -> tuple[str, mark.Mark] | None:
    """The journal directory of the log at *path*, and its mark; None if *path* is an archive."""
    directory = directory_of_containers(path, _WHAT_TO_NAME)
    names = directory.names()
    if mark.NAME not in names:
        if directory.path == path and any(archived_lsn(name) is not None for name in names):
            return None
        raise ForeignStore(directory.path, f"no journal in it: {mark.NAME} is missing", _WHAT_TO_NAME)
    found = mark.read(directory)
    if found is None:
        raise ForeignStore(
            f"{directory.path}/{mark.NAME}", "it holds no complete mark",
            "restore it from a backup, or have `cairnmq salvage` recover the readable part",
        )  # fmt: skip
    return directory.path, found


def _containers(journal: str, reader: LogReader, history: bool) -> dict[int, KnownContainer]:
    """Return the containers, by slot, that still hold what *reader* found."""
    known: dict[int, KnownContainer] = {}
    for slot, head in reader.heads.by_slot.items():
        if not (history or reader.holds(slot)):
            continue
        file = os.path.join(journal, container.file_name(head.number))
        try:
            raw = _raw_head(file)
            is_same = container.decode_head(raw, file).slot == slot
        except BadContainer:
            is_same = any(raw)  # the blocks told; zeros are a container that was made anew under the name
        except DiskError:
            is_same = False
        if is_same:
            known[slot] = KnownContainer(file, head, raw, not reader.holds(slot))
    return known


def find_again(log: Log, slot_lsn: int) -> LogPiece | None:
    """The piece of a slot whose file was given to another one since: copied by an opening, or archived."""
    if not log.journal:
        return None
    again = open_log(log.journal, log.archive or None, history=True)
    return next((piece for piece in again.pieces if piece.slot_lsn == slot_lsn), None)


def _look_at_archive(path: str) -> Log:
    known = _archived(path, None)
    if not known:
        raise ForeignStore(path, "no container in it can be read", _WHAT_TO_NAME)
    newest = known[max(known)].head
    check_history(map(_chained, known.values()), log_id_of(newest.log_uuid))
    size = newest.container_bytes
    end_lsn = newest.slot_lsn + size
    return log_of_containers(Log(path, newest.log_uuid, size, 0, end_lsn, (), (), archive=path), known)


def _archived(path: str, uuid: UUID | None) -> dict[int, KnownContainer]:
    """Slot to container, of the archive in directory *path*: of log *uuid*, or of the only one there is."""
    known: dict[int, KnownContainer] = {}
    for name in RealDirectory(path).names():
        lsn = archived_lsn(name)
        if lsn is None or (uuid is not None and name.partition("-")[2][:8] != uuid.hex[:8]):
            continue
        file = os.path.join(path, name)
        try:
            raw = _raw_head(file)
            head = container.decode_head(raw, file)
        except BadContainer as error:
            raise CairnError(file, f"its head is damaged ({error})", "remove the file from the archive") from error
        except DiskError as error:
            if not was_missing(error):
                raise
            continue  # the archive's limits removed it since
        if uuid is not None and head.log_uuid != uuid:
            continue
        other = next(iter(known.values()), None)
        if other is not None and other.head.log_uuid != head.log_uuid:
            raise ForeignStore(
                path, f"containers of two logs are there, {other.head.log_uuid} and {head.log_uuid}",
                "name the store with it, or give each an archive of its own",
            )  # fmt: skip
        known[head.slot] = KnownContainer(file, head, raw, True)
    return known


def _chained(one: KnownContainer) -> ChainedContainer:
    return ChainedContainer(one.path, one.head, partial(RealFile, one.path, os.O_RDONLY))


def _raw_head(path: str) -> bytes:
    with closing(RealFile(path, os.O_RDONLY)) as file:
        return file.read_at(0, container.HEAD.size)


def log_of_containers(log: Log, known: dict[int, KnownContainer], reader: LogReader | None = None) -> Log:
    """*log* with the pieces that *known* gives by slot, and gaps, found from its durable end to its beginning.

    Without a *reader* of the log, what no container holds is reclaimed.
    """
    pieces: list[LogPiece] = []
    gaps: list[Gap] = []
    openings: list[tuple[int, int]] = []
    size = log.container_bytes
    slots = sorted(slot for slot in known if slot * size < log.durable_lsn)
    slot = (log.durable_lsn - 1) // size
    last_lsn, next_start = 0, log.durable_lsn
    while slot >= 0:
        one = known.get(slot)
        if one is None:
            slot = _before(slots, slot, reader)
            first_lsn = (slot + 1) * size
            is_reclaimed = reader is None or next_start <= log.base_lsn or not reader.holds(next_start // size - 1)
            gaps.append(Gap(first_lsn, next_start, is_reclaimed))
            last_lsn = 0
            continue
        before = Before.of(one, slots, log.log_id)
        end_lsn = min(log.durable_lsn, (slot + 1) * size)
        limit = last_lsn if last_lsn < end_lsn else 0
        reach_lsn = limit + 1 if limit else end_lsn if reader is not None and end_lsn == log.durable_lsn else 0
        pieces.append(LogPiece(
            one.path, slot * size, one.raw, before.prev_lsn, limit, end_lsn, reach_lsn, one.head.time_us,
            one.head.incarnation, one.is_archived,
        ))  # fmt: skip
        last_lsn, next_start = before.kept_lsn, before.openings_lsn
        if next_start < slot * size:
            openings.append((next_start, slot * size))
        if not before.kept_lsn and (slot == (slots[0] if slots else slot) or not next_start):
            break
        slot = last_lsn // size if last_lsn else _before(slots, next_start // size, reader)
    return replace(
        log, pieces=tuple(reversed(pieces)), gaps=tuple(reversed(gaps)), openings=tuple(reversed(openings))
    )


def _before(slots: list[int], slot: int, reader: LogReader | None) -> int:
    """Return the newest slot before a missing one; -1 without one."""
    at = bisect_left(slots, slot)
    nearest = slots[at - 1] if at else -1
    hole = None if reader is None else hole_with(reader.holes, slot)
    if reader is not None and hole is not None and not hole.holds(nearest):  # else it left with the hole
        before = hole.prev_lsn // reader.container_bytes
        return before if before in slots and before < slot else nearest
    return nearest


def grouped(pieces: Iterable[LogPiece], container_bytes: int, most_bytes: int) -> Iterator[tuple[LogPiece, ...]]:
    """*pieces* in runs of at most so many bytes, one at least: what one task reads."""
    return in_runs(pieces, lambda piece: container_bytes, most_bytes)


def in_runs(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[tuple[T, ...]]:
    """*items* in runs whose sizes add up to at most *most*, or of one item."""
    some: list[T] = []
    size = 0
    for item in items:
        size += size_of(item)
        if some and size > most:
            yield tuple(some)
            some, size = [], size_of(item)
        some.append(item)
    if some:
        yield tuple(some)
