"""A reader's place in a message that goes out while it still comes in (router guide C27, C28, C30).

Each copy of such a message has a cursor of its own, and they share its bytes by reference: a piece goes when the last
cursor has passed it. One thread writes, the core; one reads, the worker that sends the copy. They share a deque and a
few integers that only one of them writes, so there is no lock (C26).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .link import Gone


class Cursor:
    """Content whose end may not have come yet."""

    __slots__ = ("_aborted", "_low_bytes", "_over", "_pieces", "_read_bytes", "_tell", "_written_bytes")

    def __init__(self, tell: Callable[[], None]) -> None:
        """*tell* is called by the reader, once, when it has come as far as `is_behind` asked for."""
        self._pieces: deque[bytes] = deque()
        self._tell = tell
        self._low_bytes = -1
        self._read_bytes = 0
        self._written_bytes = 0
        self._over = False
        self._aborted = False

    # ---- the writer's -----------------------------------------------------------------------------------------------

    def write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._written_bytes += len(piece)

    def end(self) -> None:
        """All of it was written."""
        self._over = True

    def abort(self) -> None:
        """The rest will never come: the reader is to take back what it has sent."""
        self._aborted = True

    @property
    def backlog_bytes(self) -> int:
        """What was written and not read yet."""
        return self._written_bytes - self._read_bytes

    def is_behind(self, low_bytes: int) -> bool:
        """Whether the backlog is longer than that; if so, the reader tells when it no longer is."""
        self._low_bytes = low_bytes
        if self.backlog_bytes > low_bytes:  # looked at after it was asked for: else the reader might pass unheard
            return True
        self._low_bytes = -1
        return False

    # ---- the reader's -----------------------------------------------------------------------------------------------

    def take(self, most_bytes: int) -> bytes:
        """The next bytes, about so many; empty if there are none now. Raises `Gone`."""
        if self._aborted:
            raise Gone
        pieces = self._pieces
        if not pieces:
            return b""
        taken = pieces.popleft()
        if pieces and len(taken) < most_bytes:
            parts = [taken]
            size_bytes = len(taken)
            while pieces and size_bytes < most_bytes:
                parts.append(pieces.popleft())
                size_bytes += len(parts[-1])
            taken = b"".join(parts)
        self._read_bytes += len(taken)
        if 0 <= self._low_bytes >= self.backlog_bytes:
            self._low_bytes = -1
            self._tell()
        return taken

    @property
    def at_end(self) -> bool:
        """Everything was taken, and nothing more will come."""
        return self._over and not self._pieces and not self._aborted

    @property
    def is_dry(self) -> bool:
        """Nothing can be done now: the writer says when it can."""
        return not (self._pieces or self._over or self._aborted)
