"""Why a message was taken off a queue, as its Dequeue record says.

It costs nothing to say: the three highest bits of the record's flags, given by whoever takes the message off. Records
that were written before there was such a thing say `NOT_RECORDED`, and so do those by which the broker takes away what
it had noted for itself. That a queue was purged or deleted is a record of its own, and needs no reason.
"""

from __future__ import annotations

from enum import IntEnum


class Why(IntEnum):
    """As it stands in the flags."""

    NOT_RECORDED = 0
    ACCEPTED = 1 << 5
    """By its receiver, or it went out settled."""
    REJECTED = 2 << 5
    """By its receiver; with a dead-letter address its copy is put there in the same transaction."""
    DELIVERY_LIMIT = 3 << 5
    """Its delivery failed as often as the queue allows."""
    EXPIRED = 4 << 5
    MOVED = 5 << 5
    """An operator has moved it elsewhere; its copy is put there in the same transaction."""
    OVERFLOW = 6 << 5
    """The oldest on a queue that is a ring, and was full."""
    REPLACED = 7 << 5
    """A newer one has its last-value key."""

    @property
    def words(self) -> str:
        """As it is shown."""
        return self.name.lower().replace("_", "-")


WHY_BITS = 7 << 5


def why_of(flags: int) -> Why:
    """Return the dequeue reason in the flags of a DEQUEUE record."""
    return Why(flags & WHY_BITS)
