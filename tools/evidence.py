"""From the paths a user names to a journal that can be read, and everything that is found in it, in order.

A path is a store directory, its journal directory, an archive or another directory of containers without a mark, or a
container file. One journal alone is read as recovery reads it. Everything else, also an archive together with the store
it is of, is read as containers in runs of neighbouring slots, dead ones too: what lies between two runs was not given,
which is no damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..base.errors import CairnError, DiskError, ForeignStore
from ..disk.real import RealDirectory, was_missing
from ..journal import container, mark
from ..journal.archive import archived_lsn
from ..journal.block import Block
from ..journal.mark import Mark
from ..journal.reader import Damage, LogReader
from ..recovery.mending import MendedDirectory
from ..recovery.remains import Finding, log_id_of
from ..store.kind import need_journal
from ..store.names import JOURNAL_NAME
from ..store.sql import parse_address
from ..store.wiring import FILE_NAME as WIRING_NAME
from ..store.wiring import Wiring
from ..store.wiring_copy import read_queue_names
from ..store.wiring_place import told_place
from .given import Given, GivenDirectory, container_bytes_of, look_at

_WHAT_TO_NAME = "name a store directory, its journal directory, an archive, or container files"


@dataclass
class _Source:
    """One reader, and what it is to know about the files behind it."""

    reader: LogReader
    first_slot: int
    name_of: Callable[[int], str]
    """The file that holds a slot."""
    recycled: Callable[[int, int], list[str]]
    """The files given alone that held the slots between two, and now hold others."""


@dataclass
class Evidence:
    """A journal opened for reading. One thread at a time."""

    queue_names: dict[int, str] = field(default_factory=dict)
    sources: list[_Source] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Damage that stands in the way before the first block is read, in the order of LSNs."""
    notes: list[str] = field(default_factory=list)
    elsewhere: str = ""
    """The server that the names of the queues are on; empty if they are on none."""

    def scan(self, from_lsn: int = 0) -> Iterator[tuple[str, Block] | Finding]:
        """The blocks, each with the name of its file, and all damage in its place, from the slot of *from_lsn* on."""
        waiting = sorted(self.findings, key=lambda finding: finding.first_lsn, reverse=True)
        for source in self.sources:
            start_lsn = _start_lsn(source, from_lsn)
            if start_lsn is None:
                continue
            for lsn, found in self._scan_source(source, start_lsn):
                while waiting and waiting[-1].first_lsn <= lsn:
                    yield waiting.pop()
                yield found
        yield from reversed(waiting)

    def begins(self) -> list[int]:
        """Where the slots of the log begin, as known by now, rising."""
        return sorted(
            slot * source.reader.container_bytes
            for source in self.sources
            for slot in source.reader.slots
            if slot >= source.first_slot
        )

    def remarks(self) -> list[str]:
        """What is worth knowing beside, each once, as known by now."""
        found = [*self.notes]
        if self.elsewhere and not self.queue_names:
            found.append(f"the wiring is in {self.elsewhere}: without --connect queues are shown by number")
        for source in self.sources:
            if isinstance(source.reader.directory, MendedDirectory):
                found += source.reader.directory.remarks
            found += source.reader.remarks
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
                    yield found.first_lsn, _finding(found, name)
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


def _finding(damage: Damage, name: str) -> Finding:
    return Finding("torn" if damage.torn else "corrupt", damage.first_lsn, damage.end_lsn, name, damage.why)


def _start_lsn(source: _Source, from_lsn: int) -> int | None:
    """Where to begin for *from_lsn*, None if all lies before it: at a slot there is, as the log may skip some."""
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
        raise CairnError("cairnmq dump", "no path given", _WHAT_TO_NAME)
    for path in paths:
        if not os.path.exists(path):
            raise CairnError(path, "no such file or directory", _WHAT_TO_NAME)
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return _open_directory(directory_of_containers(paths[0]))
    files: list[str] = []
    beside = ""  # where a mark and the names of queues may be found
    for path in sorted(paths, key=os.path.isdir, reverse=True):
        if os.path.isdir(path):
            directory = directory_of_containers(path)
            if mark.NAME in directory.names():
                beside = beside or directory.path
            files += _containers_in(directory)
        elif os.path.isfile(path):
            files.append(path)
        else:
            raise CairnError(path, "not a file", _WHAT_TO_NAME)
    return _open_given(files, beside or os.path.dirname(os.path.abspath(paths[0])))


def directory_of_containers(path: str) -> RealDirectory:
    """The directory with containers that *path* is, or that the store there has. `ForeignStore` if there is none."""
    directory = RealDirectory(path)
    if _holds_containers(directory.names()):
        return directory
    inner = os.path.join(path, JOURNAL_NAME)
    need_journal(path)
    if not os.path.isdir(inner):
        empty = not directory.names()
        raise ForeignStore(path, "the directory is empty" if empty else "no journal in it", _WHAT_TO_NAME)
    directory = RealDirectory(inner)
    if not _holds_containers(directory.names()):
        raise ForeignStore(inner, f"no journal in it: {mark.NAME} and containers are missing", _WHAT_TO_NAME)
    return directory


def _holds_containers(names: list[str]) -> bool:
    return mark.NAME in names or any(_is_container(name) for name in names)


def _is_container(name: str) -> bool:
    return container.file_number(name) is not None or archived_lsn(name) is not None


def _containers_in(directory: RealDirectory) -> list[str]:
    return [os.path.join(directory.path, name) for name in directory.names() if _is_container(name)]


