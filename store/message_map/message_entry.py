"""A message as the map knows it: plain, which is one int, or with particulars of its own."""

from __future__ import annotations

from collections.abc import Iterator

from ...journal.format.record import HEAD_BYTES

SIZE_BITS = 17
"""A payload has at most 64 KiB."""
SIZE_MASK = (1 << SIZE_BITS) - 1

Plain = int
"""A message of one Start record on one queue, put there by that record: its queue id and its size in one number."""


def plain(queue_id: int, size_bytes: int) -> Plain:
    return queue_id << SIZE_BITS | size_bytes


class DetailedMessage:
    """A message that is on no queue or on several, arrived in pieces, or was only partly read back so far."""

    __slots__ = ("last", "pieces", "queues", "size_bytes", "start")

    def __init__(self) -> None:
        self.start = 0
        """LSN of the Start record; 0 until it was seen."""
        self.size_bytes = 0
        """The size of the payload of the Start record."""
        self.pieces: dict[int, tuple[int, int]] = {}
        """Number of a Chunk, from 1, to its LSN and the size of its payload."""
        self.last: int | None = None
        """The number of the last piece, when it is known."""
        self.queues: dict[int, tuple[int, int]] = {}
        """Queue id to the position on it, and the LSN of the record that put it there."""

    @property
    def is_complete(self) -> bool:
        """Return whether the content is complete."""
        return self.start > 0 and self.last is not None and len(self.pieces) == self.last

    @property
    def content_bytes(self) -> int:
        """Return the size of the content received so far."""
        return self.size_bytes + sum([size_bytes for _, size_bytes in self.pieces.values()])

    def records(self) -> Iterator[tuple[int, int]]:
        """The LSN and the size of every record that the message needs, the head included."""
        if self.start:
            yield self.start, HEAD_BYTES + self.size_bytes
        for lsn, size in self.pieces.values():
            yield lsn, HEAD_BYTES + size
        for _, lsn in self.queues.values():
            if lsn != self.start:
                yield lsn, HEAD_BYTES
