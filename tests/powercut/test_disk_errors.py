"""Tests of a running store on disks that are full, fail or become read-only, simulated by kernel features.

A full disk does not prevent dequeues; a failed write fails the store permanently, and the next start
recovers all confirmed messages.
"""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import DiskError, DiskFull, JournalError, JournalFailed
from cairnmq.journal.files.space_reserve import LOW_WATER_BYTES
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.lab import kernel
from cairnmq.tools.lab.disks import KINDS, MIB, Disk, FileSystem, unavailable_reason
from tests.harness.mounted_disk import privately_mounted_disk
from tests.harness.powercut.lives import OPTIONS
from tests.harness.powercut.work import DEADLINE_S, content_of

LEFT_ALONE = "commit=3600"
"""Mount option that limits ext4's own commits to one per hour: a commit on a failed disk makes the file system
read-only, and a slow store would report this instead of its own error."""
needs_mounts = pytest.mark.skipif(bool(unavailable_reason("ext4")), reason=unavailable_reason("ext4") or "it runs here")


class Running:
    """A store with its threads and a record of its confirmations."""

    def __init__(self, place: Path) -> None:
        self.durable_lsn = 0
        self.failure: JournalError | None = None
        self._changed = threading.Condition()
        self.store, self.report = open_store(str(place / "store"), SystemClock(), OPTIONS)
        self.store.start(self._told, self._failed)
        self.confirmed = {row.id: list(self.store.messages().get(row.id, ())) for row in self.queues}
        self.contents: dict[int, bytes] = {}

    @property
    def queues(self) -> list[QueueRow]:
        return list(self.store.queues())

    def make_queue(self) -> int:
        made: Future[QueueRow | Exception] = Future()
        self.store.create_queue("q", made.set_result)
        row = made.result(DEADLINE_S)
        assert isinstance(row, QueueRow), row
        self.confirmed[row.id] = []
        return row.id

    def put(self, queue_id: int, content: bytes) -> None:
        message_id, lsn = self.store.put(queue_id, content, 1)
        self.contents[message_id] = content
        if self.settled(lsn):
            self.confirmed[queue_id].append(message_id)

    def put_until_it_fails(self, queue_id: int) -> None:
        """Store messages until the store fails; its error is then in `failure`."""
        random = Random(1)
        for _ in range(500):
            with suppress(JournalFailed):
                self.put(queue_id, random.randbytes(self.to_page_end()))
            if self.failure is not None:
                return
        raise AssertionError("500 messages were stored")

    def to_page_end(self) -> int:
        """Return the size of a message whose block ends at a page boundary.

        The loop driver of some kernels reports a write as done if only its first pages were allocated. So that a full
        disk below it is detected, no block may begin in an allocated page.
        """
        return 8192 - self.store.journal.next_lsn % 4096 - BLOCK_HEAD_BYTES - HEAD_BYTES

    def take(self, queue_id: int) -> None:
        lsn = self.store.dequeue(self.confirmed[queue_id][0], queue_id, 1)
        assert self.settled(lsn), self.failure
        del self.confirmed[queue_id][0]

    def settled(self, lsn: int) -> bool:
        """Wait until *lsn* is confirmed, or the store has failed."""
        self.store.kick()
        with self._changed:
            assert self._changed.wait_for(lambda: self.durable_lsn > lsn or self.failure is not None, DEADLINE_S)
        self.store.became_durable(self.durable_lsn)
        return self.durable_lsn > lsn

    def close(self) -> None:
        with suppress(JournalFailed):
            self.store.close()

    def _told(self, durable_lsn: int) -> None:
        with self._changed:
            self.durable_lsn = durable_lsn
            self._changed.notify_all()

    def _failed(self, failure: JournalError) -> None:
        with self._changed:
            self.failure = failure
            self._changed.notify_all()


def wait_until_full(store: JournalStore, full: bool) -> None:
    """Wait until the store is full or not; it checks the disk after writes, and once per second while space is low."""
    end_s = time.monotonic() + DEADLINE_S
    while bool(store.full()) != full:
        assert time.monotonic() < end_s, "it never noticed"
        threading.Event().wait(0.01)


