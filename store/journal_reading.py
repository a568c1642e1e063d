"""The reading half of the journal store: contents of durable messages, wherever relocation has them just now."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from ..base.errors import CairnError, JournalError, StoreError
from ..journal.log import Journal
from .parts import part_of
from .state import State


class JournalReading:
    """What `interface.MessageStore` says about loading. Any thread."""

    journal: Journal
    state: State

    def size_of(self, message_id: int) -> int:
        try:
            return sum(self.state.piece_sizes(message_id))
        except (LookupError, StoreError):
            return 0

    def piece_count(self, message_id: int) -> int:
        message = self.state.odd.get(message_id)
        return 1 if message is None else 1 + len(message.pieces)

    def load_piece(self, message_id: int, number: int) -> bytes:
        while True:
            lsn = self._readable(message_id, number)
            try:
                return self.journal.stored.read_record(lsn).payload
            except JournalError:
                if lsn == self._readable(message_id, number):  # else it was relocated meanwhile
                    raise

    def load_content(self, message_id: int, offset: int, length: int) -> bytes:
        return part_of(message_id, offset, length, lambda: self.state.piece_sizes(message_id), self.load_piece)

    def _readable(self, message_id: int, number: int) -> int:
        state = self.state
        return state.readable(state.place_of(message_id) if number == 0 else state.odd[message_id].pieces[number][0])

    def load_many(self, message_ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
        whole = [self.piece_count(message_id) == 1 for message_id in message_ids]
        wanted = list(compress(message_ids, whole))
        lsns = self._start_lsns(wanted)
        unread = zip(wanted, lsns, self.journal.stored.read_many(lsns, most_bytes), strict=False)
        found: list[bytes | CairnError | None] = []
        for is_whole in whole:
            if not is_whole:
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
        """Where the Start records can be read."""
        state = self.state
        if not (state.moved or state.odd):
            return message_ids
        return [state.readable(state.place_of(message_id)) for message_id in message_ids]
