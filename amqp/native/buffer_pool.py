"""A pool of buckets: the limit of content between sockets and queues (RFC005 F25, F26).

In Python a bucket is not a borrowed buffer, but a count: content consists of bytes objects that are passed on and never
copied (F24), and freed by their last user. The pool counts bytes that no other component counts: those that were read
and not yet taken over by the core, and those that proton holds for output. From the core on, content counts in the
memory budget of the broker, `broker/kernel/memory_budget.py`.

Buckets are taken when they are filled, and returned by the last user: per read and per batch, never per message. Each
direction has a pool of its own: clients that do not read keep outgoing buckets occupied, and must not block input.
"""

from __future__ import annotations

DEFAULT_LIMIT_BYTES = 64 << 20
"""The default limit of both directions together, for all workers."""


class Buckets:
    """The share of one worker, for one direction. Only that worker uses it, so there is no lock."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes = limit_bytes
        """The remaining bytes: taking buckets subtracts their bytes, and releasing them adds the bytes.

        Negative if the last user took more than was left: an outgoing message is not split.
        """

    @property
    def used_bytes(self) -> int:
        return self.limit_bytes - self.free_bytes
