"""From a surveyed log into a new store: queue by queue, each in its order, every content verified by its checksums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from crc32c import crc32c

from ...base.disk.seam import ReadableFile
from ...base.errors import JournalError
from ...journal.files.record_lookup import SEE_DUMP, FoundRecord, read_record
from ...recovery.damage_survey import LostMessage, Survey
from ...store.journaled.store import JournalStore
from ...store.message_map.placement import on_queues
from ..inspect.journal_check import Progress
from .quarantine import Quarantine
from .salvage_report import DoubtfulMessage, SalvageReport

_FLUSH_BYTES = 8 << 20


class Contents:
    """Reads records by LSN; one file is kept open, because messages are read in their order. Close it."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._slot = -1
        self._file: ReadableFile | None = None

    def pieces(self, message_id: int) -> Iterator[FoundRecord]:
        """Yield the records with the content of *message_id*, in order. Raises `JournalError` at a damaged one."""
        state = self._survey.state
        detailed = state.detailed.get(message_id)
        yield self._record(state.place_of(message_id))
        if detailed is not None:
            for number in range(1, (detailed.last or 0) + 1):
                if number not in detailed.pieces:
                    raise JournalError(f"message {message_id}", f"piece {number} can't be read", SEE_DUMP)
                yield self._record(detailed.pieces[number][0])

    def what_is_left(self, message_id: int) -> Iterator[bytes]:
        """Yield the existing pieces of an incomplete message."""
        detailed = self._survey.state.detailed.get(message_id)
        chunks = [] if detailed is None else [detailed.pieces[number][0] for number in sorted(detailed.pieces)]
        for lsn in (self._survey.state.place_of(message_id), *chunks):
            try:
                if lsn:
                    yield self._record(lsn).payload
            except JournalError:
                continue

    def _record(self, lsn: int) -> FoundRecord:
        piece = self._survey.pieces.get(lsn)
        if piece is None:
            size, log_id = self._survey.mark.container_bytes, self._survey.reader.log_id
            return read_record(self._open(lsn // size), lsn, size, log_id)
        payload = self._survey.read(piece.payload_lsn, piece.payload_lsn + piece.head.size)
        if crc32c(payload) != piece.head.crc32c:
            raise JournalError(f"LSN {lsn}", f"checksum fails over a payload of {piece.head.size} bytes", SEE_DUMP)
        return FoundRecord(lsn, piece.head, payload)

    def _open(self, slot: int) -> ReadableFile:
        if self._file is None or slot != self._slot:
            self.close()
            name = self._survey.reader.heads.file_name(slot)
            if not name:
                raise JournalError(f"slot {slot}", "no container holds it", SEE_DUMP)
            self._file, self._slot = self._survey.directory.open(name), slot
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class MessageCopy:
    """One copy from a survey to a store."""

    def __init__(
        self, survey: Survey, store: JournalStore, report: SalvageReport, quarantine: Quarantine, progress: Progress
    ) -> None:
        self._survey = survey
        self._store = store
        self._report = report
        self._quarantine = quarantine
        self._progress = progress
        self._contents = Contents(survey)
        self._new_ids: dict[int, tuple[int, int]] = {}  # of messages that may be on several queues: new id and time
        self._waiting_bytes = 0

    def run(self) -> None:
        names = self._report.queue_names  # queues whose deletion is final in SQL have none, and go
        on_queue = {queue: ids for queue, ids in on_queues(self._survey.state).items() if queue in names}
        total = sum(map(len, on_queue.values()))
        done = 0
        with closing(self._contents):
            for queue_id, ids in on_queue.items():
                name = names[queue_id]
                copied = 0
                for message_id in ids:
                    copied += self._copy(message_id, queue_id, name)
                    done += 1
                    self._progress("writing messages", done, total)
                self._report.queues[name] = copied
            self._store.kick()
            self._report.lost = [*self._survey.lost.values()]
            self._keep_the_rest()

    def _copy(self, message_id: int, queue_id: int, name: str) -> bool:
        """Put a message on a queue; return whether it is on the queue afterwards."""
        survey, store = self._survey, self._store
        detailed = survey.state.detailed.get(message_id)
        if message_id in survey.lost or (detailed is not None and not detailed.is_complete):  # or its sender broke off
            return False
        if (known := self._new_ids.get(message_id)) is not None:
            store.enqueue(known[0], queue_id, known[1])
        elif (new_id := self._put(message_id, queue_id)) == 0:
            return False
        elif message_id in survey.doubtful:
            self._report.doubtful.append(DoubtfulMessage(message_id, new_id, name, survey.doubtful[message_id]))
        return True

    def _put(self, message_id: int, queue_id: int) -> int:
        """Store the content on the queue; return the new ID, 0 if the content is incomplete."""
        state = self._survey.state
        detailed = state.detailed.get(message_id)
        try:
            new_id, time_us = put_pieces(self._store, queue_id, self._contents.pieces(message_id))
        except JournalError as error:
            queues = (queue_id,) if detailed is None else tuple(detailed.queues)
            self._survey.lost[message_id] = LostMessage(message_id, queues, f"{error.place}: {error.reason}", True)
            return 0
        if detailed is not None:
            self._new_ids[message_id] = new_id, time_us
        self._waiting_bytes += sum(state.piece_sizes(message_id))
        if self._waiting_bytes >= _FLUSH_BYTES:
            self._waiting_bytes = 0
            self._store.kick()
        return new_id

    def _keep_the_rest(self) -> None:
        for message_id in self._survey.lost:
            self._keep(message_id, "what is left of a message that is lost")
        for message_id, detailed in self._survey.unplaced.items():
            if detailed.start or detailed.pieces:
                self._report.unplaced.append(message_id)
                part = "" if detailed.is_complete else ", in part"
                self._keep(message_id, "a message whose queue is not known" + part)

    def _keep(self, message_id: int, what: str) -> None:
        self._quarantine.keep(f"message-{message_id}.content", self._contents.what_is_left(message_id), what)


def put_pieces(store: JournalStore, queue_id: int, pieces: Iterator[FoundRecord]) -> tuple[int, int]:
    """Enqueue a message piece by piece; return its new ID and its time. Raises `JournalError`, and then leaves nothing.
    """
    first, following = next(pieces), next(pieces, None)
    time_us = first.head.time_us
    if following is None:
        return store.put(queue_id, first.payload, time_us)[0], time_us
    new_id = store.stage(first.payload, time_us)
    try:
        while following is not None:
            piece, following = following, next(pieces, None)
            store.append_content(new_id, piece.payload, time_us, last=following is None)
            store.kick()
    except JournalError:
        store.destroy(new_id, time_us)
        raise
    store.enqueue(new_id, queue_id, time_us)
    return new_id, time_us
