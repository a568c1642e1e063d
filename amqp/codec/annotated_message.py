"""A message that goes out with a beginning of its own, or in its own way; the rest is shared (router guide C29)."""

from __future__ import annotations

from collections.abc import Callable


class AnnotatedMessage:
    """A message with its own beginning: *head*, followed by *rest* without its first *skip* bytes.

    *rest* may be shared with any number of others. Nothing of it is copied: both are passed to proton in turn.
    """

    __slots__ = ("head", "on_taken", "rest", "settled", "skip")

    pieces = 2

    def __init__(
        self,
        head: bytes,
        rest: bytes,
        skip: int = 0,
        *,
        settled: bool = False,
        on_taken: Callable[[], None] | None = None,
    ) -> None:
        self.head = head
        self.rest = rest
        self.skip = skip
        self.settled = settled
        """True to send the message settled, whatever the settle mode of the link."""
        self.on_taken = on_taken
        """Called, on the worker, when the message is about to be sent."""

    @property
    def size_bytes(self) -> int:
        return len(self.head) + len(self.rest) - self.skip

    def piece(self, number: int) -> bytes:
        return self.rest[self.skip :] if number else self.head
