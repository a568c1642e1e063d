"""Stores on a disk in memory, for the tests of this folder."""

from __future__ import annotations

from cairnmq.journal.format.record import HEAD_BYTES, RecordType
from cairnmq.journal.read.scanner import LogReader
from cairnmq.recovery.simulated_store import SimulatedStore
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.message_map.message_entry import SIZE_BITS, SIZE_MASK
from cairnmq.store.message_map.state import State
from tests.harness.journal.logs import Read, read_all
from tests.harness.recovery.world import OPTIONS, MemoryWiring

SIZE = OPTIONS.container_bytes
NOW_US = 7
BIG = bytes(range(256)) * 256
"""The largest payload of one record."""


class Disk(SimulatedStore):
    """The disk and SQL of a store, which can be opened repeatedly."""

    wiring: MemoryWiring

    def __init__(self) -> None:
        super().__init__(OPTIONS, MemoryWiring())

    def records(self) -> list[Read]:
        """Return all records except those about the log itself."""
        return [read for read in read_all(self.files) if read.head.type < RecordType.LOG_OPEN]

    def base_lsn(self) -> int:
        return LogReader(self.files).heads.base_lsn


def queue(store: JournalStore, name: str = "q") -> int:
    made: list[QueueRow | Exception] = []
    store.create_queue(name, made.append)
    assert isinstance(made[0], QueueRow)
    return made[0].id


def put(store: JournalStore, queue_id: int, content: bytes = b"content") -> int:
    return store.put(queue_id, content, NOW_US)[0]


def shown(store: JournalStore) -> dict[int, list[int]]:
    """Return the IDs of the messages on each queue, in order, by queue ID."""
    return {queue_id: list(ids) for queue_id, ids in store.messages().items()}


def come_to_rest(store: JournalStore) -> None:
    """Flush until relocation has nothing more to do."""
    store.became_durable(store.durable_lsn)
    relocation = store.relocation
    while store.journal.has_unsealed or relocation.is_at_work or relocation.victims.is_undecided:
        if store.journal.has_unsealed:
            store.write_notes()
        else:
            store.became_durable(store.durable_lsn)


def particulars(state: State) -> dict[int, tuple[object, ...]]:
    """Return the state of each message, plain or not, in one form, for the comparison of two stores."""
    found: dict[int, tuple[object, ...]] = {}
    for page in state.pages.values():
        for message_id, value in page.items():
            lsn = state.moved.get(message_id, message_id)
            found[message_id] = lsn, value & SIZE_MASK, {}, 0, {value >> SIZE_BITS: (message_id, lsn)}
    for message_id, detailed in state.detailed.items():
        assert message_id not in found
        found[message_id] = detailed.start, detailed.size_bytes, detailed.pieces, detailed.last, detailed.queues
    return found


def live_records(store: JournalStore) -> dict[int, int]:
    """Return the bytes of live records by slot, counted from the state of each message."""
    live: dict[int, int] = {}
    for _, (start, size, pieces, _, queues) in sorted(particulars(store.state).items()):
        records = {start: size, **dict(pieces.values())}  # type: ignore[attr-defined]
        records |= {lsn: 0 for _, lsn in queues.values() if lsn not in records}  # type: ignore[attr-defined]
        for lsn, size_bytes in records.items():
            slot = lsn // store.journal.container_bytes
            live[slot] = live.get(slot, 0) + HEAD_BYTES + size_bytes
    return live
