"""A loader that creates a store, or a plain journal, from the lines of a dump.

Loading keeps the records in their order, each with its type, flags, reason, queue, time, size and payload; the
references between records; and the wiring. It does not keep LSNs, blocks and containers: the result is another log with
its own UUID. A reference to a loaded record leads to that record. A reference to an LSN without a line leads to an LSN
without a record: equal ones stay equal, and all LSNs, known or not, keep their order. A second dump therefore differs
from the first only in positions, and is a fixed point: loading and dumping it again gives the same dump. Records about
the log itself (log-open, log-holes) are skipped; the new log has its own.

The lines are read twice, because LSNs without a line need as much room between the records as their number. The parsed
lines are kept in a file beside the new store. The store is renamed to its final name when it is complete and was read
back as recovery would read it; an error leaves nothing.
"""

from __future__ import annotations

import marshal
import os
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, NamedTuple
from uuid import UUID, uuid4

from msgspec import UNSET

from ...base.clock import Clock
from ...base.disk.real import RealDirectory
from ...base.errors import CairnError
from ...journal.format.log_mark import Mark, MarkFile
from ...journal.format.record import HEAD_BYTES
from ...journal.write.journal import OWN_LSN, Journal
from ...journal.write.open import container_size, open_log
from ...store.contract.layout import JOURNAL_NAME, recovered_name
from ...store.contract.wiring_rows import QueueRow, Rows
from ...store.message_map.transaction_log import UNPLACED
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME
from ...store.wiring.wiring import Wiring
from ..inspect.journal_check import Progress, check_journal
from ..repair.partial_directory import check_new, move_complete
from .load_lines import MAX_LINE_BYTES, OWN, EndLine, RecordLine, parse, wrong

_FLUSH_BYTES = 4 << 20
_STEP = 2
"""The distance between LSNs without a record: the lowest bit of an LSN in a list has another meaning."""


class Result(NamedTuple):
    """The result of a load."""

    records: int
    messages: int
    """The number of loaded messages that are on queues."""
    queues: int
    unknown: int
    """LSNs that records refer to, and no line has."""
    damaged: int
    """Lines of the dump that reported damage."""
    left_out: int
    """The number of records that are missing compared to the end line of the dump; negative for additional ones."""


@dataclass
class _Lines:
    """The findings of the first pass."""

    known: array[int] = field(default_factory=lambda: array("Q"))
    """LSNs of records, rising."""
    orphans: set[int] = field(default_factory=set)
    """LSNs that no record has."""
    names: dict[int, str] = field(default_factory=dict)
    queue_ids: set[int] = field(default_factory=set)
    rows: Rows | None = None
    damaged: int = 0
    read: int = 0
    """Lines of records."""
    end: EndLine | None = None

    def take(self, number: int, found: RecordLine | Rows | EndLine | str) -> None:
        if self.end is not None:
            raise wrong(number, "it stands behind the end of the dump", "put it before that line")
        self.read += isinstance(found, RecordLine)
        if isinstance(found, EndLine):
            self.end = found
        elif isinstance(found, str):
            self.damaged += found == "damage"
        elif isinstance(found, Rows):
            if self.rows is not None:
                raise wrong(number, "there is another wiring before it")
            self.rows = found
        elif found.type not in OWN:
            self._take_record(number, found)

    def _take_record(self, number: int, found: RecordLine) -> None:
        if self.known and found.lsn <= self.known[-1]:
            raise wrong(number, f"LSN {found.lsn} does not rise: the line before it has {self.known[-1]}")
        for lsn in found.references():
            at = bisect_left(self.known, lsn)
            if at == len(self.known) or self.known[at] != lsn:
                self.orphans.add(lsn)
        self.known.append(found.lsn)
        if found.queue_id:
            self.queue_ids.add(found.queue_id)
        if found.queue_id and found.queue is not None:
            known = self.names.setdefault(found.queue_id, found.queue)
            if known != found.queue:
                raise wrong(number, f"queue {found.queue_id} is called {found.queue!r}, and {known!r} before")

    def wiring(self) -> Rows:
        """The wiring of the line that has it, or made up from the queues that records name."""
        if self.rows is not None:
            return self.rows
        names = set(self.names.values())
        queues = []
        for queue_id in sorted(self.queue_ids):
            queues.append(QueueRow(queue_id, self.names.get(queue_id) or recovered_name(queue_id, names)))
        if len({row.name for row in queues}) < len(queues):
            raise CairnError("the lines", "two queues have one name", "name them apart, or give a wiring")
        return Rows(queues=queues)


def load(
    lines: IO[bytes], target: str, clock: Clock, progress: Progress, *, plain: bool = False,
    container_bytes: int = 1 << 20, log_uuid: UUID | None = None, without_end: bool = False,
) -> Result:  # fmt: skip
    """Create a store at *target*, which must not exist; with *plain* a journal directory without a wiring.

    A dump without an end line was cut off, unless *without_end* declares that it never had one.

    Raises `CairnError`, for a line with its number, and then leaves no files.
    """
    building = target.rstrip(os.sep) + ".loading"
    check_new(target, building, "left by a load that was killed")
    uuid = log_uuid or uuid4()
    try:
        root = RealDirectory(building, create=True)
        spool = os.path.join(building, "lines")
        found = _first_time(lines, spool, progress)
        _check_end(found, without_end)
        rows = found.wiring()
        journal = RealDirectory(os.path.join(building, JOURNAL_NAME), create=True)
        _Writing(journal, clock, uuid, container_size(container_bytes), found).run(_again(spool), progress)
        os.unlink(spool)
        if not plain:
            with closing(Wiring.open(os.path.join(building, WIRING_NAME))) as wiring:
                wiring.restore(uuid, rows, formatted=True)
        checked = check_journal(journal, "reading it back", progress)
        root.sync()
        move_complete(journal.path if plain else building, target)
    except OSError as error:
        raise CairnError(target, f"the load failed: {error.strerror}", "nothing was made") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    queues = 0 if plain else len(rows.queues)
    said = found.end.records if found.end is not None else UNSET
    left_out = 0 if said is UNSET else said - found.read
    return Result(len(found.known), checked.messages, queues, len(found.orphans), found.damaged, left_out)


