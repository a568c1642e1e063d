"""The heads of a log's containers, as one look at its directory finds them: which file holds which slot."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from ...base.disk.seam import SECTOR_BYTES, ReadableDirectory, ReadableFile
from ...base.errors import DiskError, ForeignStore, NotAFile
from ..format import block, container
from ..format import log_mark as mark
from ..format.block import BadBlock, BlockHead
from ..format.container import DATA_OFFSET, BadContainer, ContainerHead
from ..format.log_mark import Mark


class ContainerHeads:
    """The mark and the container heads of one log."""

    def __init__(
        self, directory: ReadableDirectory, *, history: bool = False, known: ContainerHeads | None = None
    ) -> None:
        """*known*: an earlier look, of which the mark and the `sound` heads need not be read again."""
        self.directory = directory
        self.mark: Mark = read_mark(directory) if known is None else known.mark
        self.log_uuid = self.mark.log_uuid
        self.log_id = int.from_bytes(self.log_uuid.bytes[:8], "little")
        self.container_bytes = self.mark.container_bytes
        self.by_slot: dict[int, ContainerHead] = {}
        """Slot to the head of the container that holds it, also of slots that are no longer part of the log."""
        self.sound: dict[int, ContainerHead] = {}
        """Container number to its head, where nothing was wrong with it."""
        self.free: list[int] = []
        """Numbers of containers that hold no part of the log."""
        self.copied: list[int] = []
        """Numbers of containers whose slot one of a later incarnation holds, too: perhaps a crash came between copy and
        removal."""
        self.remarks: list[str] = []
        """The descriptions of files that could not be read, and of files that do not belong in the directory."""
        self.base_lsn = 0 if history else self.mark.base_lsn
        self.incarnation = self.mark.incarnation
        """The highest one seen so far."""
        self.read_error: DiskError | None = None
        """The last read error. An unreadable container may be complete: recovery must not treat it as torn."""
        self._history = history
        self.read({} if known is None else known.sound)

    def read(self, sound: Mapping[int, ContainerHead]) -> None:
        """Read all heads but those that are known to be *sound*."""
        for found in (self.by_slot, self.free, self.copied, self.remarks, self.sound):
            found.clear()
        for name in self.directory.names():
            number = container.file_number(name)
            if number is None:
                if name != mark.NAME and not name.endswith(container.SUFFIX + ".new"):
                    self.remarks.append(f"{self.directory.path}/{name}: not a file of the journal, left alone")
                continue
            head = sound.get(number)
            if head is None:
                self._read_head(name, number)
            else:
                self._take(head, f"{self.directory.path}/{name}")

    def _read_head(self, name: str, number: int) -> None:
        place = f"{self.directory.path}/{name}"
        said = len(self.remarks)
        try:
            with closing(self.directory.open(name)) as file:
                size = file.size_bytes()
                head = self._head_of(file, number, place)
        except BadContainer as error:
            if size == self.container_bytes:
                self.free.append(number)
            else:
                self.remarks.append(f"{place}: {error}")
            return
        except NotAFile as error:  # it never was a container
            self.remarks.append(str(error))
            return
        except DiskError as error:
            self.read_error = error
            self.remarks.append(str(error))
            return
        if head.log_uuid != self.log_uuid:
            self.remarks.append(f"{place}: it belongs to log {head.log_uuid}, not to {self.log_uuid}; left alone")
        elif head.number != number:
            self.remarks.append(f"{place}: it was written as {container.file_name(head.number)}; left alone")
        elif size != self.container_bytes:
            self.remarks.append(f"{place}: it has {size} bytes, a container has {self.container_bytes}; left alone")
        else:
            if len(self.remarks) == said:
                self.sound[number] = head
            self._take(head, place)

    def _take(self, head: ContainerHead, place: str) -> None:
        """*head*'s container holds its slot; of two that do, the one that was written by the later incarnation."""
        other = self.by_slot.get(head.slot, head)
        if other is not head and other.incarnation == head.incarnation:
            self.remarks.append(f"{place}: {container.file_name(other.number)} holds the same slot; left alone")
            return
        self.raise_base(head.base_lsn)
        self.incarnation = max(self.incarnation, head.incarnation)
        newer, older = (head, other) if head.incarnation > other.incarnation else (other, head)
        self.by_slot[head.slot] = newer
        if older is not newer:
            self.copied.append(older.number)
            self.remarks.append(
                f"{place}: slot {head.slot} is also in {container.file_name(other.number)}; "
                f"{container.file_name(newer.number)} is the later copy and counts"
            )

    def _head_of(self, file: ReadableFile, number: int, place: str) -> ContainerHead:
        """Return the head of *file*, reconstructed from its first block if it is corrupt: a crash leaves a valid one,
        or zeros."""
        sector = file.read_at(0, SECTOR_BYTES)
        try:
            return container.decode_head(sector, place)
        except BadContainer as error:
            if not any(sector):
                raise
            raw = file.read_at(DATA_OFFSET, self.container_bytes - DATA_OFFSET)
            if len(raw) < block.BLOCK_HEAD_BYTES:
                raise
            lsn = BlockHead._make(block.HEAD.unpack_from(raw)).lsn
            try:
                first = block.decode(memoryview(raw), lsn, self.log_id).head
            except BadBlock:
                raise error from None
            if lsn % self.container_bytes != DATA_OFFSET:
                raise
            self.remarks.append(f"{place}: its head is damaged ({error}); its contents are known from its first block")
            return ContainerHead(
                first.incarnation, self.log_uuid, self.container_bytes, number, lsn - DATA_OFFSET,
                first.prev_lsn, first.base_lsn, 0,
            )  # fmt: skip

    def file_name(self, slot: int) -> str:
        """Return the name of the container that holds *slot*; empty if none does."""
        return container.file_name(self.by_slot[slot].number) if slot in self.by_slot else ""

    def read_again(self) -> bool:
        """Read the mark and all heads again; whether any head changed."""
        self.mark = read_mark(self.directory)
        self.raise_base(self.mark.base_lsn)
        before = dict(self.by_slot)
        self.read({})
        return self.by_slot != before

    def raise_base(self, base_lsn: int) -> None:
        """Take in that the log begins at *base_lsn* or later."""
        if base_lsn > self.base_lsn and not self._history:
            self.base_lsn = base_lsn


def read_mark(directory: ReadableDirectory) -> Mark:
    """Return the mark of the log in *directory*. Raises `ForeignStore` if it has no mark."""
    if mark.NAME not in directory.names():
        raise ForeignStore(
            directory.path, f"no journal: {mark.NAME} is missing", "name the directory of a CairnMQ store"
        )
    found = mark.read(directory)
    if found is None:
        raise ForeignStore(
            f"{directory.path}/{mark.NAME}",
            "it has no intact copy",
            "the containers are intact: restore it from a backup, or have `cairnmq salvage` recover the messages",
        )
    return found
