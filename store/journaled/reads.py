"""Reads the contents of durable messages back from the log, wherever relocation has moved them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from ...base.errors import CairnError, JournalError, StoreError
from ...journal.write.journal import Journal
from ..contract.ranges import part_of
from ..message_map.state import State


class ContentReader:
    """Reads contents back. Any thread."""

    def __init__(self, journal: Journal, state: State) -> None:
        self._records = journal.stored
        self._state = state

    def size_of(self, message_id: int) -> int:
        try:
            return sum(self._state.piece_sizes(message_id))
        except (LookupError, StoreError):
            return 0

    def piece_count(self, message_id: int) -> int:
        message = self._state.detailed.get(message_id)
        return 1 if message is None else 1 + len(message.pieces)

    def load_piece(self, message_id: int, number: int) -> bytes:
        while True:
            lsn = self._readable(message_id, number)
            try:
                return self._records.read_record(lsn).payload
            except JournalError:
                if lsn == self._readable(message_id, number):  # else it was relocated meanwhile
                    raise

    def load_content(self, message_id: int, offset: int, length: int) -> bytes:
        return part_of(message_id, offset, length, lambda: self._state.piece_sizes(message_id), self.load_piece)

    def _readable(self, message_id: int, number: int) -> int:
        state = self._state
        lsn = state.place_of(message_id) if number == 0 else state.detailed[message_id].pieces[number][0]
        return state.readable(lsn)

    def load_many(self, message_ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
        complete = [self.piece_count(message_id) == 1 for message_id in message_ids]
        wanted = list(compress(message_ids, complete))
        lsns = self._start_lsns(wanted)
        unread = zip(wanted, lsns, self._records.read_many(lsns, most_bytes), strict=False)
        found: list[bytes | CairnError | None] = []
        for is_complete in complete:
            if not is_complete:
                found.append(None)
                continue
            message_id, lsn, content = next(unread, (0, 0, None))
            if content is None:
                break
            if isinstance(content, CairnError) and lsn != self._readable(message_id, 0):
                content = self._load_again(message_id)  # it was relocated meanwhile
            found.append(content)
        return found

    def _load_again(self, message_id: int) -> bytes | CairnError:
        try:
            return self.load_piece(message_id, 0)
        except CairnError as error:
            return error

    def _start_lsns(self, message_ids: list[int]) -> list[int]:
        """Return the LSNs at which the START records can be read."""
        state = self._state
        if not (state.moved or state.detailed):
            return message_ids
        return [state.readable(state.place_of(message_id)) for message_id in message_ids]
