"""The holders of a slot in the log, by name, which explain why a container is not released.

A slot is held by the messages, the transactions in doubt and the purges that have a record in it, and by the records in
it that end messages of other slots (see `pins`). Any thread may ask: what others change is copied whole before it is
looked at, so an answer is true of one moment, or was until recently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..message_map.message_entry import DetailedMessage
from ..message_map.state import State


@dataclass(frozen=True)
class MessageHolds:
    """A message has a live record in the slot."""

    kind = "message"
    message_id: int
    queue_ids: tuple[int, ...]
    """The queues it is on."""

    def description(self, queue_names: Mapping[int, str]) -> str:
        """Describe the holder in words; a queue without a name is shown with its ID."""
        if not self.queue_ids:
            return f"message {self.message_id}, on no queue yet"
        names = ", ".join(queue_names.get(queue_id, f"id {queue_id}") for queue_id in self.queue_ids)
        return f"message {self.message_id} on queue {names}"


@dataclass(frozen=True)
class TransactionHolds:
    """A transaction that is in doubt has a live record in the slot."""

    kind = "transaction"
    txn_id: int
    xid: bytes
    state: str
    """The state "prepared", or the decision without its coordinator: "committed", "rolled back"."""

    def description(self, queue_names: Mapping[int, str]) -> str:
        return f"transaction {self.xid.hex()}, {self.state}"


@dataclass(frozen=True)
class PurgeHolds:
    """A purge or deletion of a queue in the slot that is not applied to all messages of the queue yet."""

    kind = "purge"
    queue_id: int

    def description(self, queue_names: Mapping[int, str]) -> str:
        return f"a purge of queue {queue_names.get(self.queue_id, f'id {self.queue_id}')}"


@dataclass(frozen=True)
class TombstonesHold:
    """Records in the slot end, or take the place of, so many records in another one."""

    kind = "records"
    slot: int
    """The other one."""
    records: int

    def description(self, queue_names: Mapping[int, str]) -> str:
        return f"ends of messages in slot {self.slot}"


Holder = MessageHolds | TransactionHolds | PurgeHolds | TombstonesHold


class SlotHolders:
    """Finds the holders of the slots of one log."""

    def __init__(self, state: State, container_bytes: int) -> None:
        self._state = state
        self._container_bytes = container_bytes
        self._last = 0, 0  # a slot, and a message that held it: most often it still does

    def of(self, slot: int) -> Iterator[Holder]:
        """Everything that holds *slot*: messages, transactions, purges, then ends."""
        state, size = self._state, self._container_bytes
        for message_id in state.pages.get(slot, {}).copy():
            if message_id not in state.moved:
                yield from self._message(message_id, slot)
        for message_id, lsn in state.moved.copy().items():
            if lsn // size == slot:
                yield from self._message(message_id, slot)
        for message_id in state.detailed.copy():
            yield from self._message(message_id, slot)
        outcomes = state.outcomes
        for txn_id, prepared in outcomes.prepared.copy().items():
            if any(lsn // size == slot for lsn, _ in prepared.records()):
                yield TransactionHolds(txn_id, prepared.xid, "prepared")
        for txn_id, decided in outcomes.decided.copy().items():
            if decided.lsn // size == slot:
                yield TransactionHolds(txn_id, decided.xid, "committed" if decided.committed else "rolled back")
        for queue_id, cut in state.cuts.unswept.copy().items():
            if any(one.lsn // size == slot for one in (cut, *cut.before)):
                yield PurgeHolds(queue_id)
        for ended, records in sorted(state.pins.tombstones.get(slot, {}).copy().items()):
            yield TombstonesHold(ended, records)

    def first(self, slot: int) -> Holder | None:
        """Return one of the holders of *slot*; the last result is reused while it is valid."""
        if self._last[0] == slot and (known := next(self._message(self._last[1], slot), None)) is not None:
            return known
        found = next(self.of(slot), None)
        if isinstance(found, MessageHolds):
            self._last = slot, found.message_id
        return found

    def _message(self, message_id: int, slot: int) -> Iterator[MessageHolds]:
        """Yield the holder *message_id*, if the message exists and holds *slot*."""
        state = self._state
        detailed = state.detailed.get(message_id)
        if detailed is not None:
            if slot in {lsn // self._container_bytes for lsn in _lsns(detailed)}:
                yield MessageHolds(message_id, tuple(sorted(detailed.queues.copy())))
            return
        queue_id = state.queue_of(message_id)
        if queue_id is not None and state.place_of(message_id) // self._container_bytes == slot:
            yield MessageHolds(message_id, (queue_id,))


def _lsns(message: DetailedMessage) -> Iterator[int]:
    yield message.start
    for lsn, _ in message.pieces.copy().values():
        yield lsn
    for _, lsn in message.queues.copy().values():
        yield lsn
