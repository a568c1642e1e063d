"""The containers of a log beside their blocks: sizes, heads, names, and the mark."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from ...base.disk.seam import SECTOR_BYTES, ReadableDirectory
from ...base.errors import CairnError
from ...journal.format import container
from ...journal.format import log_mark as mark
from ...journal.format.block import Block
from ...journal.read.scanner import LogReader
from ...recovery.log_identity import Identity
from .checked_reader import CheckedReader
from .verdicts import SALVAGE, Verdict


def container_verdicts(
    directory: ReadableDirectory, reader: CheckedReader, slots: Iterable[int]
) -> tuple[int, list[Verdict]]:
    """The number of containers with a whole head that hold *slots*, and the verdicts on all of them.

    *reader* has read the lenient view of *directory*.
    """
    size, mended = reader.container_bytes, reader.mended
    names = {slot: reader.heads.file_name(slot) for slot in slots}
    mended_places = {finding.place for finding in mended.findings.values()}
    count, found = 0, []
    for finding in mended.findings.values():
        if names.get(finding.first_lsn // size) == finding.place:  # else it is half a copy of another
            what = f"its head can't be read ({finding.reason}); its contents are known from its blocks"
            lsns = finding.first_lsn, finding.end_lsn
            found.append(Verdict(finding.kind, finding.place, what, "nothing", SALVAGE, *lsns))
    for slot, name in names.items():
        if name in mended_places:
            continue
        count += 1
        for what in _faults(directory, name, size):
            found.append(Verdict("corrupt", name, what, "nothing", SALVAGE, slot * size, slot * size + SECTOR_BYTES))
    newest = reader.heads.mark.incarnation
    written = 0 if reader.last is None else reader.last.head.incarnation
    if written > newest and mark.NAME in directory.names() and all(mark.read_places(directory)):
        what = f"it knows of {newest} openings of the log, the log of {written}: an older copy was restored"
        found.append(Verdict("corrupt", mark.NAME, what, remedy="restore the newest copy; the next start writes it"))
    found += [Verdict("note", "journal", remark) for remark in dict.fromkeys([*mended.remarks, *reader.heads.remarks])]
    return count, found


def mark_verdicts(identity: Identity) -> list[Verdict]:
    """The verdict on the mark that a log was identified by, if it is damaged."""
    if identity.finding is not None:
        remedy = f"nothing proves the end of the log any more; {SALVAGE}"
        return [Verdict("corrupt", mark.NAME, identity.finding.reason, remedy=remedy)]
    if identity.doubt is not None:
        return [Verdict("torn", mark.NAME, identity.doubt.reason, remedy="the next start writes both places")]
    return []


def first_block_verdicts(reader: LogReader, first: Block) -> list[Verdict]:
    """A verdict if a container's head names another block before it than its *first* block does."""
    head = reader.heads.by_slot.get(first.lsn // reader.container_bytes)
    if head is None or first.lsn % reader.container_bytes != container.DATA_OFFSET:
        return []
    if head.prev_lsn == first.head.prev_lsn:
        return []
    what = f"its head names the block at LSN {head.prev_lsn} as the last before it, its first block another"
    name = container.file_name(head.number)
    return [Verdict("corrupt", name, what, "nothing", SALVAGE, head.slot_lsn, first.end_lsn)]


def _faults(directory: ReadableDirectory, name: str, size_bytes: int) -> list[str]:
    """The faults of a container that holds a part of the log, its blocks left out."""
    try:
        with closing(directory.open(name)) as file:
            found, sector = file.size_bytes(), file.read_at(0, SECTOR_BYTES)
    except CairnError as error:
        return [error.reason]
    faults = [] if found == size_bytes else [f"it has {found} bytes, a container has {size_bytes}"]
    try:
        number = container.decode_head(sector, name).number
    except container.BadContainer as error:
        return [*faults, f"its head can't be read ({error}); its contents are known from its blocks"]
    if container.file_name(number) != name:
        faults.append(f"it was written as {container.file_name(number)}")
    if any(sector[container.HEAD.size :]):
        faults.append("what fills the sector of its head is not zeros")
    return faults