def shows(place: Path, confirmed: dict[int, list[int]], contents: dict[int, bytes]) -> None:
    """Check that a new start recovers all confirmed messages in order, followed only by unconfirmed ones."""
    again = Running(place)
    with closing(again):
        for queue_id, ids in confirmed.items():
            assert again.confirmed[queue_id][: len(ids)] == ids
            for message_id in ids:
                assert content_of(again.store, message_id) == contents[message_id]


def fill(path: Path, leave_bytes: int = 0) -> None:
    """Fill the file system up to *leave_bytes*; if that is 0, also use the space reserved for root."""
    with path.open("wb", buffering=0) as file:
        while True:
            room = os.statvfs(path.parent)
            left = (room.f_bavail if leave_bytes else room.f_bfree) * room.f_frsize - leave_bytes
            if left <= 0:
                break
            try:
                file.write(bytes(min(left, MIB)))
            except OSError:
                break
        os.fsync(file.fileno())
    assert os.statvfs(path.parent).f_bavail * room.f_frsize <= leave_bytes + 2 * MIB


def half_made(place: Path) -> list[str]:
    return [path.name for path in (place / "store" / "journal").glob("*.new")]


@contextmanager
def ext4() -> Iterator[FileSystem]:
    with closing(FileSystem("ext4")) as system:
        system.mount(LEFT_ALONE)
        yield system


# ---- a full disk ----------------------------------------------------------------------------------------------------


