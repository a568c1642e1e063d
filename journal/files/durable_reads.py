"""Reads of the durable log: records by their LSN, and the blocks of a slot. Any thread.

A container may be released while it is read. Then the read raises an error, and never returns other content.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from ...base.errors import CairnError, DiskError, JournalError
from ..format.block import BadBlock, Block
from ..format.container import DATA_OFFSET
from ..format.record import RecordHead
from .container_pool import ContainerPool
from .read_window import ReadWindow
from .record_lookup import SEE_DUMP, FoundRecord, read_heads, read_payloads, read_record


class DurableReads:
    """The durable part of a log that is open for writing."""

    def __init__(self, pool: ContainerPool, log_id: int) -> None:
        self._pool = pool
        self._container_bytes = pool.container_bytes
        self._log_id = log_id

    def read_record(self, lsn: int) -> FoundRecord:
        """Return a durable record, read from the disk."""
        slot = lsn // self._container_bytes
        try:
            return self._pool.read(slot, lambda file: read_record(file, lsn, self._container_bytes, self._log_id))
        except KeyError:
            raise _not_held(lsn) from None

    def read_heads(self, lsns: Iterable[int]) -> dict[int, RecordHead]:
        """Return the heads of durable records, read a window at a time, except those whose slot is no longer held.

        Raises `JournalError` at one whose block fails its checksum.
        """
        size, log_id = self._container_bytes, self._log_id
        found: dict[int, RecordHead] = {}
        for slot, some in groupby(sorted(lsns), key=lambda lsn: lsn // size):
            here = list(some)
            with suppress(KeyError):
                found |= self._pool.read(slot, lambda file, here=here: read_heads(file, here, size, log_id))  # type: ignore[misc]
        return found

    def read_many(self, lsns: Sequence[int], most_bytes: int) -> list[bytes | CairnError]:
        """Return the payloads of durable records, read a window at a time, with an error in place of an unreadable one.

        Stops behind the payload with which *most_bytes* is reached, so there may be fewer. Fast for records that stand
        close together, in ascending order.
        """
        found: list[bytes | CairnError] = []
        done_bytes = 0
        while len(found) < len(lsns) and done_bytes < most_bytes:
            some, size = self._read_slot(lsns, len(found), most_bytes - done_bytes)
            found += some
            done_bytes += size
        return found

    def _read_slot(self, lsns: Sequence[int], at: int, most_bytes: int) -> tuple[list[bytes | CairnError], int]:
        slot = lsns[at] // self._container_bytes
        try:
            return self._pool.read(
                slot, lambda file: read_payloads(file, lsns, at, most_bytes, self._container_bytes, self._log_id)
            )
        except KeyError:
            return [_not_held(lsns[at])], 0
        except DiskError as error:  # the file can't be opened
            return [error], 0

    def blocks_of(self, slot: int, last_lsn: int) -> Generator[Block, None, None]:
        """Yield the blocks of *slot*, which are durable, up to the one at *last_lsn*.

        Raises `JournalError` at one that can't be read.
        """
        lsn = slot * self._container_bytes + DATA_OFFSET
        try:
            window = ReadWindow(self._pool.open(slot), self._container_bytes)
        except KeyError:
            raise JournalError(f"slot {slot}", "no container holds it any more") from None
        try:
            while lsn <= last_lsn:
                found = window.block_at(lsn, self._log_id)
                yield found
                lsn = found.end_lsn
        except BadBlock as error:
            raise JournalError(f"LSN {lsn}", error.reason, SEE_DUMP) from error
        finally:
            window.file.close()


def _not_held(lsn: int) -> JournalError:
    return JournalError(f"LSN {lsn}", "no container holds it any more")
