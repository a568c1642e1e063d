"""Space limits of a log: a reserve for a full disk, spares beyond it, and watermarks of free disk space.

No message is admitted once only the *reserve* is left and no container can be made. The reserve has room for:

* one more batch that was let in before the disk was found full: a quarter of the rest at most. For one that is to take
  more, since it goes to many queues or is the commit of a large transaction, containers are made before;
* dequeue and delete records, 64 bytes each, at worst a sector each when they are flushed one by one;
* relocation: a slot is emptied into free room before its container comes back;
* openings: each start begins in a container of its own, and gives that of the last one back if nothing else was written
  there. Two containers are theirs, and run time never takes them.

Dequeuing messages frees space only when a slot is empty, or empty enough to be relocated: with a twentieth of it
dead. Until then the records for that twentieth pile up, which is a hundredth of the log for messages of 256 bytes. So
the reserve grows with the log.
"""

from __future__ import annotations

FOR_OPENINGS = 2
"""Containers that are reserved for openings."""
RESERVE_BYTES = 2 << 20
"""The part of the reserve for batches, dequeues and relocation."""
BATCHES = 4
"""The number of batches of messages that `RESERVE_BYTES` has room for."""
RESERVE_SHARE = 64
"""The number of containers in use for each of which the reserve grows by one container."""
SPARES = 1
"""Containers kept ready beyond the reserve."""
SPARES_TO_RESUME = 4
"""Spares that are required before messages are stored again after the disk was full."""
LOW_WATER_BYTES = 4 << 20
"""Free disk space, beside room for one container, that is left to SQL and others when storing stops."""


def reserve(container_bytes: int, used: int, rest_bytes: int = RESERVE_BYTES) -> int:
    """Return the number of free containers that form the reserve, with *used* containers in use."""
    return FOR_OPENINGS + -(-rest_bytes // container_bytes) + used // RESERVE_SHARE


def low_water(container_bytes: int) -> int:
    """Return the free disk space in bytes below which no message is stored."""
    return LOW_WATER_BYTES + container_bytes


def high_water(container_bytes: int) -> int:
    """Return the free disk space in bytes from which on messages are stored again."""
    return 2 * low_water(container_bytes)