def _check_end(found: _Lines, without_end: bool) -> None:
    if found.end is None and not found.read and found.rows is None:
        raise CairnError("the lines", "there are none", "nothing was made; dump with --complete")
    if found.end is None and not without_end:
        raise CairnError(
            "the lines", "they have no end, so the dump was cut",
            "nothing was made; dump again, or give --without-end for edited lines or an older format",
        )  # fmt: skip


def _first_time(lines: IO[bytes], spool: str, progress: Progress) -> _Lines:
    found = _Lines()
    done = number = 0
    with open(spool, "wb") as kept:
        while line := lines.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise wrong(number, f"it is longer than {MAX_LINE_BYTES} bytes")
            if not line.strip():
                continue
            read = parse(number, line)
            found.take(number, read)
            if isinstance(read, RecordLine) and read.type not in OWN:  # checked, and quickly read again
                marshal.dump(tuple(read), kept)
            done += len(line)
            progress("reading lines", done, 0)
    return found


def _again(spool: str) -> Iterator[RecordLine]:
    with open(spool, "rb") as kept:
        end = os.fstat(kept.fileno()).st_size
        while kept.tell() < end:
            yield RecordLine._make(marshal.load(kept))


class _Writing:
    """The second time through: records are appended, their LSNs replaced by new ones."""

    def __init__(self, directory: RealDirectory, clock: Clock, uuid: UUID, container_bytes: int, found: _Lines) -> None:
        self._directory = directory
        self._clock = clock
        self._known = found.known
        self._new = array("Q")
        self._orphans = array("Q", sorted(found.orphans))
        self._new_orphans = array("Q")
        before = bisect_left(self._orphans, found.known[0]) if found.known else 0
        slot = -(-_STEP * (before + 1) // container_bytes) if before else 0
        begin = slot * container_bytes  # so that there is room before the first record
        mark = Mark(True, 0, uuid, container_bytes, 0, begin, begin, clock.wall_us())
        MarkFile.format(directory, mark).close()
        self._journal = self._open()

    def _open(self) -> Journal:
        return open_log(self._directory, self._clock, visit=lambda block: None)[0]

    def run(self, records: Iterator[RecordLine], progress: Callable[[str, int, int], None]) -> None:
        waiting = done = 0
        try:
            for record in records:
                self._place_orphans(record.lsn)
                self._new.append(self._append(record))
                waiting += HEAD_BYTES + len(record.payload)
                if waiting >= _FLUSH_BYTES:
                    self._journal.flush()
                    waiting = 0
                done += 1
                progress("writing records", done, len(self._known))
            self._journal.flush()
            self._journal.close()
        except BaseException:
            self._journal.abandon()
            raise

    def _place_orphans(self, lsn: int) -> None:
        """Place the orphans before the record that was dumped at *lsn*, and behind the one before it."""
        at = len(self._new_orphans)
        end = bisect_left(self._orphans, lsn, at)
        if end == at:
            return
        last = self._new[-1] if self._new else 0
        highest = last + _STEP * (end - at)
        if highest >= last + HEAD_BYTES:  # the next head might stand right behind the last one
            self._journal.flush()
        while highest >= max(last + HEAD_BYTES, self._journal.next_lsn):  # an opening leaves the rest of a container
            self._journal.close()
            self._journal = self._open()
        self._new_orphans.extend(range(last + _STEP, highest + 1, _STEP))

    def _append(self, record: RecordLine) -> int:
        new, payload = self._new_lsn, record.payload
        if record.lists_messages:
            payload = array("Q", map(new, array("Q", payload))).tobytes()
        elif record.lists_operations:
            listed = array("Q", payload)
            payload = array("Q", [new(one & ~UNPLACED) | one & UNPLACED for one in listed]).tobytes()
        elif record.lists_acquired:
            size = 8 * record.extra
            payload = array("Q", map(new, array("Q", payload[:size]))).tobytes() + payload[size:]
        return self._journal.append(
            record.type, payload, time_us=record.time_us, flags=record.flags, undo_prev=new(record.undo_prev),
            message_id=OWN_LSN if record.message_id == record.lsn else new(record.message_id),
            queue_id=record.queue_id, txn_id=OWN_LSN if record.txn_id == record.lsn else new(record.txn_id),
            extra=new(record.extra) if record.extra_is_lsn else record.extra,
        )  # fmt: skip

    def _new_lsn(self, lsn: int) -> int:
        if not lsn:
            return 0
        at = bisect_left(self._known, lsn)
        if at < len(self._new) and self._known[at] == lsn:
            return self._new[at]
        return self._new_orphans[bisect_left(self._orphans, lsn)]
