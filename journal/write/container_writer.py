"""The containers that a flush writes to: the one that the log is in, and those that it left on the way.

A container that was left is synced beside the writing of the next ones, if there are threads for it: a flush of 8 MiB
into containers of 1 MiB waits for a few syncs in a row, then, instead of nine. In which order they reach the disk does
not matter, for nothing of a flush is confirmed, nor claimed by any block, before all of them have.

Threads: the writer, who waits for the others.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

from ...base.clock import Clock
from ...base.disk.seam import File
from ..files.container_pool import ContainerPool
from .metrics import Meters


class ContainerWriter:
    """Opens containers for the writer, and syncs what it wrote."""

    def __init__(self, pool: ContainerPool, clock: Clock, meters: Meters, incarnation: int, syncers: int) -> None:
        """*syncers*: how many threads sync what was left; with 0 the writer does it at the end of its flush."""
        self.slot = -1
        """The slot that the log is in, -1 before the first block."""
        self._pool = pool
        self._clock = clock
        self._meters = meters
        self._incarnation = incarnation
        self._executor = ThreadPoolExecutor(syncers, "cairnmq-sync") if syncers else None
        self._file: File | None = None
        self._left: list[tuple[File, Future[float] | None]] = []

    def file_for(self, slot: int, prev_lsn: int, base_lsn: int) -> File:
        """The file that holds *slot*, which is the last one or is begun now, with a head that is written."""
        if slot == self.slot and self._file is not None:
            return self._file
        if self._file is not None:
            syncing = self._executor.submit(self._sync, self._file) if self._executor is not None else None
            self._left.append((self._file, syncing))
            self._file = None
        self._file = self._pool.take(
            slot, incarnation=self._incarnation, prev_lsn=prev_lsn, base_lsn=base_lsn,
            time_us=self._clock.wall_us(), opening=self.slot < 0,
        )  # fmt: skip
        self.slot = slot
        return self._file

    def sync(self) -> None:
        """Sync everything that was written. Raises `DiskError`, after which all of it is in doubt."""
        if self._file is not None:
            self._meters.fsync_s.observe(self._sync(self._file))
        if self._left:
            for file, syncing in self._left:
                self._meters.fsync_s.observe(self._sync(file) if syncing is None else syncing.result())
            self._close_left()

    def is_in_place(self) -> bool:
        """Return whether the next start will find the file that is written to under its name."""
        return self._file is None or self._file.is_in_place()

    def close(self) -> None:
        """Close the files after pending syncs have finished."""
        if self._executor is not None:
            self._executor.shutdown()
        self._close_left()
        if self._file is not None:
            self._file.close()

    def _sync(self, file: File) -> float:
        begun_s = self._clock.monotonic_s()
        file.sync()
        return self._clock.monotonic_s() - begun_s

    def _close_left(self) -> None:
        if not self._left:
            return
        wait([syncing for _, syncing in self._left if syncing is not None])
        for file, _ in self._left:
            file.close()
        self._left.clear()
