"""A message that goes out with a beginning of its own, or in its own way; the rest is shared (router guide C29)."""

from __future__ import annotations

from collections.abc import Callable


class AnnotatedMessage:
    """*head*, which is this copy's alone, and behind it what stands in *rest* behind its first *skip* bytes.

    *rest* may be shared with any number of others. Nothing of it is copied: both are handed to proton in turn.
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
        """It is sent settled, whatever the link's other messages are."""
        self.on_taken = on_taken
        """Called, on the worker, when its turn has come to be sent."""

    @property
    def size_bytes(self) -> int:
        return len(self.head) + len(self.rest) - self.skip

    def piece(self, number: int) -> bytes:
        return self.rest[self.skip :] if number else self.head
