"""Distrust: blocks behind the durability mark are read past the page cache, and copied to another container.

After a failed sync the page cache shows pages as clean that never reached the disk, and a later sync succeeds. After a
kill it shows pages that are still to be written. So before the log is read, the containers that may hold something
above the mark's durable LSN are synced and dropped from the cache: what is read then is on the disk.

The sectors there are not to be relied on. A slot with unproven blocks, or a torn one, is copied, as far as the log
goes, byte for byte into another container, which takes its place; then the old one is retired (`ContainerPool.retire`).

A power cut leaves the old container, or both, or the new one: the copy's head is written last, when all behind it is
on the disk, and the old one goes only when that head is. Of two the reader takes the later copy. A crash changes
nothing of what is found: the next opening copies the same bytes again, and they were safe before.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from ...base.disk.seam import SECTOR_BYTES, Directory
from ...base.errors import DiskError
from ..files.container_pool import ContainerPool
from ..format import block, container
from ..format.block import BadBlock
from ..format.container import DATA_OFFSET, BadContainer
from ..format.log_mark import NAME as MARK_NAME
from ..read.container_heads import ContainerHeads
from ..read.scanner import LogReader


def forget_unproven(directory: Directory) -> LogReader:
    """Return a reader of the log in *directory* that reads past the page cache, so that it finds only data on the disk.
    """
    directory.sync()
    if MARK_NAME in directory.names():
        _forget(directory, MARK_NAME)
    known = ContainerHeads(directory)
    if not known.mark.closed:
        proven_slots = known.mark.durable_lsn // known.container_bytes
        suspects = [head.number for slot, head in known.by_slot.items() if slot >= proven_slots]
        for number in [*suspects, *known.copied]:
            _forget(directory, container.file_name(number))
            known.sound.pop(number, None)
    return LogReader(directory, live=False, known=known)


def _forget(directory: Directory, name: str) -> None:
    with closing(directory.open(name)) as file:
        try:
            file.sync()
        except DiskError:  # perhaps of long ago: what could not be written passes for clean now, and is dropped
            file.forget()
            file.sync()
        file.forget()


def copy_slots(reader: LogReader, pool: ContainerPool, incarnation: int, ends: Mapping[int, int]) -> None:
    """Move slots to other containers, each up to the end of its last block in *ends*, and retire theirs.

    *incarnation* is the one that is beginning: the copies bear it.
    """
    for slot, end_lsn in ends.items():
        old = reader.heads.by_slot[slot]
        head = old._replace(number=pool.fresh(), incarnation=incarnation)
        data = _blocks(reader, slot, end_lsn)
        with closing(pool.directory.open(container.file_name(head.number), writable=True)) as target:
            target.write_at(0, bytes(SECTOR_BYTES))  # it counts as free until it is complete
            target.sync()
            target.write_at(DATA_OFFSET, data)
            pool.blank(target, DATA_OFFSET + len(data))
            target.sync()
            target.write_at(0, container.encode_head(head))
            target.sync()
        reader.heads.by_slot[slot] = head
        pool.adopt(slot, head.number)
        pool.retire(old.number)


def superseded(reader: LogReader) -> list[int]:
    """Return the numbers of containers that a copy replaces: it holds all of their content, up to its own end.

    Containers that are older for another reason were put there by an administrator, and are not changed.
    """
    return [number for number in reader.heads.copied if _is_superseded(reader, number)]


def _is_superseded(reader: LogReader, number: int) -> bool:
    try:
        with closing(reader.directory.open(container.file_name(number))) as older:
            slot = container.read_head(older, older.name).slot
            with closing(reader.directory.open(reader.heads.file_name(slot))) as newer:
                held = newer.read_at(DATA_OFFSET, reader.container_bytes).rstrip(b"\0")
            return older.read_at(DATA_OFFSET, len(held)) == held
    except (BadContainer, DiskError):
        return False


def _blocks(reader: LogReader, slot: int, end_lsn: int) -> memoryview:
    """The blocks of *slot* up to *end_lsn*, just as they were when the log was read."""
    name, lsn = reader.heads.file_name(slot), slot * reader.container_bytes + DATA_OFFSET
    with closing(reader.directory.open(name)) as file:
        data = memoryview(file.read_at(DATA_OFFSET, max(0, end_lsn - lsn)))
    rest = data
    try:
        while rest:
            found = block.decode(rest, lsn, reader.log_id)
            rest, lsn = rest[found.end_lsn - lsn :], found.end_lsn
    except BadBlock as error:
        raise DiskError(
            f"{reader.directory.path}/{name}", f"it changed while it was read ({error})", "the disk failed: replace it"
        ) from error
    return data