@needs_mounts
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@kernel.in_private_mounts
def test_a_disk_that_others_fill(kind: str, tmp_path: Path) -> None:
    """A full disk prevents enqueues but not dequeues, and freed space is detected without a restart."""
    with privately_mounted_disk(tmp_path / "m", 96 * MIB) if kind == "tmpfs" else ext4() as mounted:
        place = mounted if isinstance(mounted, Path) else mounted.place
        running = Running(place)
        with closing(running):
            queue_id = running.make_queue()
            for number in range(40):
                running.put(queue_id, bytes([number]) * 30_000)
            assert running.store.full() == ""

            fill(place / "others", leave_bytes=LOW_WATER_BYTES // 4)
            for _ in range(5):
                running.take(queue_id)
            wait_until_full(running.store, True)
            for _ in range(25):
                running.take(queue_id)
            assert running.failure is None

            (place / "others").unlink()
            wait_until_full(running.store, False)
            for number in range(40):
                running.put(queue_id, bytes([number]) * 30_000)
            assert running.failure is None
            assert len(running.confirmed[queue_id]) == 50
        assert half_made(place) == []
        shows(place, running.confirmed, running.contents)


@needs_mounts
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@kernel.in_private_mounts
def test_a_disk_that_is_filled_to_the_last_byte(kind: str, tmp_path: Path) -> None:
    """Messages are stored until the existing containers are full, and no incomplete container file is left."""
    with privately_mounted_disk(tmp_path / "m", 96 * MIB) if kind == "tmpfs" else ext4() as mounted:
        place = mounted if isinstance(mounted, Path) else mounted.place
        running = Running(place)
        with closing(running):
            queue_id = running.make_queue()
            fill(place / "others")
            running.put_until_it_fails(queue_id)
            assert "no space left" in str(running.failure)
            assert running.confirmed[queue_id]
        assert half_made(place) == []
        with suppress(DiskFull):  # or success, as the failed container has left space for one
            open_store(str(place / "store"), SystemClock(), OPTIONS)[0].close()
        assert half_made(place) == []
        (place / "others").unlink()
        shows(place, running.confirmed, running.contents)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """A file size limit (`ulimit -f`) is reported as a lack of space; a running store fails at it without loss."""

    @contextmanager
    def limit(size_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with limit(MIN_CONTAINER_BYTES // 2), pytest.raises(DiskFull, match="no space left"):
        open_store(str(tmp_path / "store"), SystemClock(), OPTIONS)
    assert half_made(tmp_path) == []
    running = Running(tmp_path)
    with closing(running):
        queue_id = running.make_queue()
        with limit(MIN_CONTAINER_BYTES // 2):
            running.put_until_it_fails(queue_id)
        assert "no space left" in str(running.failure)
        assert running.confirmed[queue_id]
    shows(tmp_path, running.confirmed, running.contents)


# ---- a disk that fails ----------------------------------------------------------------------------------------------


class SparseDisk(Disk):
    """A disk in a sparse file on a small tmpfs: if the tmpfs is full, a write into a hole fails."""

    def __init__(self, place: Path, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._file = place / "disk"
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        os.truncate(self._fd, size_bytes)
        self._device, self.path = kernel.attach(self._fd)

    def dig_holes(self) -> None:
        """Free the space of ranges that contain only zeros."""
        subprocess.run(["fallocate", "--dig-holes", str(self._file)], check=True)


@needs_mounts
@kernel.in_private_mounts
def test_a_disk_that_dies() -> None:
    with ext4() as system:
        running = Running(system.place)
        with closing(running):
            queue_id = running.make_queue()
            for number in range(5):
                running.put(queue_id, bytes([number]) * 5000)
            system.disk.cut(Random(1))
            running.put_until_it_fails(queue_id)
            # ext4 becomes read-only if the sync of a new container is the first one that meets the dead disk
            whys = ("fdatasync failed: Input/output error", "failed: Read-only file system")
            assert any(reason in str(running.failure) for reason in whys), running.failure
            assert len(running.confirmed[queue_id]) == 5
        system.power_on()
        shows(system.place, running.confirmed, running.contents)


@needs_mounts
@kernel.in_private_mounts
def test_a_write_back_that_fails(tmp_path: Path) -> None:
    """The kernel reports a failed write at the sync; the store fails permanently, though later syncs would succeed."""
    with privately_mounted_disk(tmp_path / "m", 64 * MIB) as below:
        disk = SparseDisk(below, KINDS["ext4"].size_bytes)
        with closing(FileSystem("ext4", disk)) as system:
            system.mount(LEFT_ALONE)
            running = Running(system.place)
            with closing(running):
                queue_id = running.make_queue()
                for number in range(5):
                    running.put(queue_id, bytes([number + 1]) * running.to_page_end())
                disk.dig_holes()
                fill(below / "others")
                running.put_until_it_fails(queue_id)
                assert "(fdatasync: No space left on device)" in str(running.failure)
                confirmed = list(running.confirmed[queue_id])
                (below / "others").unlink()  # the disk works again, but the store stays failed
                before = running.durable_lsn
                for _ in range(20):
                    with suppress(JournalFailed):
                        running.put(queue_id, bytes(60_000))
                assert running.durable_lsn == before
                assert running.confirmed[queue_id] == confirmed
                assert len(confirmed) >= 5
            system.unmount()
            system.mount()
            shows(system.place, running.confirmed, running.contents)


# ---- a file system that is read-only --------------------------------------------------------------------------------


@needs_mounts
@kernel.in_private_mounts
def test_a_read_only_file_system() -> None:
    """A start on a read-only file system reports an error and changes nothing."""
    with ext4() as system:
        running = Running(system.place)
        with closing(running):
            queue_id = running.make_queue()
            running.put(queue_id, b"x" * 5000)
        system.unmount()
        system.mount(read_only=True)
        with pytest.raises(DiskError, match="read-only"):
            open_store(str(system.place / "store"), SystemClock(), OPTIONS)
        system.unmount()
        system.mount()
        shows(system.place, running.confirmed, running.contents)


@needs_mounts
@kernel.in_private_mounts
def test_a_file_system_that_turns_read_only() -> None:
    """A running store fails if its file system becomes read-only, as ext4 does when it detects damage."""
    with ext4() as system:
        system.unmount()
        system.mount("errors=remount-ro")
        trigger = Path("/sys/fs/ext4") / Path(system.disk.path).name / "trigger_fs_error"
        running = Running(system.place)
        with closing(running):
            queue_id = running.make_queue()
            for number in range(5):
                running.put(queue_id, bytes([number]) * 5000)
            trigger.write_text("1")
            running.put_until_it_fails(queue_id)
            assert "read-only" in str(running.failure).lower() or "Input/output error" in str(running.failure)
        system.unmount()
        subprocess.run(["e2fsck", "-fy", system.disk.path], check=False, capture_output=True)
        system.mount()
        shows(system.place, running.confirmed, running.contents)
