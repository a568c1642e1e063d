"""A pool of buckets: how much content may be on its way between sockets and queues (RFC005 F25, F26).

In Python a bucket is not a buffer that is lent out, but a count: content is bytes objects that are passed on and never
copied (F24), and go when the last one who uses them lets go. What is counted is what nobody else counts: bytes that
were read and that the core has not taken over yet, and bytes that proton holds to be sent. From the core on, content
counts in the broker's memory budget, `broker/kernel/memory_budget.py`.

Who fills a bucket takes it, the last user gives it back: per read and per batch, never per message. There is a pool for
each direction: clients that take nothing keep outgoing buckets, and must not keep others from being heard.
"""

from __future__ import annotations

DEFAULT_LIMIT_BYTES = 64 << 20
"""Of both directions together, all workers."""


class Buckets:
    """One worker's share, of one direction. That worker only, so there is no lock."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes = limit_bytes
        """Who fills buckets subtracts their bytes, who is done with them adds them.

        Negative if the last one took more than was left: a message on its way out is not cut.
        """

    @property
    def used_bytes(self) -> int:
        return self.limit_bytes - self.free_bytes
