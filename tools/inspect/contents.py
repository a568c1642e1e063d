"""The content of messages in a damaged log, piece by piece, each verified by its checksum."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from ...base.disk.seam import ReadableFile
from ...base.errors import JournalError
from ...journal.files.record_lookup import SEE_DUMP, FoundRecord, read_record
from ...recovery.damage_survey import Survey


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
