"""A message that goes out with a beginning of its own, or in its own way; the rest is shared (router guide C29)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar


@dataclass(eq=False, slots=True)
class AnnotatedMessage:
    """A message with its own beginning: *head*, followed by *rest* without its first *skip* bytes.

    *rest* may be shared with any number of others. Nothing of it is copied: both are passed to proton in turn.
    """

    pieces: ClassVar[int] = 2
    head: bytes
    rest: bytes
    skip: int = 0
    _: KW_ONLY
    settled: bool = False
    """True to send the message settled, whatever the settle mode of the link."""
    on_taken: Callable[[], None] | None = None
    """Called, on the worker, when the message is about to be sent."""

    @property
    def size_bytes(self) -> int:
        return len(self.head) + len(self.rest) - self.skip

    def piece(self, number: int) -> bytes:
        return self.rest[self.skip :] if number else self.head
