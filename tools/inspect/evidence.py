"""From the paths a user names to a journal that can be read, and everything that is found in it, in order.

A path is a store directory, its journal directory, an archive or another directory of containers without a mark, or a
container file. One journal alone is read as recovery reads it. Everything else, also an archive together with the store
it is of, is read as containers in runs of neighbouring slots, dead ones too: what lies between two runs was not given,
which is no damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

from ...analytics.scan.journal_directory import WHAT_TO_NAME, containers_in, directory_of_containers
from ...base.disk.real import RealDirectory, was_missing
from ...base.errors import CairnError, DiskError, ForeignStore
from ...base.remote_paths import refuse_remote
from ...journal.files.archive import archived_lsn
from ...journal.format import log_mark as mark
from ...journal.format.block import Block
from ...journal.format.log_mark import Mark
from ...journal.read.scanner import Damage, LogReader
from ...recovery.lenient_directory import LenientDirectory
from ...recovery.log_identity import Identity
from ...recovery.salvageable import Finding, log_id_of
from ...store.journaled.truncation import truncation_words
from ...store.wiring.copy import read_queue_names
from .loose_containers import (
    LooseContainer,
    LooseDirectory,
    check_one_history,
    container_bytes_of,
    read_container,
    runs_of,
)
from .store_wiring import check_owner, connected_wiring, file_of, missing_names_remark


class _Source(NamedTuple):
    """One reader, and the containers given alone that it reads, by slot; none if it reads a journal."""

    reader: LogReader
    first_slot: int
    given: dict[int, LooseContainer]

    def name_of(self, slot: int) -> str:
        """Return the name of the file that holds a slot."""
        return os.path.basename(self.given[slot].path) if slot in self.given else self.reader.heads.file_name(slot)

    def recycled(self, first_slot: int, last_slot: int) -> list[str]:
        """Return the names of the given files that held the slots between two, and now hold others."""
        return [self.name_of(slot) for slot, one in self.given.items()
                if first_slot <= slot <= last_slot and one.is_recycled()]  # fmt: skip


@dataclass
class Evidence:
    """A journal opened for reading. One thread at a time."""

    queue_names: dict[int, str] = field(default_factory=dict)
    sources: list[_Source] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Damage that precedes the first block that was read, in the order of LSNs."""
    notes: list[str] = field(default_factory=list)
    missing_names: str = ""
    """The remark that the names of the queues are on a server; empty if they are not."""

    def scan(self, from_lsn: int = 0) -> Iterator[tuple[str, Block] | Finding]:
        """The blocks, each with the name of its file, and all damage in its place, from the slot of *from_lsn* on."""
        known = sorted(((finding.first_lsn, finding) for finding in self.findings), key=itemgetter(0))
        starts = [(source, _start_lsn(source, from_lsn)) for source in self.sources]
        scans = (self._scan_source(source, lsn) for source, lsn in starts if lsn is not None)
        return (found for _, found in merge(known, chain.from_iterable(scans), key=itemgetter(0)))

    def begins(self) -> list[int]:
        """The first LSNs of the log's slots, as known by now, rising."""
        return sorted(
            slot * source.reader.container_bytes
            for source in self.sources
            for slot in source.reader.slots
            if slot >= source.first_slot
        )

    def truncation(self) -> str:
        """The reclaimed ranges that are in none of the paths, as a sentence; empty if nothing is missing."""
        reported = [truncation_of(source.reader, source.first_slot) for source in self.sources]
        return next(filter(None, reported), "") if len(reported) == 1 else ""

    def remarks(self) -> list[str]:
        """The remarks on the journal, each once, as known by now."""
        found = [*self.notes]
        if self.missing_names and not self.queue_names:
            found.append(self.missing_names)
        for source in self.sources:
            if isinstance(source.reader.directory, LenientDirectory):
                found += source.reader.directory.remarks
            found += source.reader.heads.remarks
        return list(dict.fromkeys(found))

    def _scan_source(self, source: _Source, from_lsn: int) -> Iterator[tuple[int, tuple[str, Block] | Finding]]:
        reader = source.reader
        size = reader.container_bytes
        slot, name = -1, ""
        for found in reader.scan(from_lsn):
            if isinstance(found, Damage):
                slot = found.first_lsn // size
                name = source.name_of(slot)
                if not self._note_recycled(source.recycled(slot, found.end_lsn // size)):
                    kind: Literal["torn", "corrupt"] = "torn" if found.torn else "corrupt"
                    yield found.first_lsn, Finding(kind, found.first_lsn, found.end_lsn, name, found.reason)
                continue
            if found.lsn // size != slot:
                slot = found.lsn // size
                name = source.name_of(slot)
            yield found.lsn, (name, found)
        self._note_recycled(source.recycled(reader.end_lsn // size, reader.end_lsn // size))
        self.notes += [f"LSN {first} to {end} was recycled while it was read" for first, end in reader.recycled]

    def _note_recycled(self, names: list[str]) -> bool:
        self.notes += [f"{name} was recycled while it was read" for name in names]
        return bool(names)


def truncation_of(reader: LogReader, first_slot: int = 0) -> str:
    """The reclaimed ranges of a log, as a sentence; empty if nothing is missing."""
    slots = sorted(slot for slot in reader.slots if slot >= first_slot)
    if not slots:
        return ""
    size, head = reader.container_bytes, reader.heads.by_slot.get(slots[0])
    gaps = [
        ((here + 1) * size, there * size)
        for here, there in pairwise(slots) if there != here + 1 and not reader.holds(there - 1)
    ]  # fmt: skip
    return truncation_words(slots[0] * size, head.time_us if head is not None else 0, gaps)


def _start_lsn(source: _Source, from_lsn: int) -> int | None:
    """The LSN to begin at for *from_lsn*, that of an existing slot; None if all slots lie before it."""
    size = source.reader.container_bytes
    slots = [slot for slot in source.reader.slots if slot >= source.first_slot]
    if not slots or from_lsn < (source.first_slot + 1) * size:
        return source.first_slot * size
    if from_lsn >= (max(slots) + 1) * size:
        return None
    return max((slot for slot in slots if slot <= from_lsn // size), default=source.first_slot) * size


def open_evidence(paths: list[str]) -> Evidence:
    """The journal at *paths*. Raises `CairnError` for what is no journal or can't be read at all."""
    if not paths:
        raise CairnError("dump", "no path given", WHAT_TO_NAME)
    for path in paths:
        if not os.path.exists(path):
            refuse_remote(path)
            raise CairnError(path, "no such file or directory", WHAT_TO_NAME)
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return _open_directory(directory_of_containers(paths[0]))
    files: list[str] = []
    beside = ""  # where a mark and the names of queues may be found
    for path in sorted(paths, key=os.path.isdir, reverse=True):
        if os.path.isdir(path):
            directory = directory_of_containers(path)
            if mark.NAME in directory.names():
                beside = beside or directory.path
            files += containers_in(directory)
        elif os.path.isfile(path):
            files.append(path)
        else:
            raise CairnError(path, "not a file", WHAT_TO_NAME)
    return _open_given(files, beside or os.path.dirname(os.path.abspath(paths[0])))


def _open_directory(directory: RealDirectory) -> Evidence:
    names = directory.names()
    found = mark.read(directory) if mark.NAME in names else None
    if found is not None:
        return _open_journal(directory, found)
    paths = containers_in(directory)
    if not paths:
        raise ForeignStore(directory.path, f"{mark.NAME} is damaged, and there are no containers", WHAT_TO_NAME)
    evidence = _open_given(paths, directory.path)
    if mark.NAME in names:
        evidence.findings.insert(0, Finding("corrupt", 0, 0, mark.NAME, "it holds no complete mark"))
    elif any(archived_lsn(name) is None for name in names):
        evidence.notes.append(f"{directory.path}: no {mark.NAME}, so containers are shown each for itself")
    return evidence


def _open_journal(directory: RealDirectory, found: Mark) -> Evidence:
    mended = LenientDirectory(directory, Identity(found, None))
    reader = LogReader(mended)
    evidence = _evidence_beside(directory.path)
    first_slot = reader.heads.base_lsn // reader.container_bytes
    evidence.findings.extend(
        finding for lsn, finding in mended.findings.items() if lsn >= first_slot * reader.container_bytes
    )
    evidence.sources.append(_Source(reader, first_slot, {}))
    return evidence


def _open_given(paths: list[str], directory: str) -> Evidence:
    evidence = _evidence_beside(directory)
    paths = [path for path in paths if os.path.exists(path)]
    container_bytes = next((size for path in paths if (size := container_bytes_of(path)) is not None), None)
    by_slot: dict[int, LooseContainer] = {}
    found: list[LooseContainer] = []
    for path in paths:
        try:
            given = read_container(path, container_bytes)
        except DiskError as error:
            if not was_missing(error):
                raise
            continue  # it moved into the archive since it was found
        if given is None:
            evidence.notes.append(f"{path}: a container that was never used")
            continue
        found.append(given)
        first = next(iter(by_slot.values()), given).head
        if log_id_of(given.head.log_uuid) != log_id_of(first.log_uuid):
            raise ForeignStore(path, f"it belongs to log {given.head.log_uuid}, the first one to {first.log_uuid}",
                               "dump one log at a time")  # fmt: skip
        other = by_slot.setdefault(given.head.slot, given)
        if other is not given:
            if other.first_sector == given.first_sector and other.is_archived != given.is_archived:
                continue  # an archived copy of a container that is still in the journal
            evidence.notes.append(f"{path}: left out, {other.path} holds the same slot {given.head.slot}")
            continue
        if given.size_bytes != given.head.container_bytes:
            sizes = f"it has {given.size_bytes} bytes, a container has {given.head.container_bytes}"
            evidence.notes.append(f"{path}: {sizes}")
        if given.finding is not None:
            evidence.findings.append(given.finding)
    _check_history(directory, found)
    for run in runs_of(by_slot):
        reader = LogReader(LooseDirectory(run, _claim(directory, run)), history=True)
        evidence.sources.append(_Source(reader, run[0].head.slot, {one.head.slot: one for one in run}))
    return evidence


def _check_history(directory: str, found: list[LooseContainer]) -> None:
    """Raise `ForeignStore` if archived containers are not of the history of the log that has its mark beside."""
    if os.path.exists(os.path.join(directory, mark.NAME)):
        beside = mark.read(RealDirectory(directory))
        if beside is not None:
            check_one_history(found, [directory], beside.base_lsn, log_id_of(beside.log_uuid))


def _claim(directory: str, run: list[LooseContainer]) -> int:
    """The durable LSN of the mark beside the containers, if it lies within *run* and so can judge its end."""
    try:
        found = mark.read(RealDirectory(directory))
    except CairnError:
        return 0
    first, last = run[0].head, run[-1].head
    if found is None or log_id_of(found.log_uuid) != log_id_of(first.log_uuid):
        return 0
    return found.durable_lsn if first.slot_lsn < found.durable_lsn <= last.slot_lsn + last.container_bytes else 0


def ask_server(evidence: Evidence, connect: str, catalog: str | None) -> None:
    """Give *evidence* the queue names of a wiring that is on a server. Raises what SQL means."""
    with connected_wiring(connect, catalog) as wiring:
        for source in evidence.sources:
            check_owner(wiring, source.reader.log_uuid)
        evidence.queue_names = wiring.queue_names()


def _evidence_beside(journal_path: str) -> Evidence:
    """With the queue names of the store that the journal directory is in, if it is in one and knows them itself."""
    evidence = Evidence()
    store = os.path.dirname(os.path.abspath(journal_path))
    try:
        evidence.queue_names = read_queue_names(file_of(store))
        evidence.missing_names = missing_names_remark(store)
    except CairnError as error:
        evidence.notes.append(f"{error}; queues are shown by number")
    return evidence
