"""The operations on a store, the confirmed part of them, and a check of the state that a recovery shows.

This module depends neither on the store nor on the disks whose power is cut. Operations have one order, so a recovered
store must show the outcome of a prefix of them that includes all confirmed operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Shown = dict[int, list[int]]
"""Queue ID to the IDs of the messages on it, in order; no entry for an empty queue."""

DEFECTS = ("lost", "resurrected", "duplicated", "phantom", "corrupt", "reordered", "gap", "queue", "alarm")
"""The kinds of defects.

* phantom: a message that was never put on the queue
* gap: an operation shows, and an earlier one does not
* queue: a queue that SQL confirmed is missing, or an unknown one exists
* alarm: recovery refuses a state that a power cut left
"""


class Wrong(AssertionError):
    """A state shown by a recovery that the history does not permit."""

    def __init__(self, defect: str, reason: str) -> None:
        super().__init__(f"{defect}: {reason}")
        self.defect = defect


class Operation(NamedTuple):
    """An enqueue or a dequeue, confirmed once the durable LSN has passed *lsn*."""

    lsn: int
    kind: Literal["enqueue", "dequeue"]
    message_id: int
    queue_id: int


class History:
    """The history of one store. One thread adds operations; any thread may confirm them."""

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        """The content of each message that may be on a queue."""
        self.queues: dict[int, str] = {}
        self.asked: set[str] = set()
        """Names of requested queues, whose creation was not confirmed."""
        self.confirmed_lsn = 0
        self.now: Shown = {}
        """The contents of the queues if all operations took effect."""
        self._begun_with: Shown = {}
        """The state that the last recovery showed, which is final."""
        self._operations: list[Operation] = []

    # ---- operations -----------------------------------------------------------------------------------------------

    def did(self, lsn: int, kind: Literal["enqueue", "dequeue"], message_id: int, queue_id: int) -> None:
        operation = Operation(lsn, kind, message_id, queue_id)
        self._operations.append(operation)
        _apply(self.now, [operation])

    def confirm(self, durable_lsn: int) -> None:
        self.confirmed_lsn = max(self.confirmed_lsn, durable_lsn)

    def decide(self, shown: Shown) -> None:
        """Make *shown*, the result of a recovery, the state from which every later one must start."""
        self._begun_with = shown
        self.now = {queue_id: list(ids) for queue_id, ids in shown.items()}
        self._operations = []
        on_queues = {message_id for ids in shown.values() for message_id in ids}
        self.contents = {message_id: self.contents[message_id] for message_id in on_queues}

    @property
    def confirmed(self) -> int:
        """Return the number of operations confirmed since the last recovery."""
        return sum(operation.lsn < self.confirmed_lsn for operation in self._operations)

    @property
    def unconfirmed(self) -> int:
        return len(self._operations) - self.confirmed

    # ---- state after a recovery -----------------------------------------------------------------------------------

    def check(self, shown: Shown) -> int:
        """Raise `Wrong` if *shown* is not permitted, else return the number of unconfirmed operations kept."""
        now = {queue_id: list(ids) for queue_id, ids in self._begun_with.items()}
        confirmed = self.confirmed
        _apply(now, self._operations[:confirmed])
        if now == shown:
            return 0
        for kept, operation in enumerate(self._operations[confirmed:], 1):
            _apply(now, [operation])
            if now == shown:
                return kept
        raise self._wrong(shown)

    def check_content(self, message_id: int, content: bytes) -> None:
        expected = self.contents[message_id]
        if content != expected:
            at = next((n for n, (a, b) in enumerate(zip(content, expected, strict=False)) if a != b), "the end")
            raise Wrong(
                "corrupt", f"message {message_id}: {len(content)} bytes of {len(expected)}, another one from {at}"
            )

    def check_queues(self, names: dict[int, str]) -> None:
        """Check that every queue confirmed by SQL exists, and that every other queue was requested."""
        for queue_id, name in self.queues.items():
            if names.get(queue_id) != name:
                raise Wrong("queue", f"{name} was confirmed as {queue_id}, SQL has {names}")
        for queue_id in names.keys() - self.queues.keys():
            if names[queue_id] not in self.asked:
                raise Wrong("queue", f"nobody asked for {queue_id}, {names[queue_id]!r}")

    def _wrong(self, shown: Shown) -> Wrong:
        """Return the most severe defect of *shown*."""
        places = [(message_id, queue_id) for queue_id, ids in shown.items() for message_id in ids]
        begun = [(message_id, queue_id) for queue_id, ids in self._begun_with.items() for message_id in ids]
        order = dict.fromkeys(begun, 0)
        known = dict.fromkeys(begun, "there")
        for number, (lsn, kind, message_id, queue_id) in enumerate(self._operations, 1):
            place = message_id, queue_id
            order.setdefault(place, number)
            if lsn >= self.confirmed_lsn:
                known[place] = "maybe"
            else:
                known[place] = "there" if kind == "enqueue" else "gone"
        for place, what in known.items():
            message_id, queue_id = place
            if what == "there" and place not in places:
                return Wrong("lost", f"message {message_id} was confirmed on queue {queue_id}")
            if what == "gone" and place in places:
                return Wrong("resurrected", f"message {message_id} was taken off queue {queue_id}, confirmed")
        if len(places) != len(set(places)):
            return Wrong("duplicated", f"a message is there twice: {shown}")
        for message_id, queue_id in places:
            if (message_id, queue_id) not in order:
                return Wrong("phantom", f"message {message_id} was never put on queue {queue_id}")
        rank = {place: at for at, place in enumerate(begun)}
        for queue_id, ids in shown.items():
            if ids != sorted(ids, key=lambda m: (order[m, queue_id], rank.get((m, queue_id), 0))):
                return Wrong("reordered", f"queue {queue_id}: {ids}")
        return Wrong("gap", f"{shown} is no beginning of {self._operations} from {self._begun_with}")


def _apply(shown: Shown, operations: Iterable[Operation]) -> None:
    for _, kind, message_id, queue_id in operations:
        if kind == "enqueue":
            shown.setdefault(queue_id, []).append(message_id)
        else:
            shown[queue_id].remove(message_id)
            if not shown[queue_id]:
                del shown[queue_id]
