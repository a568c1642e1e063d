"""A reader's place in a message that goes out while it still comes in (router guide C27, C28, C30).

Each copy of such a message has a cursor of its own, and they share its bytes by reference: a piece goes when the last
cursor has passed it. One thread writes, the core; one reads, the worker that sends the copy. They share a deque and a
few integers that only one of them writes, so there is no lock (C26).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .values import ContentRemoved


class StreamCursor:
    """Content whose end may not have arrived yet."""

    __slots__ = (
        "_aborted", "_held", "_low_bytes", "_over", "_pieces", "_read_bytes", "_report", "_rewrite", "_written_bytes",
        "settled",
    )  # fmt: skip

    def __init__(self, report: Callable[[], None]) -> None:
        """*report* is called by the reader, once, when it reaches the position that `is_behind` requested."""
        self._pieces: deque[bytes] = deque()
        self._report = report
        self._low_bytes = -1
        self._read_bytes = 0
        self._written_bytes = 0
        self._over = False
        self._aborted = False
        self._rewrite: Callable[[bytes], bytes | None] | None = None
        self._held = b""
        """The bytes so far of a beginning that is rewritten."""
        self.settled = False
        """True if the sender requests no outcome, and the reader must not ask for one. Set before the end."""

    # ---- the writer's -----------------------------------------------------------------------------------------------

    def write(self, piece: bytes) -> None:
        if self._rewrite is not None:
            piece = self._begin(self._rewrite, piece)
        if piece:
            self._pieces.append(piece)
            self._written_bytes += len(piece)

    def rewrite(self, beginning: Callable[[bytes], bytes | None]) -> None:
        """Have this copy begin as *beginning* makes it, of so much as it needs; None: it needs more (C29).

        Before the reader has it.
        """
        self._rewrite = beginning
        written = b"".join(self._pieces)
        self._pieces.clear()
        self._written_bytes = 0
        if written:
            self.write(written)

    def _begin(self, rewrite: Callable[[bytes], bytes | None], piece: bytes) -> bytes:
        self._held += piece
        begun = rewrite(self._held)
        if begun is None:
            return b""
        self._rewrite, self._held = None, b""
        return begun

    def end(self) -> None:
        """All of it was written."""
        if self._held:
            self._pieces.append(self._held)
            self._written_bytes += len(self._held)
        self._over = True

    def abort(self) -> None:
        """End the stream without its rest: the reader must abort the delivery that it has begun."""
        self._aborted = True

    @property
    def backlog_bytes(self) -> int:
        """Return the number of bytes that were written and are not read yet."""
        return self._written_bytes - self._read_bytes

    def is_behind(self, low_bytes: int) -> bool:
        """Return whether the backlog exceeds *low_bytes*; if so, the reader reports when it no longer does."""
        self._low_bytes = low_bytes
        if self.backlog_bytes > low_bytes:  # looked at after it was asked for: else the reader might pass unheard
            return True
        self._low_bytes = -1
        return False

    # ---- the reader's -----------------------------------------------------------------------------------------------

    def take(self, most_bytes: int) -> bytes:
        """Return the next bytes, about *most_bytes*; empty if none are available now. Raises `ContentRemoved`."""
        if self._aborted:
            raise ContentRemoved
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
            self._report()
        return taken

    @property
    def at_end(self) -> bool:
        """True if everything was read, and no more content follows."""
        return self._over and not self._pieces and not self._aborted

    @property
    def is_dry(self) -> bool:
        """True if the reader must wait for the writer, which notifies it."""
        return not (self._pieces or self._over or self._aborted)
