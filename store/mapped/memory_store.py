"""The memory store: transient. Its content is lost when it is closed, or when its process ends.

For brokers whose messages need not outlive them, and as a simple reference for the others in tests. Every change is
"durable" as soon as durability is requested, without waiting. The wiring is in SQL as in the other stores, in an SQLite
database in memory, so it has the same rules and the same errors.

Threads: as in `interface`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from ...base.errors import JournalError, StoreError
from ..wiring.database import open_memory
from ..wiring.wiring import Wiring
from .memory_tables import MemoryTables
from .store import MappedStore
from .write_log import WriteLog


class _Contents(WriteLog):
    """The ledger of a store that writes nothing: only contents are kept."""

    def __init__(self) -> None:
        self.pieces: dict[int, list[bytes]] = {}
        """Message id to its pieces. Any thread may look."""

    def started(self, message_id: int, content: bytes, *, is_last: bool) -> None:
        self.pieces[message_id] = [bytes(content)]

    def continued(self, message_id: int, number: int, content: bytes, *, is_last: bool) -> None:
        self.pieces[message_id].append(bytes(content))

    def deleted(self, message_id: int) -> None:
        del self.pieces[message_id]

    def dropped(self, message_ids: Sequence[int]) -> None:
        for message_id in message_ids:
            del self.pieces[message_id]


class MemoryStore(MappedStore):
    """A new and empty one each time."""

    def __init__(self) -> None:
        wiring = Wiring(open_memory())
        wiring.identify(uuid4())
        self._contents = _Contents()
        super().__init__(wiring, MemoryTables(), self._contents, 1)

    def start(
        self,
        on_durable: Callable[[int], None],
        on_failure: Callable[[JournalError], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_durable = on_durable
        self.start_sql()

    def kick(self) -> None:
        if self.durable_lsn != self.next_lsn:
            self._on_durable(self.next_lsn)

    def full(self, size_bytes: int = 0, records: int = 0) -> str:
        return ""

    def load_piece(self, message_id: int, number: int) -> bytes:
        pieces = self._contents.pieces.get(message_id)
        if pieces is None:
            raise StoreError(f"message {message_id}", "it does not exist")
        return pieces[number]

    def load_first(self, message_ids: Sequence[int]) -> dict[int, bytes]:
        known = self._contents.pieces
        return {one: pieces[0] for one in message_ids if (pieces := known.get(one)) is not None}

    def end_reads(self) -> None:
        """No read ever waits."""

    def close(self) -> None:
        self.close_sql()
        self._wiring.close()