def _open_directory(directory: RealDirectory) -> Evidence:
    names = directory.names()
    found = mark.read(directory) if mark.NAME in names else None
    if found is not None:
        return _open_journal(directory, found)
    paths = _containers_in(directory)
    if not paths:
        raise ForeignStore(directory.path, f"{mark.NAME} is damaged, and there are no containers", _WHAT_TO_NAME)
    evidence = _open_given(paths, directory.path)
    if mark.NAME in names:
        evidence.findings.insert(0, Finding("corrupt", 0, 0, mark.NAME, "it holds no whole mark"))
    elif any(archived_lsn(name) is None for name in names):
        evidence.notes.append(f"{directory.path}: no {mark.NAME}, so containers are shown each for itself")
    return evidence


def _open_journal(directory: RealDirectory, found: Mark) -> Evidence:
    mended = MendedDirectory(directory, found)
    reader = LogReader(mended)
    evidence = _evidence_beside(directory.path)
    first_slot = reader.base_lsn // reader.container_bytes
    evidence.findings.extend(
        finding for lsn, finding in mended.findings.items() if lsn >= first_slot * reader.container_bytes
    )

    def name_of(slot: int) -> str:
        return container.file_name(reader.heads[slot].number) if slot in reader.heads else ""

    evidence.sources.append(_Source(reader, first_slot, name_of, lambda first, last: []))
    return evidence


def _open_given(paths: list[str], directory: str) -> Evidence:
    evidence = _evidence_beside(directory)
    paths = [path for path in paths if os.path.exists(path)]
    container_bytes = next((size for path in paths if (size := container_bytes_of(path)) is not None), None)
    by_slot: dict[int, Given] = {}
    for path in paths:
        try:
            given = look_at(path, container_bytes)
        except DiskError as error:
            if not was_missing(error):
                raise
            continue  # it moved into the archive since it was found
        if given is None:
            evidence.notes.append(f"{path}: a container that was never used")
            continue
        first = next(iter(by_slot.values()), given).head
        if log_id_of(given.head.log_uuid) != log_id_of(first.log_uuid):
            raise ForeignStore(path, f"it belongs to log {given.head.log_uuid}, the first one to {first.log_uuid}",
                               "dump one log at a time")  # fmt: skip
        other = by_slot.setdefault(given.head.slot, given)
        if other is not given and _is_archived_too(other, given):
            continue  # its file was not used again yet
        if other is not given:
            evidence.notes.append(f"{path}: left out, {other.path} holds the same slot {given.head.slot}")
            continue
        if given.size_bytes != given.head.container_bytes:
            sizes = f"it has {given.size_bytes} bytes, a container has {given.head.container_bytes}"
            evidence.notes.append(f"{path}: {sizes}")
        if given.finding is not None:
            evidence.findings.append(given.finding)
    for run in _runs(by_slot):
        evidence.sources.append(_given_source(run, _claim(directory, run)))
    return evidence


def _is_archived_too(first: Given, second: Given) -> bool:
    """Whether they are a container of the journal and its copy in the archive."""
    archived = [archived_lsn(os.path.basename(given.path)) is not None for given in (first, second)]
    return first.first_sector == second.first_sector and archived[0] != archived[1]


def _runs(by_slot: dict[int, Given]) -> Iterator[list[Given]]:
    run: list[Given] = []
    for slot in sorted(by_slot):
        if run and run[-1].head.slot + 1 != slot:
            yield run
            run = []
        run.append(by_slot[slot])
    if run:
        yield run


def _claim(directory: str, run: list[Given]) -> int:
    """The durable LSN of the mark beside the containers, if it lies within *run* and so can judge its end."""
    try:
        found = mark.read(RealDirectory(directory))
    except CairnError:
        return 0
    first, last = run[0].head, run[-1].head
    if found is None or log_id_of(found.log_uuid) != log_id_of(first.log_uuid):
        return 0
    return found.durable_lsn if first.slot_lsn < found.durable_lsn <= last.slot_lsn + last.container_bytes else 0


def _given_source(run: list[Given], claim_lsn: int) -> _Source:
    names = {given.head.slot: os.path.basename(given.path) for given in run}

    def recycled(first_slot: int, last_slot: int) -> list[str]:
        return [names[given.head.slot] for given in run if first_slot <= given.head.slot <= last_slot
                and given.is_recycled()]  # fmt: skip

    reader = LogReader(GivenDirectory(run, claim_lsn), history=True)
    return _Source(reader, run[0].head.slot, lambda slot: names.get(slot, ""), recycled)


def ask_server(evidence: Evidence, connect: str, catalog: str | None) -> None:
    """Give *evidence* the queue names of a wiring that is on a server. Raises what SQL means."""
    wiring = Wiring.connect(parse_address(connect, catalog), alone=False)
    try:
        owner = wiring.owner()
        for source in evidence.sources:
            if owner is None or log_id_of(owner) != log_id_of(source.reader.log_uuid):
                raise ForeignStore(
                    wiring.place, f"the wiring is of store {owner}, the journal of store {source.reader.log_uuid}",
                    wiring.remedy,
                )  # fmt: skip
        evidence.queue_names = wiring.queue_names()
    finally:
        wiring.close()


def _evidence_beside(journal_path: str) -> Evidence:
    """With the queue names of the store that the journal directory is in, if it is in one and knows them itself."""
    evidence = Evidence()
    store = os.path.dirname(os.path.abspath(journal_path))
    try:
        evidence.queue_names = read_queue_names(os.path.join(store, WIRING_NAME))
        evidence.elsewhere = told_place(store)
    except CairnError as error:
        evidence.notes.append(f"{error}; queues are shown by number")
    return evidence
