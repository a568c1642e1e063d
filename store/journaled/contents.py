"""Writes the contents of messages that arrive in pieces or are put on a queue later, and discards such messages."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import StoreError
from ...journal.format.record import MAX_PAYLOAD_BYTES, Flag, RecordType
from ...journal.write.journal import OWN_LSN, Journal
from ..message_map.state import State

_START, _CHUNK, _DELETE = int(RecordType.START), int(RecordType.CHUNK), int(RecordType.DELETE)
_FLAG_MORE = int(Flag.MORE)
_DISCARDED_AT_ONCE = 1024
"""Messages that are deleted between two checks for room for the records."""


class ContentWriter:
    """Appends Start, Chunk and Delete records of messages that are on no queue. The thread of the store's calls."""

    def __init__(self, journal: Journal, state: State) -> None:
        self._journal = journal
        self._state = state

    def stage(self, piece: bytes, time_us: int, *, is_last: bool = False) -> int:
        """Begin a message on no queue, with a Start record; return its ID. *is_last*: *piece* is all of its content."""
        first, rest = piece[:MAX_PAYLOAD_BYTES], piece[MAX_PAYLOAD_BYTES:]
        flags = 0 if is_last and not rest else _FLAG_MORE
        lsn = self._journal.append(_START, first, time_us=time_us, flags=flags, message_id=OWN_LSN)
        self._state.started(lsn, flags, 0, len(first))
        if rest:
            self.append_content(lsn, rest, time_us, last=is_last)
        return lsn

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        """Append a Chunk record to a staged message. Raises `StoreError` if the message is complete."""
        message = self._state.detailed.get(message_id)
        if message is None or message.last is not None:
            raise StoreError(f"message {message_id}", "its content is complete, or it does not exist")
        view = memoryview(piece)
        for at in range(0, max(len(view), 1), MAX_PAYLOAD_BYTES):
            chunk = view[at : at + MAX_PAYLOAD_BYTES]
            flags = 0 if last and at + len(chunk) == len(view) else _FLAG_MORE
            number = len(message.pieces) + 1
            lsn = self._journal.append(
                _CHUNK, bytes(chunk), time_us=time_us, flags=flags, undo_prev=message_id, message_id=message_id,
                extra=number,
            )  # fmt: skip
            self._state.continued(lsn, flags, message_id, number, len(chunk))

    def discard(self, message_ids: Sequence[int], time_us: int) -> int:
        """Deletes messages that are on no queue, and that no transaction puts on one; the last record's LSN, or 0.

        Recovery deletes all such messages that it finds, so the records only serve readers of the history, and are
        left out while the disk is full: they may need more space than the whole reserve.
        """
        lsn = 0
        for at in range(0, len(message_ids), _DISCARDED_AT_ONCE):
            is_full = self._journal.pool.find_room() is not None
            for message_id in message_ids[at : at + _DISCARDED_AT_ONCE]:
                if is_full:
                    self._state.discarded(message_id)
                    continue
                given_lsn = self._state.place_of(message_id)
                lsn = self._journal.append(
                    _DELETE, time_us=time_us, undo_prev=message_id, message_id=message_id, extra=given_lsn
                )
                self._state.deleted(lsn, message_id, given_lsn)
        return lsn
