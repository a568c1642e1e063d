"""Messages too long for one frame, on their way out of a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..codec.annotated_message import AnnotatedMessage
from ..native.proton_ffi import Pointer
from .stream_cursor import StreamCursor
from .values import Content


class CompleteBytes:
    """Bytes too long for a frame, as content of one piece."""

    pieces = 1

    def __init__(self, data: bytes) -> None:
        self._data = data

    def piece(self, number: int) -> bytes:
        return self._data


_NOTHING = CompleteBytes(b"")


@dataclass(eq=False, slots=True)
class Sending:
    """A long message that has begun to go out."""

    delivery: Pointer
    tag: Any
    content: Content
    piece: int = 0
    """The number of the next piece."""
    data: bytes = b""
    offset: int = 0
    has_begun: bool = False
    """A part of it went out."""

    def part(self, most_bytes: int) -> bytes:
        """The next bytes of the message; empty when there are no more."""
        while self.offset == len(self.data):
            if self.piece == self.content.pieces:
                return b""
            self.data, self.offset = self.content.piece(self.piece), 0
            self.piece += 1
        part = self.data[self.offset : self.offset + most_bytes]
        self.offset += len(part)
        return part

    @property
    def complete(self) -> bool:
        return self.offset == len(self.data) and self.piece == self.content.pieces

    @property
    def settled(self) -> bool:
        """Return whether no outcome is awaited. Valid at the end of the message."""
        return False

    @property
    def waits(self) -> bool:
        """Return whether the message waits for its writer."""
        return False


class RewrittenSend(Sending):
    """A long message whose beginning this copy rewrites (C29)."""

    __slots__ = ("parcel",)

    def __init__(self, delivery: Pointer, tag: Any, parcel: AnnotatedMessage) -> None:
        super().__init__(delivery, tag, parcel)
        self.parcel = parcel
        self.data = parcel.head

    def part(self, most_bytes: int) -> bytes:
        if self.offset == len(self.data) and not self.piece:
            self.piece, self.data, self.offset = 1, self.parcel.rest, self.parcel.skip
        part = self.data[self.offset : self.offset + most_bytes]
        self.offset += len(part)
        return part

    @property
    def complete(self) -> bool:
        return self.piece == 1 and self.offset == len(self.data)

    @property
    def settled(self) -> bool:
        return self.parcel.settled


class CutThroughSend(Sending):
    """A long message that goes out while it still arrives (C30)."""

    __slots__ = ("cursor",)

    def __init__(self, delivery: Pointer, tag: Any, cursor: StreamCursor) -> None:
        super().__init__(delivery, tag, _NOTHING)
        self.cursor = cursor

    def part(self, most_bytes: int) -> bytes:
        if self.offset == len(self.data):
            self.data, self.offset = self.cursor.take(most_bytes), 0
        part = self.data[self.offset : self.offset + most_bytes]
        self.offset += len(part)
        return part

    @property
    def complete(self) -> bool:
        return self.offset == len(self.data) and self.cursor.at_end

    @property
    def settled(self) -> bool:
        return self.cursor.settled

    @property
    def waits(self) -> bool:
        return self.offset == len(self.data) and self.cursor.is_dry
