"""The dequeue reason: the reason why a message was removed from a queue, as its Dequeue record states.

It needs no space: it is in the three highest bits of the flags of the record, and set by the component that dequeues
the message. Records of versions without dequeue reasons have `NOT_RECORDED`, and so do records by which the broker
removes its own notes. Purging or deleting a queue has a record of its own, and needs no reason.
"""

from __future__ import annotations

from enum import IntEnum


class DequeueReason(IntEnum):
    """The dequeue reason, in its position in the flags."""

    NOT_RECORDED = 0
    ACCEPTED = 1 << 5
    """Accepted by its receiver, or sent settled."""
    REJECTED = 2 << 5
    """Rejected by its receiver; the copy for a dead-letter address is enqueued in the same transaction."""
    DELIVERY_LIMIT = 3 << 5
    """The number of its failed deliveries reached the limit of the queue."""
    EXPIRED = 4 << 5
    MOVED = 5 << 5
    """An operator has moved it elsewhere; its copy is put there in the same transaction."""
    OVERFLOW = 6 << 5
    """The oldest on a queue that is a ring, and was full."""
    REPLACED = 7 << 5
    """A newer one has its last-value key."""

    @property
    def words(self) -> str:
        """Return the name for display."""
        return self.name.lower().replace("_", "-")


NOT_RECORDED = DequeueReason.NOT_RECORDED
REASON_BITS = 7 << 5


def reason_of(flags: int) -> DequeueReason:
    """Return the dequeue reason in the flags of a DEQUEUE record."""
    return DequeueReason(flags & REASON_BITS)
